"""Question answering in SQuAD's JSON: SQuAD, XQuAD, MLQA, CMRC 2018."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import TaskRow
from tests.support.task_files import CONTEXT, question, write_small_squad, write_squad


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
