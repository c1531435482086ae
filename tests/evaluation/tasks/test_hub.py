"""Splits from the Hub, with a loader that gives data sets of the Hub's columns."""

from __future__ import annotations

from typing import Any

import datasets
import pytest

from limbeck.errors import CorpusError
from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TaskRow

NLI = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
CLUE_NLI = datasets.ClassLabel(names=["neutral", "entailment", "contradiction"])
ANSWERS = datasets.Features(
    {
        "id": datasets.Value("string"),
        "context": datasets.Value("string"),
        "question": datasets.Value("string"),
        "answers": {
            "text": datasets.List(datasets.Value("string")),
            "answer_start": datasets.List(datasets.Value("int32")),
        },
    }
)
STORED: dict[tuple[str, str | None, str], datasets.Dataset] = {}
CALLS: list[dict[str, Any]] = []


def pairs(names: tuple[str, str], label: Any, *rows: tuple[Any, ...]) -> datasets.Dataset:
    features = {names[0]: datasets.Value("string"), names[1]: datasets.Value("string"), "label": label}
    features["idx"] = datasets.Value("int32")
    columns = (*names, "label", "idx")
    return datasets.Dataset.from_list(
        [dict(zip(columns, row, strict=True)) for row in rows], features=datasets.Features(features)
    )


def questions(*rows: tuple[str, str, list[str], list[int]]) -> datasets.Dataset:
    listed = [
        {"id": row_id, "context": context, "question": "?", "answers": {"text": texts, "answer_start": starts}}
        for row_id, context, texts, starts in rows
    ]
    return datasets.Dataset.from_list(listed, features=ANSWERS)


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub of what is in `STORED`."""
    STORED.clear()
    CALLS.clear()

    def load(name: str, config: str | None = None, *, split: str, **more: Any) -> datasets.Dataset:
        CALLS.append({"name": name, "config": config, "split": split, **more})
        if (name, config, split) not in STORED:
            raise ValueError(f"Unknown split {split!r}.\nmore lines")
        return STORED[name, config, split]

    monkeypatch.setattr(datasets, "load_dataset", load)


def test_glue_takes_names_for_numbers_and_minus_one_for_no_label() -> None:
    columns = ("premise", "hypothesis")
    for split in ("train", "validation_matched", "validation_mismatched"):
        STORED["nyu-mll/glue", "mnli", split] = pairs(columns, NLI, ("a", "b", 2, 5))
    for split in ("test_matched", "test_mismatched"):
        STORED["nyu-mll/glue", "mnli", split] = pairs(columns, NLI, ("a", "b", -1, 0))
    data = load_task("mnli", data=None)
    assert data.splits["train"] == [TaskRow("5", "a", "b", 2)]
    assert data.splits["test_matched"] == [TaskRow("0", "a", "b")]
    assert data.notes[0] == "MNLI train: 1 rows, but 392702 are published"
    assert {call["revision"] for call in CALLS} == {None}


def test_classes_are_understood_by_name_where_the_hub_numbers_them_otherwise() -> None:
    rows = (("一", "二", 0, 0), ("三", "四", 1, 1))
    STORED["clue/clue", "cmnli", "validation"] = pairs(("sentence1", "sentence2"), CLUE_NLI, *rows)
    data = load_task("cmnli", data=None, splits=["validation"])
    # neutral is 0 on the Hub and 1 in the task.
    assert [row.label for row in data.splits["validation"]] == [1, 0]


def test_values_and_other_counts_of_the_copy() -> None:
    STORED["nyu-mll/glue", "stsb", "validation"] = pairs(
        ("sentence1", "sentence2"), datasets.Value("float32"), ("a", "b", 2.5, 3)
    )
    assert load_task("stsb", data=None, splits=["validation"]).splits["validation"] == [TaskRow("3", "a", "b", 2.5)]
    sick = [{"id": "1", "sentence_A": "a", "sentence_B": "b", "relatedness_score": 4.5, "label": 1}]
    STORED["RobZamp/sick", None, "test"] = datasets.Dataset.from_list(sick)
    data = load_task("sick_cosine", data=None, splits=["test"])
    assert data.splits["test"] == [TaskRow("1", "a", "b", 4.5)]
    assert data.notes == ("SICK-R (cosine) test: 1 rows, but 4906 are published",)
    assert CALLS[-1]["revision"] == "refs/convert/parquet"


def test_questions_of_squad_mlqa_and_cmrc() -> None:
    STORED["rajpurkar/squad_v2", None, "validation"] = questions(("a", "the river", ["river"], [4]), ("b", "x", [], []))
    rows = load_task("squad2", data=None, splits=["validation"]).splits["validation"]
    assert rows == [TaskRow("a", "the river", "?", answers=("river",), answer_starts=(4,)), TaskRow("b", "x", "?")]
    STORED["facebook/mlqa", "mlqa.de.en", "test"] = questions(("a", "der Fluss", ["Fluss"], [4]))
    german = load_task("mlqa", data=None, splits=["test.de.en"])
    assert german.splits["test.de.en"][0].language == "de" and german.task.scored == ("test.de.en",)
    STORED["clue/clue", "cmrc2018", "test"] = questions(("a", "河流", [""], [-1]))
    unlabelled = load_task("cmrc2018", data=None, splits=["test"])
    assert unlabelled.splits["test"] == [TaskRow("a", "河流", "?", language="zh")]
    assert unlabelled.task.predicted == ("test",) and unlabelled.task.scored == ()


def test_refusals() -> None:
    with pytest.raises(CorpusError) as caught:
        load_task("rte", data=None, splits=["train"])
    assert str(caught.value) == (
        "Cannot load the split 'train' of the Hub data set 'nyu-mll/glue rte': Unknown split 'train'. "
        "Give a folder with its files instead."
    )
    with pytest.raises(CorpusError, match="FewCLUE CSL is not on the Hub"):
        load_task("few_csl", data=None)
    STORED["nyu-mll/glue", "rte", "train"] = pairs(("premise", "hypothesis"), NLI, ("a", "b", 1, 0))
    with pytest.raises(CorpusError, match=r"glue rte train:1 has no column 'sentence1'; it has hypothesis, idx"):
        load_task("rte", data=None, splits=["train"])
    STORED["nyu-mll/glue", "rte", "train"] = pairs(
        ("sentence1", "sentence2"), datasets.Value("int64"), ("a", "b", -1, 0)
    )
    with pytest.raises(CorpusError, match=r"glue rte train:1 is unlabelled \(its label is -1\)"):
        load_task("rte", data=None, splits=["train"])
