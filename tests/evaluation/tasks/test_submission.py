"""The files of leaderboards."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from limbeck.evaluation.results.submissions import write_submission
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.task import AnswerPrediction

FILES = yaml.safe_load(Path(__file__).with_name("submissions.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "split", "predictions", "options", "file", "lines"), FILES)
def test_files_of_leaderboards(tmp_path, name, split, predictions, options, file, lines):
    if isinstance(predictions, dict):
        predictions = {key: AnswerPrediction(*answer) for key, answer in predictions.items()}
    path = write_submission(TASKS[name], split, predictions, tmp_path / "new", **options)
    assert path == tmp_path / "new" / file
    assert path.read_text(encoding="utf-8").splitlines() == lines
    assert path.read_bytes().endswith(b"\n") != isinstance(predictions, dict)


def test_values_of_other_tasks_are_not_held_to_a_scale(tmp_path):
    own = replace(TASKS["stsb"], name="prices", submissions={})
    assert write_submission(own, "test", [7.25], tmp_path).read_text() == "index\tprediction\n0\t7.250\n"
