"""Runs that are ended early: the student of the newest checkpoint, told apart from that of a whole run."""

import io
import json
import shutil
import signal
from pathlib import Path

import pytest
from rich.console import Console
from transformers import TrainerCallback

import limbeck
from limbeck import distill
from limbeck.core.folder_lock import folder_lock
from limbeck.core.run_status import status_of
from limbeck.errors import Interrupted, OutputError
from limbeck.report.collect import collect
from limbeck.report.run_warnings import warnings_of
from limbeck.training import distil as distil_file
from limbeck.training import run as run_file
from limbeck.training.trainer import PROGRESS
from tests.support.training import assert_equal, at_step, die, elsewhere, reseal, send, student_of
from tests.training.conftest import make_recipe


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    """A constant rate, so that the first steps do not depend on how many there are.

    The folder's name has a space, so that commands in messages have it in quotes.
    """
    constant = {"lr_scheduler_type": "constant", "warmup_steps": 0, "save_steps": 1, "eval_steps": 1000}
    return make_recipe(bert_folder, text_folder, tmp_path / "my run", **constant)


def stop_at(recipe, step):
    """Stop a run by Ctrl-C before a step of its first stage, which it still takes, and return its folder."""
    with at_step(step - 1, send(signal.SIGINT)), pytest.raises(Interrupted, match=r"limbeck\.finish"):
        distill(recipe)
    return Path(recipe["output"])


def test_the_student_is_that_of_a_run_with_so_many_steps(recipe, tmp_path):
    folder = stop_at(recipe, 2)
    result = limbeck.finish(folder)
    short = elsewhere(recipe, tmp_path / "short")
    short["stages"][0]["training"]["max_steps"] = 2
    distill(short)
    assert_equal(student_of(recipe), student_of(short))

    assert (result.run.status, result.run.stages[0].steps) == ("finished", 2)
    early_end = result.run.ended_early
    assert (early_end.step, early_end.planned_steps, early_end.skipped) == (2, 6, [])
    sentence = f"The run was ended early, at step 2 of stage '{early_end.stage}', which was to take 6"
    assert str(early_end) == sentence
    assert f"{sentence}." in list(warnings_of(collect([folder])[0]))
    assert "**Ended early.**" in (result.student / "README.md").read_text()
    assert "ended_early" not in json.loads((Path(short["output"]) / "run.json").read_text())
    # The run is at its end, and is not trained on.
    assert distill(recipe, resume=True).run.ended_early == early_end


def test_every_command_says_that_the_run_was_ended_early(recipe, limbeck):
    folder = stop_at(recipe, 2)
    stopped = limbeck("status", folder).stdout
    assert (
        "status: interrupted\n" in stopped and "\nStopped at step 2 of stage 'minilmv2'; the state is saved." in stopped
    )
    assert f"limbeck distill --resume --output '{folder}'; or" in stopped
    assert f"with: limbeck finish '{folder}'" in stopped
    assert "problem" not in stopped

    line = (
        "The run was ended early, at step 2 of stage 'minilmv2', which was to take 6. It cannot be continued. To train "
        f"its student further, start a run in another folder with --student '{folder}/student'"
    )
    assert line in limbeck("finish", folder).stdout.splitlines()
    resumed = limbeck("distill", "--resume", "--output", folder)
    assert line in resumed.stdout.splitlines()
    before_the_table = "which was to take 6. It cannot be continued; this is its result:"
    assert before_the_table in resumed.stderr
    more_steps = limbeck("distill", "--resume", "--output", folder, "--steps", 9)
    assert (more_steps.returncode, more_steps.stderr.splitlines()[-1]) == (2, f"error: {line}.")
    assert "status: finished, ended early at step 2 of 6 of stage 'minilmv2'\n" in limbeck("status", folder).stdout
    assert limbeck.json("status", folder)[0]["status"] == "finished"


def test_the_time_is_that_of_the_steps_whichever_process_took_them(recipe):
    """The process that finishes or resumes a run adds its own steps to the time of the checkpoint, and nothing else."""
    folder = stop_at(recipe, 2)
    recorded = 100.0
    (checkpoint,) = folder.glob("stages/*/checkpoint-2")
    change_progress(checkpoint, seconds=recorded)
    resumed = Path(shutil.copytree(folder, folder.with_name("resumed")))
    stage = limbeck.finish(folder).run.stages[0]
    assert stage.seconds == recorded
    assert stage.tokens_per_second == round(stage.tokens / recorded, 1) > 0

    stage = distill({**recipe, "output": str(resumed)}, resume=True).run.stages[0]
    assert (stage.steps, recorded < stage.seconds < recorded + 600) == (6, True)
    assert stage.tokens_per_second == pytest.approx(stage.tokens / stage.seconds, abs=0.1)


def change_progress(checkpoint, **values):
    """Change values that a checkpoint keeps beside its weights, and seal it again."""
    progress = json.loads((checkpoint / PROGRESS).read_text())
    (checkpoint / PROGRESS).write_text(json.dumps(progress | values))
    reseal(checkpoint)


