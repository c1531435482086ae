"""SIGTERM, as machines that are taken back send it: a checkpoint after the step, and an exit code of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import TrainerCallback

import limbeck
from limbeck.errors import Interrupted, Preempted
from limbeck.training import run as run_module
from limbeck.training import stage
from limbeck.training.interrupt import InterruptSaver, Terminated, terminable

COMMAND = [sys.executable, "-c", "from limbeck.cli.main import run; run()"]


@pytest.fixture
def recipe(tiny_recipe):
    tiny_recipe["student"]["dropout"] = 0.1
    tiny_recipe["stages"][0]["training"] |= {"save_steps": 1000, "eval_steps": 1000}
    return tiny_recipe


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def heartbeat_of(recipe):
    try:
        return json.loads((Path(recipe["output"]) / "heartbeat.json").read_text())
    except (OSError, ValueError):
        return {}


def test_the_command_ends_with_75_and_goes_on_to_the_same_weights(recipe, tmp_path):
    recipe["stages"][0]["training"] |= {"max_steps": 30, "num_train_epochs": 99}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    process = subprocess.Popen(
        [*COMMAND, "distill", str(path)], stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    wait_for(lambda: heartbeat_of(recipe).get("activity") == "training", process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # Launchers and schedulers send one each.
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 75, printed
    line = printed.strip().splitlines()[-1]
    assert line.startswith("error: Stopped at step ") and "--resume" in line and "Traceback" not in printed
    checkpoints = list(Path(recipe["output"]).rglob("checkpoint-*"))
    assert len(checkpoints) == 1
    stopped_at = int(checkpoints[0].name.split("-")[1])
    assert 1 <= stopped_at < 30 and f"step {stopped_at} " in line
    record = json.loads((Path(recipe["output"]) / "run.json").read_text())
    assert record["status"] == "interrupted"
    whole = {**recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)
    limbeck.distill(recipe, resume=True)
    ends = [load_file(f"{one['output']}/student/model.safetensors") for one in (whole, recipe)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


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
    assert json.loads((Path(recipe["output"]) / "run.json").read_text())["status"] == "interrupted"
    monkeypatch.undo()
    assert limbeck.distill(recipe, resume=True).record["status"] == "finished"


class AtStep(TrainerCallback):
    def __init__(self, step, *signals):
        self.step, self.signals = step, signals

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            for number in self.signals:
                os.kill(os.getpid(), number)


def logged(recipe):
    lines = next(Path(recipe["output"]).rglob("log.jsonl")).read_text().splitlines()
    return [(entry["step"], entry.get("loss"), entry.get("eval_loss")) for entry in map(json.loads, lines)]


@pytest.mark.parametrize(
    ("signals", "error", "strategy"),
    [
        ((signal.SIGTERM, signal.SIGTERM), Preempted, "steps"),
        ((signal.SIGTERM,), Preempted, "epoch"),
        ((signal.SIGINT, signal.SIGINT), Interrupted, "steps"),
    ],
)
def test_a_stop_saves_what_a_run_without_it_would_have_come_to(recipe, tmp_path, monkeypatch, signals, error, strategy):
    training = recipe["stages"][0]["training"]
    training |= {"max_steps": 16, "num_train_epochs": 9, "save_strategy": strategy, "eval_strategy": strategy}
    whole = {**recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)
    original = stage.DistillationTrainer.__init__

    def initialise(self, model, **arguments):
        original(self, model, **arguments)
        self.add_callback(AtStep(9, *signals))

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "__init__", initialise)
        with pytest.raises(Interrupted, match="--resume") as caught:
            limbeck.distill(recipe)
    assert type(caught.value) is error
    saved = [path.name for path in Path(recipe["output"]).rglob("checkpoint-*")]
    assert ("checkpoint-9" in saved) is (error is Preempted), "a second Ctrl-C does not wait"
    limbeck.distill(recipe, resume=True)
    ends = [load_file(f"{one['output']}/student/model.safetensors") for one in (whole, recipe)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert logged(whole) == logged(recipe)


@pytest.mark.parametrize("strategy", ["no", "steps"])
def test_a_stage_that_has_taken_its_last_step_is_finished_first(recipe, tmp_path, monkeypatch, strategy):
    recipe["stages"][0]["training"] |= {"save_strategy": strategy}
    recipe["stages"].append({**recipe["stages"][0], "name": "second"})
    whole = {**recipe, "output": str(tmp_path / "whole")}
    expected = limbeck.distill(whole).record["stages"][0]
    original = stage.DistillationTrainer.evaluate

    def evaluate(self, *arguments, **options):
        if self.state.global_step == self.state.max_steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "evaluate", evaluate)
        with pytest.raises(Preempted, match="after stage 'minilmv2', which is finished.*--resume"):
            limbeck.distill(recipe)
    found = json.loads((Path(recipe["output"]) / "stages" / "1-minilmv2" / "stage.json").read_text())
    assert (found["held_out"], found["weights"]) == (expected["held_out"], expected["weights"])
    limbeck.distill(recipe, resume=True)
    ends = [load_file(f"{one['output']}/student/model.safetensors") for one in (whole, recipe)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


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
