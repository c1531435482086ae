"""Tasks of the user's in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TaskRow
from tests.support.task_files import write_lines, write_small_squad, write_table

REVIEWS: dict[str, Any] = {
    "name": "reviews",
    "type": "classification",
    "columns": {"text": "body", "label": "stars"},
    "labels": ["bad", "good"],
    "files": {"train": "train.tsv", "validation": "dev.csv"},
}


def describe(folder: Path, base: dict[str, Any] = REVIEWS, **more: Any) -> str:
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**base, **more}.items() if value is not None}))
    return str(path)


def test_a_classification_of_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "train.tsv", ("body", "stars"), [("fine", "good"), ('"poor', "bad")])
    (tmp_path / "dev.csv").write_text('stars,body\n1,"all, well"\n')
    write_lines(tmp_path / "test.jsonl", [{"body": "?"}])
    files = {**REVIEWS["files"], "test": "test.jsonl"}
    data = load_task(describe(tmp_path, files=files, unlabelled=["test"]), data=None)
    assert data.splits == {
        "train": [TaskRow("0", "fine", label=1), TaskRow("1", '"poor', label=0)],
        "validation": [TaskRow("0", "all, well", label=1)],
        "test": [TaskRow("0", "?")],
    }
    task = data.task
    assert (task.name, task.title, task.group, task.kind) == ("reviews", "reviews", "own", "classification")
    assert (task.train, task.select, task.scored, task.predicted) == ("train", "validation", ("validation",), ("test",))
    assert task.metrics == ("accuracy", "f1", "matthews")
    assert data.notes == ("reviews train: 2 rows", "reviews validation: 1 rows", "reviews test: 1 rows")


def test_files_beside_the_description_or_in_the_data_folder(tmp_path: Path) -> None:
    own, data = tmp_path / "own", tmp_path / "data"
    own.mkdir()
    write_table(own / "train.tsv", ("body", "stars"), [("near", "good")])
    write_table(data / "train.tsv", ("body", "stars"), [("far", "good")])
    write_lines(data / "dev.jsonl", [{"body": "far", "stars": "bad"}])
    path = describe(own, files={"train": "train.tsv", "validation": "dev.jsonl"}, metric="f1")
    loaded = load_task(path, data=data)
    assert {key: rows[0].text for key, rows in loaded.splits.items()} == {"train": "near", "validation": "far"}
    assert loaded.task.metrics == ("f1",)


def test_pairs_values_and_similarity(tmp_path: Path) -> None:
    write_table(tmp_path / "a.tsv", ("n", "x", "y", "v"), [(7, "a", "b", "1"), (8, "c", "d", "0")])
    columns = {"text": "x", "pair": "y", "label": "v", "id": "n"}
    both = {"train": "a.tsv", "validation": "a.tsv"}
    pair = {"name": "p", "type": "pair", "columns": columns, "labels": ["no", "yes"], "files": both}
    assert load_task(describe(tmp_path, pair), data=None).splits["train"][0] == TaskRow("7", "a", "b", 1)
    value = {"name": "r", "type": "regression", "columns": columns, "files": both, "metric": ["spearman", "pearson"]}
    data = load_task(describe(tmp_path, value), data=None)
    assert data.splits["train"][1] == TaskRow("8", "c", "d", 0.0)
    assert data.task.metrics == ("spearman", "pearson") and data.task.labels == ()
    near = {"name": "s", "type": "similarity", "columns": columns, "files": {"pairs": "a.tsv"}, "language": "de"}
    data = load_task(describe(tmp_path, near), data=None)
    assert (data.task.train, data.task.select, data.task.scored) == (None, None, ("pairs",))
    assert data.splits["pairs"][0] == TaskRow("7", "a", "b", 1.0, language="de")


def test_questions_trained_on_squad(tmp_path: Path) -> None:
    write_small_squad(tmp_path / "mine.json")
    write_small_squad(tmp_path / "data/train-v1.1.json")
    mine = {"name": "q", "type": "question_answering", "files": {"test": "mine.json"}, "train": "squad:train"}
    data = load_task(describe(tmp_path, mine), data=tmp_path / "data")
    assert list(data.splits) == ["train", "test"] and data.task.select == "test"
    assert data.splits["test"][0].id == "q1" and data.splits["test"][0].answers == ("The river", "river")
    assert data.task.answerable_only
    assert not load_task(describe(tmp_path, mine, no_answers=True), data=tmp_path / "data").task.answerable_only


def test_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, config: str | None, *, split: str, **more: Any) -> datasets.Dataset:
        asked.append((name, config, split, more["revision"]))
        return datasets.Dataset.from_list([{"body": "a", "stars": "good"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    hub = {
        "name": "me/reviews",
        "config": "de",
        "revision": "v1",
        "splits": {"train": "train[:1%]", "validation": "dev"},
    }
    # A data folder is for other tasks: the description says where its own rows are.
    data = load_task(describe(tmp_path, files=None, hub=hub), data=tmp_path)
    assert data.splits["train"] == [TaskRow("0", "a", label=1)]
    assert asked == [("me/reviews", "de", "train[:1%]", "v1"), ("me/reviews", "de", "dev", "v1")]


def test_one_description_of_several_splits_on_the_hub_and_in_files(tmp_path: Path, monkeypatch: Any) -> None:
    task = {
        **REVIEWS, "each": {"language": ["de", "en"]}, "folders": ["", "all"],
        "files": {"train": ["t.tsv", "train.tsv"], "all": [{"path": "rows.tsv", "header": ["of", "stars", "body"]}],
                  "test.{language}": {"path": "rows.tsv", "header": ["of", "stars", "body"],
                                      "only": {"of": "{language}"}}},
        "hub": {"name": "me/reviews", "splits": {
            "train": "train", "all": "all", "test.{language}": {"split": "test", "config": "{language}"}}},
        "rows": {"test.{language}": 1}, "language": {"test.{language}": "{language}"}, "group": "chinese",
        "select": "test.en", "scored": ["test.{language}"],
    }  # fmt: skip
    write_table(tmp_path / "data/all/train.tsv", ("body", "stars"), [("fine", "good")])
    write_table(tmp_path / "data/all/rows.tsv", None, [("en", "bad", "a"), ("de", "good", "b")])
    path = describe(tmp_path, task)
    data = load_task(path, data=tmp_path / "data")
    assert data.splits == {
        "train": [TaskRow("0", "fine", label=1)],
        "test.en": [TaskRow("0", "a", label=0)],
        "test.de": [TaskRow("0", "b", label=1, language="de")],
    }
    assert (data.task.scored, data.task.select, data.task.group) == (("test.de", "test.en"), "test.en", "chinese")
    assert "reviews test.de: 1 rows, published 1" in data.notes
    asked = []

    def load(name: str, config: str | None, *, split: str, **more: Any) -> datasets.Dataset:
        asked.append((config, split))
        return datasets.Dataset.from_list([{"body": "a", "stars": "good"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    load_task(path, data=None)
    assert asked == [(None, "train"), ("en", "test"), ("de", "test")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "classificaton"}, "type: Input should be 'classification'"),
        ({"colums": {}}, "unknown key 'colums'. Did you mean 'columns'?"),
        ({"columns": {"txt": "a"}}, "columns: unknown key 'txt'. Did you mean 'text'?"),
        ({"name": None}, "name: is missing"),
        ({"name": "../up"}, "name: String should match pattern"),
        ({"columns": None}, "columns.text is missing"),
        ({"labels": None}, "labels is missing: name two classes"),
        ({"labels": [True, "b"]}, "the label True is not text"),
        ({"metric": "acuracy"}, "classification has no metric 'acuracy'. Did you mean 'accuracy'?"),
        ({"type": "pair"}, "columns.pair is missing"),
        ({"type": "regression"}, "labels are for classification and pair, not for regression"),
        ({"files": {}}, "give files, hub or both"),
        ({"files": None, "hub": {"name": "a/b"}}, "hub names no split"),
        ({"rows": {"tset": 3}}, "rows names 'tset'."),
        ({"scored": ["test"]}, "scored names 'test'."),
        ({"parts": {"all": ["train", "dev"]}}, "parts names 'dev'."),
        ({"select": "mlni:validation"}, "select names the split 'mlni:validation' of no task. Did you mean 'mnli'?"),
        ({"submissions": {"validation": {"file": "../x.tsv"}}}, "submissions.validation.file: String should match"),
        ({"each": {"language": ["x"] * 3000}}, "each stands for too many splits"),
        ({"files": {"validation": "a.tsv"}}, "there is no split 'train' to train on"),
        ({"unlabelled": ["tset"]}, "unlabelled names 'tset'"),
        ({"unlabelled": ["validation"]}, "unlabelled names 'validation'"),
        ({"name": "sst2"}, "name: 'sst2' is a task of limbeck; give the task another name"),
        # They come from anywhere, and read and write nothing elsewhere.
        ({"files": {"train": "train.jsonl", "validation": "../dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "/etc/passwd", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "a\0b", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "train.jsonl", "../../x": "dev.jsonl"}}, "has to be named by letters"),
        ({"files": {"train": "train.jsonl", "a\nb": "dev.jsonl"}}, "has to be named by letters"),
        ({"files": None, "hub": {"name": "../..", "splits": {"train": "train"}}}, "hub.name: "),
        ({"train": "a:b:c"}, "of no task"),
        ({"labels": ["no", "yes", "no"]}, "labels have to differ"),
        ({"labels": ["no", " "]}, "none may be empty"),
        ({"title": "a\x1b[2Jb"}, "no line of 1 to 200"),
        ({"name": "x" * 200}, "name: "),
    ],
)
def test_descriptions_that_cannot_be_meant(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = describe(tmp_path, **change)
    with pytest.raises(RecipeError) as caught:
        load_task(path, data=None)
    assert message in str(caught.value) and path in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a: [", RecipeError, "is not valid YAML at line 1"),
        ("- a", RecipeError, "must be a mapping"),
        ("name: mine\nname: other", RecipeError, "stands twice"),
        ("name: &a [*a]", RecipeError, "contains itself"),
        ("name: 2020-13-01", RecipeError, r"task\.yml"),
        ("[" * 60, RecipeError, "levels of lists"),
        ("a: !!python/object/apply:os.getcwd []", RecipeError, "is not valid YAML"),
        (None, CorpusError, "does not exist"),
    ],
)
def test_files_that_are_no_description(
    tmp_path: Path, text: str | None, kind: type[LimbeckError], message: str
) -> None:
    path = tmp_path / "task.yml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(kind, match=message):
        load_task(str(path), data=None)


@pytest.mark.parametrize("start", [4.7, float("inf"), float("nan"), "x", None, [4]])
def test_answers_that_stand_nowhere(tmp_path: Path, start: Any) -> None:
    row = {"question": "q", "context": "the student", "answers": {"text": ["student"], "answer_start": [start]}}
    mine = {"name": "q", "type": "question_answering", "files": {"train": "rows.jsonl"}}
    write_lines(tmp_path / "rows.jsonl", [row])
    with pytest.raises(CorpusError, match="not as SQuAD has them"):
        load_task(describe(tmp_path, mine), data=None)
