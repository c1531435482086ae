"""Students of checkpoints: exported, and scored by step."""

import json
import signal
from pathlib import Path

import pytest

import limbeck
from limbeck import distill
from limbeck.core.folder_lock import folder_lock
from limbeck.errors import Interrupted, OutputError
from limbeck.models.loading import load_model
from tests.support.training import assert_equal, at_step, elsewhere, send, student_of
from tests.training.conftest import make_recipe

KEPT = {"lr_scheduler_type": "constant", "warmup_steps": 0, "save_steps": 2, "save_total_limit": None, "eval_steps": 99}


@pytest.fixture(scope="module")
def finished(bert_folder, text_folder, tmp_path_factory):
    """The recipe of a finished run that kept its checkpoints of steps 2, 4 and 6."""
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("kept") / "run", **KEPT)
    distill(recipe)
    return recipe


def files_in(folder):
    """Return the bytes of every file of a run, but for evaluations and exports in it."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def weights_of(folder):
    return load_model(str(folder)).state_dict()


@pytest.mark.parametrize("step", [2, 6])
def test_an_export_of_a_checkpoint_is_the_student_of_that_step(finished, tmp_path, step):
    before = files_in(Path(finished["output"]))
    name = f"{finished['output']}/checkpoint-{step}"
    result = limbeck.export(name, "safetensors", dtype="float32", output=tmp_path / "out")
    short = elsewhere(finished, tmp_path / "short")
    short["stages"][0]["training"]["max_steps"] = step
    distill(short)
    assert_equal(weights_of(result.folder), weights_of(tmp_path / "short" / "student"))
    assert files_in(Path(finished["output"])) == before

    assert result.export.source == f"run-checkpoint-{step}/student"
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("**A checkpoint.** This student is that of a checkpoint, at step 2 of" in card) == (step < 6)


def test_the_scores_of_a_run_by_step(finished, tmp_path, monkeypatch):
    rows = [{"a": f"old river {number}", "b": "new stone bridge", "label": number} for number in range(6)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "name": "pairs",
        "type": "similarity",
        "columns": {"text": "a", "pair": "b"},
        "files": {"test": "pairs.jsonl"},
    }
    (tmp_path / "pairs.yaml").write_text(json.dumps(task))
    asked = {"checkpoints": finished["output"], "output": tmp_path / "out", "as_is": True}
    asked |= {"overrides": ["pooling=mean"]}
    # A run that a process holds is only read.
    with folder_lock(Path(finished["output"])):
        result = limbeck.evaluate([], str(tmp_path / "pairs.yaml"), **asked)
    assert [model["title"] for model in result.summary["models"]] == ["step 2", "step 4", "step 6"]
    students = [Path(model["name"]) for model in result.summary["models"]]
    assert_equal(weights_of(students[-1]), weights_of(Path(finished["output"]) / "student"))
    # The same call makes no student again.
    times = [student.stat().st_mtime_ns for student in students]
    limbeck.evaluate([], str(tmp_path / "pairs.yaml"), **asked)
    assert [student.stat().st_mtime_ns for student in students] == times


def test_checkpoints_of_later_stages_and_of_a_stopped_run(bert_folder, text_folder, tmp_path):
    methods = [{"name": "hidden_states"}, {"name": "minilmv2"}]
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", *methods, **KEPT)
    distill(recipe)
    with pytest.raises(OutputError, match="may mean a checkpoint of several stages; give .*checkpoint-2 or "):
        limbeck.export(f"{recipe['output']}/checkpoint-2", "safetensors", output=tmp_path / "out")
    (last,) = Path(recipe["output"]).glob("stages/2-*/checkpoint-6")
    result = limbeck.export(last, "safetensors", dtype="float32", output=tmp_path / "out")
    assert_equal(weights_of(result.folder), weights_of(Path(recipe["output"]) / "student"))

    stopped = elsewhere(recipe, tmp_path / "stopped")
    with at_step(2, send(signal.SIGINT)), pytest.raises(Interrupted):
        distill(stopped)
    (first,) = Path(stopped["output"]).glob("stages/1-*/checkpoint-2")
    result = limbeck.export(first, "safetensors", dtype="float32")
    assert result.folder == Path(stopped["output"]) / "checkpoint-2-safetensors"
    assert "skipped" in (Path(result.folder) / "README.md").read_text()
    # The run itself can still be continued.
    distill(stopped, resume=True)
    assert_equal(student_of(stopped), student_of(recipe))


def test_what_has_no_checkpoint_is_refused_in_a_line(finished, whole, tmp_path):
    with pytest.raises(OutputError, match="holds no run"):
        limbeck.evaluate([], "mrpc", checkpoints=tmp_path, output=tmp_path / "out")
    with pytest.raises(OutputError, match="save_total_limit: null"):
        limbeck.evaluate([], "mrpc", checkpoints=whole["output"], output=tmp_path / "out")
    with pytest.raises(OutputError, match="has no checkpoint"):
        limbeck.export(f"{finished['output']}/checkpoint-3", "safetensors", output=tmp_path / "out")
    with pytest.raises(limbeck.LimbeckError, match="at least one model"):
        limbeck.evaluate([], "mrpc", output=tmp_path / "out")
