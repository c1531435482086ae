"""Runs that are killed by SIGKILL, at any moment, and end with the weights of one that never was."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

import limbeck
from tests.support.models import make_teacher
from tests.support.together import fork
from tests.support.training import assert_equal, log_of, send, without_clocks
from tests.training.conftest import make_recipe

METHODS = [{"name": "minilmv2", "relation_heads": 4}, {"name": "hidden_states"}]
# Accumulation, and steps that do not divide each other.
TRAINING = {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 2, "logging_steps": 3, "eval_steps": 3}


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    """Two stages, of which the second has learned maps."""
    return make_recipe(bert_folder, text_folder, tmp_path / "run", *METHODS, **TRAINING)


@pytest.fixture(scope="module")
def whole(bert_folder, text_folder, tmp_path_factory):
    """The same run, never killed."""
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("whole") / "run", *METHODS, **TRAINING)
    limbeck.distill(recipe)
    return recipe


def weights_of(output):
    return {
        f"{path.parent.name}/{name}": tensor
        for path in sorted(Path(output).rglob("model.safetensors"))
        for name, tensor in load_file(path).items()
    }


def die_at_file_operation(number, after):
    """Let this process die at its n-th file operation of those that checkpoints and records are made of."""
    left, die = [number], send(signal.SIGKILL)

    def deadly(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0 and not after:
                die()
            result = function(*arguments, **options)
            if left[0] == 0:
                die()
            return result

        return call

    for owner, names in ((os, "fsync"), (Path, "rename replace unlink"), (shutil, "rmtree"), (torch, "save")):
        for name in names.split():
            setattr(owner, name, deadly(getattr(owner, name)))


def run_killed(recipe, seed, kills, seconds, operations):
    """Run a recipe to its end, each time in a process, while it is killed; return how often.

    The first processes die in turn after a random time, and at a random one of their first file operations, before or
    after it is done. The last one may run to its end.
    """
    dice, died = random.Random(seed), 0
    while True:
        by_time, by_file = died < kills and died % 2 == 0, died < kills and died % 2 == 1
        deadline = time.monotonic() + (dice.uniform(0, seconds) if by_time else 300)
        number, after = dice.randint(1, operations) if by_file else 0, dice.random() < 0.5

        def attempt(number=number, after=after):
            die_at_file_operation(number, after)
            limbeck.distill(recipe, resume=True)

        child = fork(attempt)
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert status == 0
            return died
        died += 1


# Times and counts that a fast machine does not outrun.
@pytest.mark.parametrize(
    ("seed", "kills", "seconds", "operations", "least"),
    [(7, 4, 1, 30, 2), *(pytest.param(seed, 20, 0.7, 16, 3, marks=pytest.mark.slow) for seed in range(3))],
)
def test_a_run_killed_again_and_again_ends_like_one_that_never_was(
    recipe, whole, seed, kills, seconds, operations, least
):
    assert run_killed(recipe, seed, kills, seconds, operations) >= least
    assert_equal(weights_of(recipe["output"]), weights_of(whole["output"]))
    found, expected = (
        [{name: value for name, value in entry.items() if "flos" not in name} for entry in without_clocks(log_of(run))]
        for run in (recipe, whole)
    )
    assert found == expected
    left = [path for path in Path(recipe["output"]).rglob("*") if ".partial" in path.name or ".saving" in path.parts]
    assert not left and not list(Path(recipe["output"]).rglob("checkpoint-*"))


def test_processes_that_load_rows_end_with_a_run_that_is_killed(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    # The run is killed after its first checkpoint, so it writes one early.
    training = {"max_steps": 10_000, "num_train_epochs": 10_000, "dataloader_num_workers": 2, "save_steps": 2}
    recipe["stages"][0]["training"] |= training
    child = fork(lambda: limbeck.distill(recipe))
    children = []
    for _ in range(6000):
        children = psutil.Process(child).children() if len(children) < 2 else children
        if len(children) == 2 and any((Path(recipe["output"]) / "stages").rglob("checkpoint-*")):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    time.sleep(1)
    # Where nobody takes their exit codes, processes that have ended stay in the list.
    assert [each.status() for each in children if each.is_running()] in ([], [psutil.STATUS_ZOMBIE] * 2)
    assert len(children) == 2 and not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_two_threads_give_the_same_bits_again(text_folder, tmp_path, bf16):
    """Products large enough that threads share them; one process is killed after a checkpoint."""
    teacher = make_teacher(tmp_path, "bert", layers=4, hidden=384, heads=6, ffn=1536)
    training = {"per_device_train_batch_size": 40, "max_steps": 12, "bf16": bf16}
    recipe = make_recipe(teacher, text_folder, tmp_path / "whole", **training)
    recipe["student"]["shape"] = {"layers": 2, "hidden": 384, "heads": 6, "ffn": 1536}

    def start(output, *options):
        path = tmp_path / f"{output}.json"
        path.write_text(json.dumps(recipe | {"output": str(tmp_path / output)}))
        command = [sys.executable, "-m", "limbeck", "distill", str(path), "-q", *options]
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "2"})

    assert start("whole").wait(300) == 0
    killed = start("killed")
    heartbeat = tmp_path / "killed" / "heartbeat.json"
    deadline = time.monotonic() + 200
    while not heartbeat.is_file() or (json.loads(heartbeat.read_text()).get("checkpoint") or 0) < 4:
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    assert killed.wait(60) == -9
    assert start("killed", "--resume").wait(300) == 0
    assert_equal(weights_of(tmp_path / "killed"), weights_of(tmp_path / "whole"))
