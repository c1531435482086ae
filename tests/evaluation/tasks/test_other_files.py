"""XNLI, the Chinese tasks and SICK."""

from __future__ import annotations

from pathlib import Path

from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TaskRow
from tests.support.task_files import write_lines, write_table

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


def test_xnli_as_its_source_has_it(tmp_path: Path) -> None:
    header = ("language", "gold_label", "sentence1", "sentence2", "pairID")
    table = [("ar", "neutral", "a", "b", 1), ("de", "entailment", "c", "d", 1), ("de", "contradiction", "e", "f", 2)]
    write_table(tmp_path / "XNLI-1.0/xnli.dev.tsv", header, table)
    assert load_task("xnli", data=tmp_path, splits=["validation.de"]).splits["validation.de"] == [
        TaskRow("1", "c", "d", 0, language="de"),
        TaskRow("2", "e", "f", 2, language="de"),
    ]


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
