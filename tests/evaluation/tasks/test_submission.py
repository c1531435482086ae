"""The files of leaderboards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from limbeck.evaluation.submission import AnswerPrediction, write_submission
from limbeck.evaluation.tasks import TASKS


@pytest.mark.parametrize(
    ("name", "split", "predictions", "file", "lines"),
    [
        ("cola", "test", [1, 0], "CoLA.tsv", ["0\t1", "1\t0"]),
        ("sst2", "test", [0], "SST-2.tsv", ["0\t0"]),
        ("qqp", "test", [1], "QQP.tsv", ["0\t1"]),
        ("wnli", "test", [1], "WNLI.tsv", ["0\t1"]),
        ("stsb", "test", [2.71828, -0.3, 5.2], "STS-B.tsv", ["0\t2.718", "1\t0.000", "2\t5.000"]),
        ("mnli", "test_matched", [2, 1], "MNLI-m.tsv", ["0\tcontradiction", "1\tneutral"]),
        ("mnli", "test_mismatched", [0], "MNLI-mm.tsv", ["0\tentailment"]),
        ("qnli", "test", [1], "QNLI.tsv", ["0\tnot_entailment"]),
        ("rte", "test", [0], "RTE.tsv", ["0\tentailment"]),
        ("ax", "test", [2], "AX.tsv", ["0\tcontradiction"]),
        ("few_ocnli", "test", [1], "few_ocnli-test.tsv", ["0\tneutral"]),
    ],
)
def test_tables(tmp_path: Path, name: str, split: str, predictions: list[float], file: str, lines: list[str]) -> None:
    path = write_submission(TASKS[name], split, predictions, tmp_path / "new")
    assert path == tmp_path / "new" / file
    assert path.read_text() == "\n".join(["index\tprediction", *lines]) + "\n"


@pytest.mark.parametrize(
    ("name", "file", "labels"),
    [
        ("cmnli", "cmnli_predict.json", ["neutral", "entailment"]),
        ("ocnli", "ocnli_50k_predict.json", ["neutral", "entailment"]),
        ("csl", "csl_predict.json", ["1", "0"]),
    ],
)
def test_clue_wants_a_json_object_a_line(tmp_path: Path, name: str, file: str, labels: list[str]) -> None:
    path = write_submission(TASKS[name], "test", [1, 0], tmp_path)
    assert path == tmp_path / file
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"id": row, "label": label} for row, label in enumerate(labels)]


def test_clue_wants_one_json_object_of_answers(tmp_path: Path) -> None:
    path = write_submission(TASKS["cmrc2018"], "test", {"TEST_0_QUERY_0": AnswerPrediction("桥", 9.0)}, tmp_path)
    assert path == tmp_path / "cmrc2018_predict.json"
    assert path.read_text(encoding="utf-8") == '{"TEST_0_QUERY_0": "桥"}'


def test_values_of_other_tasks_are_not_held_to_a_scale(tmp_path: Path) -> None:
    own = replace(TASKS["stsb"], name="prices", submissions={})
    assert write_submission(own, "test", [7.25], tmp_path).read_text() == "index\tprediction\n0\t7.250\n"


def test_answers(tmp_path: Path) -> None:
    predictions = {"a": AnswerPrediction("桥", -1.0), "b": AnswerPrediction("river", 0.5)}
    path = write_submission(TASKS["squad"], "validation", predictions, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "桥", "b": "river"}
    path = write_submission(TASKS["squad2"], "validation", predictions, tmp_path)
    assert path.name == "squad2-validation.json"
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "桥", "b": ""}
    path = write_submission(TASKS["squad2"], "validation", predictions, tmp_path, threshold=0.5)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "桥", "b": "river"}
