"""Ctrl-C and SIGTERM, as machines that are taken back send it: a checkpoint after the step, and a code for each."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from limbeck import distill
from limbeck.errors import Preempted
from limbeck.training import run as run_module
from limbeck.training import stage
from limbeck.training.signals import InterruptSaver, Terminated, terminable
from tests.support.training import assert_ends_like, at_step, elsewhere, log_of, record_of, send, stage_folder


@pytest.fixture
def recipe(recipe):
    """Checkpoints and evaluations are those of the signals alone."""
    recipe["stages"][0]["training"] |= {"save_steps": 1000, "eval_steps": 1000}
    return recipe


def test_outside_of_training_it_stops_at_once(recipe, monkeypatch):
    def build(*arguments):
        send(signal.SIGTERM)()
        time.sleep(10)

    monkeypatch.setattr(run_module, "build_corpora", build)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted, match="resume"):
        distill(recipe)
    assert signal.getsignal(signal.SIGTERM) is before
    assert record_of(recipe)["status"] == "interrupted"
    monkeypatch.undo()
    assert distill(recipe, resume=True).record["status"] == "finished"


def losses(recipe):
    return [(entry["step"], entry.get("loss"), entry.get("eval_loss")) for entry in log_of(recipe)]


@pytest.mark.parametrize(
    ("signals", "code", "strategy"),
    [
        ((signal.SIGINT,), 1, "steps"),
        ((signal.SIGTERM, signal.SIGTERM), 75, "epoch"),  # Launchers and schedulers send one each.
        ((signal.SIGINT, signal.SIGINT), 1, "steps"),
    ],
)
def test_a_stop_saves_what_a_run_without_it_would_have_come_to(
    recipe, tmp_path, limbeck, monkeypatch, signals, code, strategy
):
    recipe["stages"][0]["training"] |= {"save_strategy": strategy, "eval_strategy": strategy}
    straight = elsewhere(recipe, tmp_path / "straight")
    distill(straight)
    before = signal.getsignal(signal.SIGINT)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    with (tmp_path / "stderr").open("wb") as standard_error, at_step(3, send(*signals)):
        monkeypatch.setattr("limbeck.training.signals._STANDARD_ERROR", standard_error.fileno())
        done = limbeck("distill", path)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == code and line.startswith("error: ") and "--resume" in line
    assert signal.getsignal(signal.SIGINT) is before
    # The first signal is answered at once, so that nobody presses Ctrl-C again without knowing the price.
    answer = (tmp_path / "stderr").read_text()
    assert answer.count("topping after this step.") == 1
    assert ("A second Ctrl-C stops at once" in answer) is (signals[0] == signal.SIGINT)
    assert ("SIGTERM came" in answer) is (signals[0] == signal.SIGTERM)
    assert record_of(recipe)["status"] == "interrupted"
    saved = [path.name for path in Path(recipe["output"]).rglob("checkpoint-*")]
    at_once = signals == (signal.SIGINT, signal.SIGINT)
    assert ("checkpoint-4" in saved) is ("Stopped at step 4 " in line) is not at_once, "a second Ctrl-C does not wait"
    assert_ends_like(recipe, straight)
    assert losses(straight) == losses(recipe)


@pytest.mark.parametrize("strategy", ["no", "steps"])
def test_a_stage_that_has_taken_its_last_step_is_finished_first(recipe, tmp_path, monkeypatch, strategy):
    recipe["stages"][0]["training"] |= {"save_strategy": strategy, "max_steps": 2}
    recipe["stages"].append({**recipe["stages"][0], "name": "second"})
    straight = elsewhere(recipe, tmp_path / "straight")
    expected = distill(straight).record["stages"][0]
    original = stage.DistillationTrainer.evaluate

    def evaluate(self, *arguments, **options):
        if self.state.global_step == self.state.max_steps:
            send(signal.SIGTERM)()
        return original(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "evaluate", evaluate)
        with pytest.raises(Preempted, match="after stage 'minilmv2', which is finished.*resume"):
            distill(recipe)
    found = json.loads((stage_folder(recipe) / "stage.json").read_text())
    assert (found["held_out"], found["weights"]) == (expected["held_out"], expected["weights"])
    resumed = assert_ends_like(recipe, straight)
    assert [one["name"] for one in resumed.record["stages"]] == ["minilmv2", "second"]


def test_a_worker_of_the_data_loader_that_dies_of_the_signal_hides_nothing(recipe, monkeypatch):
    def fail(self, **options):
        saver = next(c for c in self.callback_handler.callbacks if isinstance(c, InterruptSaver))
        saver._handle(signal.SIGTERM, None)
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")

    monkeypatch.setattr(stage.DistillationTrainer, "train", fail)
    with pytest.raises(Preempted, match="before its first checkpoint"):
        distill(recipe)


def test_ordinary_handlers_do_not_catch_it():
    with pytest.raises(Terminated), terminable():
        try:
            send(signal.SIGTERM)()
            time.sleep(5)
        except Exception:
            pytest.fail("swallowed")


class Finalised:
    """Is sent a signal while Python takes it away, and drops what that raises."""

    def __init__(self, number):
        self._number = number

    def __del__(self):
        send(self._number)()
        time.sleep(0)


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_it_is_not_lost_in_a_finaliser(number, kind):
    hook = sys.unraisablehook
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background ignores it.
    try:
        with pytest.raises(kind), terminable():
            Finalised(number)
            Finalised(number)
            reached = True
            time.sleep(5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached and sys.unraisablehook is hook


def test_other_errors_of_finalisers_are_told_as_before(monkeypatch):
    class Broken:
        def __del__(self):
            raise ValueError("broken")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with terminable():
        Broken()
    assert len(told) == 1
