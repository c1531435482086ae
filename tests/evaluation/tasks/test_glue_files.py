"""GLUE's tables as its zip has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.support.task_files import write_table


def rows_of(data: Path, name: str, split: str) -> list[TaskRow]:
    return list(load_task(name, data=data, splits=[split]).splits[split])


def test_cola_has_no_header_but_in_the_test_set(tmp_path: Path) -> None:
    table = [("gj04", 1, "", 'He said "yes.'), ("gj04", 0, "*", "Yes he said the.")]
    write_table(tmp_path / "CoLA/train.tsv", None, table)
    write_table(tmp_path / "CoLA/dev.tsv", None, table[1:])
    write_table(tmp_path / "CoLA/test.tsv", ("index", "sentence"), [(7, "Bill whistled past the house.")])
    assert rows_of(tmp_path, "cola", "train") == [
        TaskRow("0", 'He said "yes.', label=1),
        TaskRow("1", "Yes he said the.", label=0),
    ]
    assert rows_of(tmp_path, "cola", "validation") == [TaskRow("0", "Yes he said the.", label=0)]
    assert rows_of(tmp_path, "cola", "test") == [TaskRow("7", "Bill whistled past the house.")]


def test_sst2_keeps_its_texts_as_they_are(tmp_path: Path) -> None:
    write_table(tmp_path / "SST-2/train.tsv", ("sentence", "label"), [("hide new secretions ", 0), ("a joy", 1)])
    assert [(row.text, row.label) for row in rows_of(tmp_path, "sst2", "train")] == [
        ("hide new secretions ", 0),
        ("a joy", 1),
    ]


def test_mrpc_has_a_byte_order_mark_and_unpaired_quotation_marks(tmp_path: Path) -> None:
    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    table = [(1, 10, 11, '" A pie .', "The pie ."), (0, 12, 13, "It\u2028said .", '" No " .')]
    write_table(tmp_path / "MRPC/dev.tsv", header, table, bom=True)
    assert rows_of(tmp_path, "mrpc", "validation") == [
        TaskRow("0", '" A pie .', "The pie .", 1),
        TaskRow("1", "It\u2028said .", '" No " .', 0),
    ]
    write_table(tmp_path / "MRPC/test.tsv", ("index", *header[1:]), [(3, *table[0][1:])])
    assert rows_of(tmp_path, "mrpc", "test") == [TaskRow("3", '" A pie .', "The pie .")]


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


@pytest.mark.parametrize(
    ("name", "file", "columns", "label", "number"),
    [
        ("qnli", "QNLI/dev.tsv", ("question", "sentence"), "not_entailment", 1),
        ("rte", "RTE/dev.tsv", ("sentence1", "sentence2"), "entailment", 0),
        ("wnli", "WNLI/dev.tsv", ("sentence1", "sentence2"), "1", 1),
    ],
)
def test_pairs(tmp_path: Path, name: str, file: str, columns: tuple[str, str], label: str, number: int) -> None:
    write_table(tmp_path / "glue" / file, ("index", *columns, "label"), [(4, "a", "b", label)])
    assert rows_of(tmp_path, name, "validation") == [TaskRow("4", "a", "b", number)]


def test_stsb_has_values(tmp_path: Path) -> None:
    header = (
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    )
    row = (0, "main", "f", "2012", "1", "none", "none", 'A "plane.', "An air plane.", "3.800")
    write_table(tmp_path / "STS-B/dev.tsv", header, [row])
    write_table(tmp_path / "STS-B/test.tsv", header[:-1], [row[:-1]])
    assert rows_of(tmp_path, "stsb", "validation") == [TaskRow("0", 'A "plane.', "An air plane.", 3.8)]
    assert rows_of(tmp_path, "stsb", "test") == [TaskRow("0", 'A "plane.', "An air plane.")]
    # The same table serves the sentence vectors, where the labelled test set is not there.
    cosine = load_task("stsb_cosine", data=tmp_path)
    assert cosine.task.scored == ("validation",) and cosine.splits["validation"][0].label == 3.8


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
