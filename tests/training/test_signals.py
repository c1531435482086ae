"""SIGTERM, as machines that are taken back send it: a checkpoint after the step, and an exit code of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from transformers import TrainerCallback

import limbeck
from limbeck.core.files import read_json
from limbeck.errors import Interrupted, Preempted
from limbeck.training import run as run_module
from limbeck.training import stage
from limbeck.training.interrupt import InterruptSaver, Terminated, terminable
from tests.support.training import assert_equal, elsewhere, log_of, record_of, stage_folder, student_of

COMMAND = [sys.executable, "-c", "from limbeck.cli.main import run; run()"]


@pytest.fixture
def recipe(recipe):
    """Checkpoints and evaluations are those of the signals alone."""
    recipe["stages"][0]["training"] |= {"save_steps": 1000, "eval_steps": 1000}
    return recipe


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_command_ends_with_75_and_goes_on_to_the_same_weights(recipe, tmp_path):
    recipe["stages"][0]["training"] |= {"max_steps": 30, "per_device_train_batch_size": 16}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    process = subprocess.Popen(
        [*COMMAND, "distill", str(path)], stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    heartbeat = Path(recipe["output"]) / "heartbeat.json"
    wait_for(lambda: read_json(heartbeat).get("activity") == "training", process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # Launchers and schedulers send one each.
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 75, printed
    line = printed.strip().splitlines()[-1]
    assert line.startswith("error: Stopped at step ") and "--resume" in line and "Traceback" not in printed
    (checkpoint,) = Path(recipe["output"]).rglob("checkpoint-*")
    stopped_at = int(checkpoint.name.split("-")[1])
    assert 1 <= stopped_at < 30 and f"step {stopped_at} " in line
    assert record_of(recipe)["status"] == "interrupted"
    straight = elsewhere(recipe, tmp_path / "straight")
    limbeck.distill(straight)
    limbeck.distill(recipe, resume=True)
    assert_equal(student_of(recipe), student_of(straight))


def test_outside_of_training_it_stops_at_once(recipe, monkeypatch):
    def build(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(run_module, "build_corpora", build)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted, match="--resume") as caught:
        limbeck.distill(recipe)
    assert caught.value.exit_code == 75
    assert signal.getsignal(signal.SIGTERM) is before
    assert record_of(recipe)["status"] == "interrupted"
    monkeypatch.undo()
    assert limbeck.distill(recipe, resume=True).record["status"] == "finished"


class BeforeStep(TrainerCallback):
    def __init__(self, step, *signals):
        self.step, self.signals = step, signals

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            for number in self.signals:
                os.kill(os.getpid(), number)


def losses(recipe):
    return [(entry["step"], entry.get("loss"), entry.get("eval_loss")) for entry in log_of(recipe)]


@pytest.mark.parametrize(
    ("signals", "error", "strategy"),
    [
        ((signal.SIGINT,), Interrupted, "steps"),
        ((signal.SIGTERM, signal.SIGTERM), Preempted, "epoch"),
        ((signal.SIGINT, signal.SIGINT), Interrupted, "steps"),
    ],
)
def test_a_stop_saves_what_a_run_without_it_would_have_come_to(recipe, tmp_path, monkeypatch, signals, error, strategy):
    recipe["stages"][0]["training"] |= {"save_strategy": strategy, "eval_strategy": strategy}
    straight = elsewhere(recipe, tmp_path / "straight")
    limbeck.distill(straight)
    before = signal.getsignal(signal.SIGINT)
    original = stage.DistillationTrainer.__init__

    def initialise(self, model, **arguments):
        original(self, model, **arguments)
        self.add_callback(BeforeStep(4, *signals))

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "__init__", initialise)
        with pytest.raises(Interrupted, match="--resume") as caught:
            limbeck.distill(recipe)
    assert type(caught.value) is error
    assert signal.getsignal(signal.SIGINT) is before
    assert record_of(recipe)["status"] == "interrupted"
    saved = [path.name for path in Path(recipe["output"]).rglob("checkpoint-*")]
    assert ("checkpoint-4" in saved) is (signals != (signal.SIGINT, signal.SIGINT)), "a second Ctrl-C does not wait"
    limbeck.distill(recipe, resume=True)
    assert_equal(student_of(recipe), student_of(straight))
    assert losses(straight) == losses(recipe)


@pytest.mark.parametrize("strategy", ["no", "steps"])
def test_a_stage_that_has_taken_its_last_step_is_finished_first(recipe, tmp_path, monkeypatch, strategy):
    recipe["stages"][0]["training"] |= {"save_strategy": strategy, "max_steps": 2}
    recipe["stages"].append({**recipe["stages"][0], "name": "second"})
    straight = elsewhere(recipe, tmp_path / "straight")
    expected = limbeck.distill(straight).record["stages"][0]
    original = stage.DistillationTrainer.evaluate

    def evaluate(self, *arguments, **options):
        if self.state.global_step == self.state.max_steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "evaluate", evaluate)
        with pytest.raises(Preempted, match="after stage 'minilmv2', which is finished.*--resume"):
            limbeck.distill(recipe)
    found = json.loads((stage_folder(recipe) / "stage.json").read_text())
    assert (found["held_out"], found["weights"]) == (expected["held_out"], expected["weights"])
    resumed = limbeck.distill(recipe, resume=True)
    assert [one["name"] for one in resumed.record["stages"]] == ["minilmv2", "second"]
    assert_equal(student_of(recipe), student_of(straight))


def test_a_worker_of_the_data_loader_that_dies_of_the_signal_hides_nothing(recipe, monkeypatch):
    def fail(self, **options):
        saver = next(c for c in self.callback_handler.callbacks if isinstance(c, InterruptSaver))
        saver._handle(signal.SIGTERM, None)
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")

    monkeypatch.setattr(stage.DistillationTrainer, "train", fail)
    with pytest.raises(Preempted, match="the state of its last checkpoint is kept"):
        limbeck.distill(recipe)


def test_ordinary_handlers_do_not_catch_it():
    with pytest.raises(Terminated), terminable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except Exception:
            pytest.fail("swallowed")
