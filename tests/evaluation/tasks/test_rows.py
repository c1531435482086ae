"""Rows of tasks, built-in and own, from files and from the Hub: what is read, and what is refused in one line."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
import yaml

from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.registry import TASKS

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "rows.yaml").read_text(encoding="utf-8"))
REFUSALS = yaml.safe_load((HERE / "refusals.yaml").read_text(encoding="utf-8"))


def content_of(value):
    """Bytes and text are as they are; a list of lists is a table, another list JSON a line, all else JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list) and isinstance(value[0], list):
        value = "".join("\t".join(map(str, row)) + "\n" for row in value)
    elif isinstance(value, list):
        value = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in value)
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a case's files, fill the Hub with its data sets, and load its task."""
    asked = []

    def read(case):
        for name, value in case.get("files", {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content_of(value)) if path.suffix == ".gz" else content_of(value))

        def load_dataset(name, config, *, split, revision):
            asked.append([name, config, split, revision])
            stored = case["hub"].get(" ".join(filter(None, (name, config, split))))
            if stored is None:
                raise ValueError(f"Unknown split {split!r}.\nmore lines")
            found = datasets.Dataset.from_list(stored["rows"])
            return (
                found.cast_column("label", datasets.ClassLabel(names=stored["label"])) if "label" in stored else found
            )

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        task, data = case["task"], tmp_path / case.get("data", "")
        if isinstance(task, str):
            return load_task(task, data=None if "hub" in case else data, splits=case.get("splits")), asked
        path = tmp_path / case.get("beside", "") / "task.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in task.items() if value is not None}))
        return load_task(str(path), data=data if "data" in case else None), asked

    return read


def row_of(values, *, has_answers):
    """A row as the cases write it; the label of a question is the place of its first answer."""
    row = LabelledRow(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    if not has_answers:
        return row
    if not row.answers:
        return replace(row, label=NO_ANSWER)
    start = row.answer_starts[0]
    return replace(row, label=None if start < 0 else (start, start + len(row.answers[0])))


def is_answered(task, split):
    return task.kind == "question_answering" and (split not in task.splits or task.splits[split].labelled)


@pytest.mark.parametrize("name", CASES)
def test_rows(load, name):
    case = CASES[name]
    data, asked = load(case)
    rows = {split: [row_of(values, has_answers=is_answered(data.task, split)) for values in listed]
            for split, listed in case["rows"].items()}  # fmt: skip
    assert data.splits == rows
    for key, value in case.get("task is", {}).items():
        assert getattr(data.task, key) == (tuple(value) if isinstance(value, list) else value), key
    assert asked == case.get("asked", asked) and list(data.notes) == case.get("notes", list(data.notes))
    assert all(note in "\n".join(data.notes) for note in case.get("noted", ()))


def test_counts_that_agree_say_nothing(load):
    count = TASKS["wnli"].splits["validation"].published_rows
    rows = [["index", "sentence1", "sentence2", "label"], *([number, "a", "b", number % 2] for number in range(count))]
    data, _ = load({"task": "wnli", "splits": ["validation"], "files": {"WNLI/dev.tsv": rows}})
    assert data.notes == ()


@pytest.mark.parametrize("case", REFUSALS["rows"], ids=lambda case: case["refused"][:60])
def test_rows_that_are_refused(load, tmp_path, case):
    with pytest.raises(CorpusError) as caught:
        load(case)
    message = str(caught.value)
    assert case["refused"].format(folder=tmp_path) in message


@pytest.mark.parametrize(
    ("message", "change"),
    [*REFUSALS["descriptions"], ("'each' makes too many splits", {"each": {"language": ["x"] * 3000}})],
    ids=lambda part: part[:60] if isinstance(part, str) else "",
)
def test_descriptions_that_are_refused(load, message, change):
    with pytest.raises(RecipeError) as caught:
        load({"task": REFUSALS["description"] | change})
    assert message in str(caught.value) and "task.yaml'" in str(caught.value)


@pytest.mark.parametrize(("message", "text"), REFUSALS["texts"])
def test_files_that_are_no_description(tmp_path, message, text):
    path = tmp_path / "task.yml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_task(str(path), data=None)
    assert message in str(caught.value)


@pytest.mark.parametrize("start", [4.7, float("inf"), float("nan"), "x", None, [4]])
def test_answers_that_stand_nowhere(load, start):
    row = {"question": "q", "context": "the student", "answers": {"text": ["student"], "answer_start": [start]}}
    task = {"name": "q", "type": "question_answering", "files": {"train": "rows.jsonl"}}
    with pytest.raises(CorpusError, match="not in the format of SQuAD"):
        load({"task": task, "files": {"rows.jsonl": [row]}})


def test_a_few_rows_of_qqp_that_lack_fields_are_left_out_and_noted(load):
    whole = [[number, 1, 2, "How?", "Why?", 0] for number in range(200)]
    table = [["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], *whole, [6, 1, 2, "broken"]]
    data, _ = load({"task": "qqp", "splits": ["train"], "files": {"QQP/train.tsv": table}})
    assert len(data.splits["train"]) == 200
    assert any("1 x row whose number of fields differs from the header's" in note for note in data.notes)
