"""Ctrl-C and SIGTERM while a stage is measured: it is left after a batch, and the run that goes on measures again."""

import json
import signal
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from limbeck import distill
from limbeck.errors import Interrupted, Preempted
from limbeck.evaluation.evaluators import head_outputs
from limbeck.training.callbacks import ProgressReporter
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.training import assert_ends_like, elsewhere, log_of, send, stage_folder, without_clocks

SCORES = "scores on development rows"
LOSS = "held-out loss"
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "save_steps": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The recipe, whose teacher and rows all tests share: four steps an epoch, seven in all."""
    recipe = mrpc_recipe(tmp_path_factory.mktemp("mrpc"))
    recipe["stages"][0]["training"] |= {"per_device_eval_batch_size": 4, "save_steps": 100}
    return recipe


@pytest.fixture
def signals_at(monkeypatch):
    """Measurements have three batches; a signal comes in the first one of a measurement at a step, or later."""
    monkeypatch.setattr(head_outputs, "EVALUATION_BATCH", 4)
    original = ProgressReporter.activity

    @contextmanager
    def measuring(what, step, number):
        """Yield the batches that were measured since the signal."""
        batches = []

        @contextmanager
        def activity(self, title):
            with original(self, title) as tick:

                def signal_and_tick(*amount):
                    if batches:
                        batches.append(title)
                    elif title == what and self._step >= step:
                        batches.append(title)
                        send(number)()
                    tick(*amount)

                yield signal_and_tick

        with monkeypatch.context() as patch:
            patch.setattr(ProgressReporter, "activity", activity)
            yield batches

    return measuring


def stop(recipe, batches_since, error):
    with pytest.raises(error, match=r"; the state is saved.*resume=True.*limbeck\.finish"):
        distill(recipe)
    assert 1 <= len(batches_since) <= 2


def assert_goes_on_like(recipe, straight):
    """Weights, log, held-out loss and best step are those of a run that was never stopped."""
    assert_ends_like(recipe, straight)
    assert without_clocks(log_of(recipe)) == without_clocks(log_of(straight))
    stages = [json.loads((stage_folder(each) / "stage.json").read_text()) for each in (recipe, straight)]
    for name in ("held_out", "best", "steps"):
        assert stages[0].get(name) == stages[1].get(name)


@pytest.mark.parametrize(
    ("what", "step", "training"),
    [
        (SCORES, 3, {}),
        (SCORES, 4, {"eval_strategy": "epoch", "save_strategy": "epoch"}),
        (SCORES, 7, BEST),
        (LOSS, 3, BEST),
        (LOSS, 7, {}),
        (LOSS, 7, {"save_strategy": "no", "eval_strategy": "no"}),
    ],
)
def test_a_stop_leaves_the_measurement_which_is_made_again(made, tmp_path, signals_at, what, step, training):
    straight = elsewhere(made, tmp_path / "straight")
    straight["stages"][0]["training"] |= training
    distill(straight)
    recipe = elsewhere(straight, tmp_path / "stopped")
    with signals_at(what, step, signal.SIGTERM) as batches:
        stop(recipe, batches, Preempted)
    assert (stage_folder(recipe) / f"checkpoint-{step}").is_dir()
    assert_goes_on_like(recipe, straight)


def test_early_stopping_counts_the_measurement_that_is_made_again(made, tmp_path, signals_at):
    straight = elsewhere(made, tmp_path / "straight")
    straight["stages"][0]["training"] |= BEST | {"save_steps": 1, "eval_steps": 1, "early_stopping_patience": 1}
    distill(straight)
    steps = json.loads((stage_folder(straight) / "log.jsonl").read_text().splitlines()[-1])["step"]
    assert steps < 7, "it stops early"
    recipe = elsewhere(straight, tmp_path / "stopped")
    with signals_at(LOSS, steps, signal.SIGINT) as batches:
        stop(recipe, batches, Interrupted)
    assert_goes_on_like(recipe, straight)


def test_a_schedule_that_needs_the_loss_is_measured_to_the_end_which_is_said(made, tmp_path, signals_at):
    recipe = elsewhere(made, tmp_path / "run")
    recipe["stages"][0]["training"] |= {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss"}
    console = Console(file=StringIO(), width=200)
    with signals_at(LOSS, 3, signal.SIGINT) as batches, pytest.raises(Interrupted, match="at step 4"):
        distill(recipe, console=console)
    assert batches.count(LOSS) == 3
    assert console.file.getvalue().count("stopping after this measurement: held-out loss") == 1
    assert (Path(stage_folder(recipe)) / "checkpoint-4").is_dir()
