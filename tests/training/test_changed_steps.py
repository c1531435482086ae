"""Runs that go on with more steps, or with fewer, than they began with."""

import signal
from pathlib import Path

import pytest
from rich.console import Console

from limbeck import distill, report
from limbeck.errors import Interrupted, OutputError
from limbeck.report.collect import collect
from limbeck.report.run_warnings import warnings_of
from limbeck.training.trainer import DistillationTrainer
from tests.support.training import assert_equal, at_step, die, elsewhere, send, student_of
from tests.training.conftest import make_recipe


@pytest.fixture
def make(bert_folder, text_folder, tmp_path):
    """Make a recipe with a schedule of the learning rate."""

    def made(schedule, **training):
        arguments = {"lr_scheduler_type": schedule, "warmup_steps": 0, "save_steps": 1, "eval_steps": 1000}
        return make_recipe(bert_folder, text_folder, tmp_path / "run", **(arguments | training))

    return made


def stop_at(recipe, step):
    """Stop a run by Ctrl-C after a step, and return its folder."""
    with at_step(step - 1, send(signal.SIGINT)), pytest.raises(Interrupted):
        distill(recipe)
    return Path(recipe["output"])


def with_steps(recipe, steps, output=None):
    """A copy of a recipe with another number of steps."""
    changed = elsewhere(recipe, output or recipe["output"])
    changed["stages"][0]["training"]["max_steps"] = steps
    return changed


@pytest.mark.parametrize("steps", [4, 8])
def test_under_a_constant_rate_it_ends_like_a_run_with_so_many_steps(make, tmp_path, steps):
    recipe = make("constant")
    stop_at(recipe, 3)
    changed = with_steps(recipe, steps)
    run = distill(changed, resume=True).run
    whole = with_steps(recipe, steps, tmp_path / "whole")
    distill(whole)
    assert_equal(student_of(changed), student_of(whole))
    (change,) = run.steps_changes
    assert (change.step, change.before, change.after, change.as_from_start) == (3, 6, steps, True)
    assert run.ended_early is None


def test_under_another_schedule_terminal_record_report_and_card_say_so(make, capsys, tmp_path):
    recipe = make("linear")
    folder = stop_at(recipe, 3)
    # The options alone, over the recipe of the folder; twice, which is noted once.
    with at_step(4, send(signal.SIGINT)), pytest.raises(Interrupted):
        distill(output=folder, resume=True, steps=8, console=Console(width=500))
    sentence = (
        "Stage 'minilmv2' was extended at step 3 from 6 to 8 steps; a run of 8 steps from its start would give "
        "another student, since the schedule 'linear' follows the number of steps."
    )
    assert sentence in capsys.readouterr().out
    result = distill(output=folder, resume=True, console=Console(width=500))
    assert sentence not in capsys.readouterr().out, "a change is told once"
    (change,) = result.run.steps_changes
    assert (change.schedule, change.as_from_start, result.run.stages[0].steps) == ("linear", False, 8)
    assert f"{change}." == sentence
    assert sentence in list(warnings_of(collect([folder])[0]))
    assert "**Extended.**" in (result.student / "README.md").read_text()
    page = tmp_path / "page.html"
    report(folder, output=page)
    assert "whose student is another one: this run has changed its steps." in page.read_text()


def test_down_to_the_step_reached_trains_nothing_and_below_it_is_refused(make, monkeypatch):
    recipe = make("linear")
    folder = stop_at(recipe, 3)
    with pytest.raises(OutputError, match=r"has already reached step 3, so max_steps cannot become 2; give 3 or more"):
        distill(with_steps(recipe, 2), resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(DistillationTrainer, "train", die)
        run = distill(with_steps(recipe, 3), resume=True).run
    assert (run.stages[0].steps, run.stages[0].planned_steps) == (3, None)
    assert "shortened at step 3 from 6 to 3" in str(run.steps_changes[0])
    # A finished run keeps its steps, and its student can be trained further in another run.
    with pytest.raises(
        OutputError,
        match=r"max_steps = 3, but this recipe has 9\. The run is finished\. .*in another folder with student",
    ):
        distill(with_steps(recipe, 9), resume=True)
    assert distill(output=folder, resume=True).run.stages[0].steps == 3


@pytest.mark.parametrize(
    ("share", "is_as_from_start"), [(0.5, False), (0.1, True)], ids=["3 steps, then 4", "1 step, then 1"]
)
def test_a_warm_up_that_is_a_share_has_as_many_steps_as_from_the_start_or_is_another(make, share, is_as_from_start):
    recipe = make("constant_with_warmup", warmup_steps=share)
    # The warm-up of either number of steps is over by then.
    stop_at(recipe, 4)
    run = distill(with_steps(recipe, 7), resume=True).run
    assert run.steps_changes[0].as_from_start == is_as_from_start


def test_what_changes_the_past_is_refused_with_what_may_change(make):
    recipe = make("constant")
    stop_at(recipe, 2)
    changed = elsewhere(recipe, recipe["output"])
    changed["stages"][0]["training"] |= {"logging_steps": 5, "eval_steps": 3, "per_device_eval_batch_size": 3}
    changed["evaluation"] = {"enabled": False}
    with at_step(3, send(signal.SIGINT)), pytest.raises(Interrupted):
        distill(changed, resume=True)
    changed["stages"][0]["training"]["learning_rate"] = 1e-5
    with pytest.raises(OutputError, match="learning_rate = .* A resumed run may change evaluation, guard"):
        distill(changed, resume=True)