def test_later_stages_are_skipped_and_named(bert_folder, text_folder, tmp_path):
    methods = [{"name": "hidden_states"}, {"name": "minilmv2"}]
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", *methods, save_steps=1, eval_steps=1000)
    folder = stop_at(recipe, 3)
    result = limbeck.finish(folder)
    first, second = (stage.get("name", stage["method"]["name"]) for stage in recipe["stages"])
    assert (result.run.ended_early.stage, result.run.ended_early.skipped) == (first, [second])
    assert [stage.name for stage in result.run.stages] == [first]
    warnings = list(warnings_of(collect([folder])[0]))
    assert any(f"stage '{second}' skipped" in line for line in warnings)
    assert status_of(folder).shown == f"finished, ended early at step 3 of 6 of stage '{first}'"
    assert not any(line.startswith("Not finished") for line in warnings)


@pytest.mark.parametrize("killed_at", ["record", "evaluation"])
@pytest.mark.parametrize("command", ["finish", "resume"])
def test_a_finish_that_was_killed_goes_on_and_skipped_stages_stay_untrained(
    bert_folder, text_folder, tmp_path, monkeypatch, killed_at, command
):
    """Neither another finish nor a resumed run trains what the first finish has skipped."""
    methods = [{"name": "hidden_states"}, {"name": "minilmv2"}]
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", *methods, save_steps=1, eval_steps=1000)
    recipe["evaluation"] = {"enabled": True, "pairs": 10, "retrieval_pairs": 10}
    folder = stop_at(recipe, 3)
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    limbeck.finish(whole)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        if killed_at == "evaluation":
            patch.setattr(distil_file, "evaluate_student", die)
        else:
            # The stage is ended on the disk, and the run's record does not say so yet.
            patch.setattr(run_file, "_without_lists", die)
        limbeck.finish(folder)
    assert json.loads((folder / "run.json").read_text())["status"] != "finished"

    console = Console(file=io.StringIO(), width=200)
    result = limbeck.finish(folder) if command == "finish" else distill(recipe, resume=True, console=console)
    assert ("ended now, and not trained on" in console.file.getvalue()) == (command == "resume")
    first, second = (stage.get("name", stage["method"]["name"]) for stage in recipe["stages"])
    early_end = result.run.ended_early
    assert (early_end.stage, early_end.step, early_end.skipped) == (first, 3, [second])
    assert (result.run.status, [stage.name for stage in result.run.stages]) == ("finished", [first])
    assert_equal(student_of(recipe), student_of({"output": str(whole)}))


def test_a_stage_that_a_callback_stopped_is_followed_by_the_next(bert_folder, text_folder, tmp_path, monkeypatch):
    """Such a run is whole: its record has the steps that the stage was to take, but nobody has ended it."""

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 2

    methods = [{"name": "hidden_states"}, {"name": "minilmv2"}]
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", *methods)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(run_file, "_without_lists", die)
        distill(recipe, callbacks=[Stop])
    result = distill(recipe, resume=True, callbacks=[Stop])
    assert [(stage.steps, stage.ended_early) for stage in result.run.stages] == [(2, None), (2, None)]


def test_a_finished_run_is_returned_as_it_is(recipe, limbeck):
    distill(recipe)
    before = (Path(recipe["output"]) / "run.json").read_bytes()
    assert "finished already" in limbeck("finish", recipe["output"]).stderr
    assert (Path(recipe["output"]) / "run.json").read_bytes() == before


def test_what_cannot_be_finished_is_refused_in_a_line(recipe, tmp_path):
    with pytest.raises(OutputError, match="holds no run"):
        limbeck.finish(tmp_path)
    folder = Path(recipe["output"])
    stop_at(recipe, 2)
    with folder_lock(folder), pytest.raises(OutputError, match="still going on"):
        limbeck.finish(folder)
    checkpoints = list(folder.glob("stages/*/checkpoint-*"))
    for checkpoint in checkpoints:
        (checkpoint / "model.safetensors").write_bytes(b"")
    with pytest.raises(OutputError, match="No checkpoint of stage .* is complete"):
        limbeck.finish(folder)
    for checkpoint in checkpoints:
        shutil.rmtree(checkpoint)
    with pytest.raises(OutputError, match=r"has no checkpoint yet.*resume=True"):
        limbeck.finish(folder)


def test_a_run_that_was_stopped_in_the_stage_of_an_assistant_has_no_student_to_keep(recipe):
    [stage] = recipe["stages"]
    assistant = {**stage, "name": "assistant", "student": {"shape": "2x24h4"}}
    recipe["stages"] = [assistant, {**stage, "name": "own", "teacher": {"stage": "assistant"}}]
    with at_step(1, send(signal.SIGINT)), pytest.raises(Interrupted, match="resume=True") as stopped:
        distill(recipe)
    assert "finish" not in str(stopped.value)
    with pytest.raises(OutputError, match="has trained its student yet"):
        limbeck.finish(recipe["output"])


def test_all_checkpoints_stay_where_the_recipe_keeps_all(recipe):
    recipe["stages"][0]["training"] |= {"save_total_limit": None, "save_steps": 2}
    distill(recipe)
    names = sorted(folder.name for folder in Path(recipe["output"]).glob("stages/*/checkpoint-*"))
    assert names == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
