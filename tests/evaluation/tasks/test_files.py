"""Files of GLUE, XNLI, the Chinese tasks and SICK, and of question answering in SQuAD's JSON."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.support.task_files import CONTEXT, question, write_lines, write_small_squad, write_squad, write_table

MNLI = ("sentence1", "sentence2", "gold_label")


def test_xnli_is_selected_on_all_languages_together(tmp_path: Path) -> None:
    write_table(tmp_path / "MNLI/train.tsv", MNLI, [("a", "b", "neutral")])
    write_table(tmp_path / "xnli/dev-en.tsv", None, [('He said "I', "b", "entailment"), ("c", "d", "contradiction")])
    write_table(tmp_path / "xnli/dev-sw.tsv", None, [("x", "y", "neutral")])
    write_table(tmp_path / "xnli/test-sw.tsv", None, [("t", "u", "contradictory")])
    data = load_task("xnli", data=tmp_path)
    assert data.splits["validation"] == [
        TaskRow("0", 'He said "I', "b", 0, language="en"),
        TaskRow("1", "c", "d", 2, language="en"),
        TaskRow("0", "x", "y", 1, language="sw"),
    ]
    assert data.task.scored == ("test.sw",)
    assert data.splits["test.sw"] == [TaskRow("0", "t", "u", 2, language="sw")]
    assert "XNLI validation: made of 2 of its 15 parts" in data.notes
    assert "XNLI: not there: test.ar, test.bg, test.de, test.el, test.en, test.es and 8 more" in data.notes


def test_clue_rows_without_an_agreed_class_are_left_out(tmp_path: Path) -> None:
    rows = [
        {"sentence1": "一", "sentence2": "二", "label": "neutral", "id": 8},
        {"sentence1": "三", "sentence2": "四", "label": "-", "id": 9},
    ]
    write_lines(tmp_path / "cmnli_public/dev.json", rows)
    write_lines(tmp_path / "cmnli_public/test.json", [{"id": 0, "sentence1": "一", "sentence2": "二"}])
    data = load_task("cmnli", data=tmp_path)
    assert data.splits == {
        "validation": [TaskRow("8", "一", "二", 1, language="zh")],
        "test": [TaskRow("0", "一", "二", language="zh")],
    }
    assert any("1 x row on whose class the annotators did not agree" in note for note in data.notes)
    assert data.notes[-1] == "CMNLI: not there: train"


def test_csl_joins_its_keywords(tmp_path: Path) -> None:
    rows = [{"id": 1, "abst": "摘要", "keyword": ["水声学", "FFT"], "label": "1"}]
    write_lines(tmp_path / "csl/train.json", rows)
    write_lines(tmp_path / "clue/csl/test_public.json", rows)
    expected = [TaskRow("1", "水声学 FFT", "摘要", 1, language="zh")]
    assert load_task("csl", data=tmp_path, splits=["train"]).splits["train"] == expected
    few = load_task("few_csl", data=tmp_path, splits=["test"])
    assert few.splits["test"] == expected and few.task.scored == ("test",)
    assert few.notes == ("FewCLUE CSL test: 1 rows",)


def test_sick_and_the_sts_benchmark(tmp_path: Path) -> None:
    header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    path = write_table(tmp_path / "sick/SICK_test_annotated.txt", header, [(6, "a", "b", "3.3", "NEUTRAL")])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    data = load_task("sick_cosine", data=tmp_path)
    assert data.splits == {"test": [TaskRow("6", "a", "b", 3.3)]} and data.task.scored == ("test",)
    table = [("main", "f", "2012", "0024", "2.5", 'A "girl', "b"), ("main", "f", "2012", "1", "5", "c", "d", "x", "y")]
    write_table(tmp_path / "sts-test.csv", None, table)
    assert load_task("stsb_cosine", data=tmp_path).splits == {
        "test": [TaskRow("0", 'A "girl', "b", 2.5), TaskRow("1", "c", "d", 5.0)]
    }


@pytest.mark.parametrize("file", ["dev-v1.1.json", "v1.1-dev.json", "squad/dev-v1.1.json"])
def test_squad_by_its_usual_names(tmp_path: Path, file: str) -> None:
    write_small_squad(tmp_path / file)
    data = load_task("squad", data=tmp_path, splits=["validation"])
    assert data.splits["validation"] == [
        TaskRow("q1", CONTEXT, "What runs?", answers=("The river", "river"), answer_starts=(0, 4)),
        TaskRow("q2", CONTEXT, "?", answers=("old",), answer_starts=(25,)),
    ]
    assert data.notes == ("SQuAD 1.1 validation: 2 rows, but 10570 are published",)


def test_squad2_has_questions_without_an_answer(tmp_path: Path) -> None:
    impossible = question("b", "?", is_impossible=True, plausible_answers=[{"text": "old", "answer_start": 25}])
    also = question("c", "?", ("old", 25), is_impossible=True)
    write_squad(
        tmp_path / "dev-v2.0.json", (CONTEXT, [question("a", "?", ("old", 25), is_impossible=False), impossible, also])
    )
    rows = load_task("squad2", data=tmp_path, splits=["validation"]).splits["validation"]
    assert [row.answers for row in rows] == [("old",), (), ()]


def test_answers_that_are_not_where_they_should_be(tmp_path: Path) -> None:
    context = "战国无双3是战国无双系列。"
    qas = [question("1", "?", ("战国无双", 8), ("光荣", 3)), question("2", "?", ("战国无双", 6))]
    write_squad(tmp_path / "cmrc2018_dev.json", (context, qas))
    data = load_task("cmrc2018", data=tmp_path, splits=["validation"])
    assert [row.answer_starts for row in data.splits["validation"]] == [(6, -1), (6,)]
    assert [row.language for row in data.splits["validation"]] == ["zh", "zh"]
    assert "1 x answer that is not at its answer_start, taken at the nearest place" in " ".join(data.notes)
    assert "1 x answer that its context does not hold, kept for scoring only" in " ".join(data.notes)


def test_mlqa_trains_on_squad_and_scores_what_is_there(tmp_path: Path) -> None:
    write_small_squad(tmp_path / "squad/train-v1.1.json")
    for context, asked in (("en", "en"), ("de", "de"), ("de", "en")):
        write_small_squad(tmp_path / f"mlqa/dev-context-{context}-question-{asked}.json")
    data = load_task("mlqa", data=tmp_path)
    # No test set is there: the development sets in one language are scored.
    assert data.task.scored == ("validation.en.en", "validation.de.de")
    assert list(data.splits) == ["train", "validation.en.en", "validation.de.de"]
    assert data.splits["validation.de.de"][0].language == "de"
    pairs = load_task("mlqa", data=tmp_path, splits=["train", "validation.de.en"])
    assert pairs.task.scored == ("validation.de.en",)
    assert pairs.splits["validation.de.en"][0].language == "de"
    write_small_squad(tmp_path / "MLQA_V1/test/test-context-de-question-de.json")
    with_test = load_task("mlqa", data=tmp_path)
    assert with_test.task.scored == ("test.de.de",) and with_test.task.select == "validation.en.en"


def test_xquad_is_selected_on_squad(tmp_path: Path) -> None:
    for file in ("train-v1.1.json", "dev-v1.1.json", "xquad.en.json", "xquad.th.json"):
        write_small_squad(tmp_path / file)
    data = load_task("xquad", data=tmp_path)
    assert list(data.splits) == ["train", "squad:validation", "validation.en", "validation.th"]
    assert data.task.scored == ("validation.en", "validation.th")
    assert [row.language for row in data.splits["validation.th"]] == ["th", "th"]


def test_compressed_files_are_found(tmp_path: Path) -> None:
    plain = write_small_squad(tmp_path / "plain.json")
    (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert len(load_task("squad", data=tmp_path, splits=["validation"]).splits["validation"]) == 2


COLA = [("gj04", 1, "", 'He said "yes.'), ("gj04", 0, "*", "Yes he said the.")]
STSB = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score")
PLANE = (0, "main", "f", "2012", "1", "none", "none", 'A "plane.', "An air plane.", "3.800")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
PIE = (1, 10, 11, '" A pie .', "The pie .")


@pytest.mark.parametrize(
    ("name", "split", "file", "header", "table", "rows"),
    [
        # CoLA has no header.
        ("cola", "train", "CoLA/train.tsv", None, COLA,
         [TaskRow("0", 'He said "yes.', label=1), TaskRow("1", "Yes he said the.", label=0)]),
        # MRPC has a byte-order mark and unpaired quotation marks.
        ("mrpc", "validation", "MRPC/dev.tsv", MRPC, [PIE, (0, 12, 13, "It\u2028said .", '" No " .')],
         [TaskRow("0", '" A pie .', "The pie .", 1), TaskRow("1", "It\u2028said .", '" No " .', 0)]),
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
