"""GLUE's tables as its zip has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.support.task_files import write_table

COLA = [("gj04", 1, "", 'He said "yes.'), ("gj04", 0, "*", "Yes he said the.")]
STSB = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score")
PLANE = (0, "main", "f", "2012", "1", "none", "none", 'A "plane.', "An air plane.", "3.800")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
PIE = (1, 10, 11, '" A pie .', "The pie .")


@pytest.mark.parametrize(
    ("name", "split", "file", "header", "table", "rows"),
    [
        # CoLA has no header but in the test set.
        ("cola", "train", "CoLA/train.tsv", None, COLA,
         [TaskRow("0", 'He said "yes.', label=1), TaskRow("1", "Yes he said the.", label=0)]),
        ("cola", "validation", "CoLA/dev.tsv", None, COLA[1:], [TaskRow("0", "Yes he said the.", label=0)]),
        ("cola", "test", "CoLA/test.tsv", ("index", "sentence"), [(7, "Bill whistled.")],
         [TaskRow("7", "Bill whistled.")]),
        # Texts are kept as they are.
        ("sst2", "train", "SST-2/train.tsv", ("sentence", "label"), [("hide new secretions ", 0)],
         [TaskRow("0", "hide new secretions ", label=0)]),
        # MRPC has a byte-order mark and unpaired quotation marks.
        ("mrpc", "validation", "MRPC/dev.tsv", MRPC, [PIE, (0, 12, 13, "It\u2028said .", '" No " .')],
         [TaskRow("0", '" A pie .', "The pie .", 1), TaskRow("1", "It\u2028said .", '" No " .', 0)]),
        ("mrpc", "test", "MRPC/test.tsv", ("index", *MRPC[1:]), [(3, *PIE[1:])],
         [TaskRow("3", '" A pie .', "The pie .")]),
        ("qnli", "validation", "glue/QNLI/dev.tsv", ("index", "question", "sentence", "label"),
         [(4, "a", "b", "not_entailment")], [TaskRow("4", "a", "b", 1)]),
        ("rte", "validation", "glue/RTE/dev.tsv", ("index", "sentence1", "sentence2", "label"),
         [(4, "a", "b", "entailment")], [TaskRow("4", "a", "b", 0)]),
        ("wnli", "validation", "WNLI/dev.tsv", ("index", "sentence1", "sentence2", "label"),
         [(4, "a", "b", "1")], [TaskRow("4", "a", "b", 1)]),
        ("stsb", "validation", "STS-B/dev.tsv", STSB, [PLANE], [TaskRow("0", 'A "plane.', "An air plane.", 3.8)]),
        ("stsb", "test", "STS-B/test.tsv", STSB[:-1], [PLANE[:-1]], [TaskRow("0", 'A "plane.', "An air plane.")]),
        # The same table serves the sentence vectors.
        ("stsb_cosine", "validation", "STS-B/dev.tsv", STSB, [PLANE],
         [TaskRow("0", 'A "plane.', "An air plane.", 3.8)]),
    ],
)  # fmt: skip
def test_tables(tmp_path: Path, name: str, split: str, file: str, header: Any, table: Any, rows: list[TaskRow]) -> None:
    write_table(tmp_path / file, header, table, bom=name == "mrpc")
    assert load_task(name, data=tmp_path, splits=[split]).splits[split] == rows


def test_qqp_rows_that_lack_fields_are_left_out_and_noted(tmp_path: Path) -> None:
    header = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    write_table(
        tmp_path / "QQP/train.tsv",
        header,
        [(5, 1, 2, "How?", "Why?", 0), (6, 1, 2, "broken"), (9, 3, 4, "", "When?", 1)],
    )
    data = load_task("qqp", data=tmp_path, splits=["train"])
    assert data.splits["train"] == [TaskRow("5", "How?", "Why?", 0), TaskRow("9", "", "When?", 1)]
    assert data.notes[0] == "QQP train: 2 rows, but 363846 are published"
    assert "1 x row with another number of fields than the header" in data.notes[1]


def test_mnli_has_two_development_sets_and_classes_by_name(tmp_path: Path) -> None:
    parses = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")
    train = ("index", "promptID", "pairID", "genre", *parses, "sentence1", "sentence2", "label1", "gold_label")
    dev = (*train[:-1], "label2", "label3", "label4", "label5", "gold_label")
    start = (0, 1, "1n", "fiction", "( a )", "( b )", "(a)", "(b)", "a", "b")
    write_table(tmp_path / "MNLI/train.tsv", train, [(*start, "neutral", "contradiction")])
    write_table(tmp_path / "MNLI/dev_matched.tsv", dev, [(*start, *["neutral"] * 5, "neutral")])
    write_table(tmp_path / "MNLI/dev_mismatched.tsv", dev, [(*start, *["neutral"] * 5, "entailment")])
    write_table(tmp_path / "MNLI/test_matched.tsv", train[:-2], [start])
    write_table(tmp_path / "diagnostic/diagnostic.tsv", ("index", "sentence1", "sentence2"), [(0, "x", "y")])
    data = load_task("mnli", data=tmp_path)
    assert {key: [row.label for row in rows] for key, rows in data.splits.items()} == {
        "train": [2],
        "validation_matched": [1],
        "validation_mismatched": [0],
        "test_matched": [None],
    }
    assert data.task.predicted == ("test_matched",)
    assert data.notes[-1] == "MNLI: not there: test_mismatched"
    ax = load_task("ax", data=tmp_path)
    assert {key: (rows[0].text, rows[0].label) for key, rows in ax.splits.items()} == {
        "train": ("a", 2),
        "mnli:validation_matched": ("a", 1),
        "test": ("x", None),
    }


def test_counts_that_agree_are_noted_too(tmp_path: Path) -> None:
    rows = [(number, "a", "b", number % 2) for number in range(TASKS["wnli"].splits["validation"].published_rows or 0)]
    write_table(tmp_path / "WNLI/dev.tsv", ("index", "sentence1", "sentence2", "label"), rows)
    assert load_task("wnli", data=tmp_path, splits=["validation"]).notes == ("WNLI validation: 71 rows, published 71",)
