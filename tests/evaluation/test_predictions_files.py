"""Predictions come back as leaderboard files; missing or damaged ones are told, not raised as they are."""

import pytest

from limbeck.errors import OutputError
from limbeck.evaluation.grid import write_submissions
from limbeck.evaluation.submission import save_predictions
from limbeck.evaluation.tasks import TASKS

RTE = TASKS["rte"]


@pytest.fixture
def rows(tmp_path):
    saved = save_predictions(tmp_path, "a", {"test": [0, 1, 1]})
    return [{"predictions": saved, "select": "validation", "scores": {"validation": {"accuracy": 0.5}}}]


def test_the_best_run_is_written(tmp_path, rows):
    (path,) = write_submissions(tmp_path, "org/model", RTE, rows, "accuracy")
    assert path == tmp_path / "submissions" / "org-model" / "RTE.tsv"
    first, second = RTE.labels
    assert [line.split("\t")[1] for line in path.read_text().splitlines()[1:]] == [first, second, second]


@pytest.mark.parametrize("content", ["{", "[]", "7", '{"test": 3}', '{"test": {"a": 1}}'])
def test_damaged_predictions(tmp_path, rows, content):
    (tmp_path / rows[0]["predictions"]).write_text(content)
    with pytest.raises(OutputError, match="a.json' is damaged"):
        write_submissions(tmp_path, "model", RTE, rows, "accuracy")


def test_missing_predictions(tmp_path, rows):
    (tmp_path / rows[0]["predictions"]).unlink()
    with pytest.raises(OutputError, match="a.json' is missing"):
        write_submissions(tmp_path, "model", RTE, rows, "accuracy")
