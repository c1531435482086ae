"""Runs that are killed by SIGKILL, at any moment, and end with the weights of one that never was."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

import limbeck
from tests.support.models import make_teacher
from tests.support.training import assert_equal, log_of, without_clocks

TRAINING = {
    "max_steps": 6,
    "per_device_train_batch_size": 5,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-3,
    "bf16": False,
    "logging_steps": 3,
    "save_steps": 2,
    "eval_steps": 3,
}


def make_recipe(teacher, text, output):
    """Two stages with dropout, replaced tokens, learned maps, accumulation, and steps that do not divide each other."""
    methods = [{"name": "minilmv2", "relation_heads": 4}, {"name": "hidden_states"}]
    return {
        "output": str(output),
        "seed": 1,
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}, "dropout": 0.1},
        "corpus": {"sources": [str(text)], "length": 32, "held_out": 0.2},
        "stages": [{"method": method, "training": TRAINING, "augment": {"replace_tokens": 0.3}} for method in methods],
        "evaluation": {"enabled": False},
    }


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    return make_recipe(bert_folder, text_folder, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(bert_folder, text_folder, tmp_path_factory):
    """The same run, never killed."""
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("whole") / "run")
    limbeck.distill(recipe)
    return recipe


def weights_of(output):
    return {
        f"{path.parent.name}/{name}": tensor
        for path in sorted(Path(output).rglob("model.safetensors"))
        for name, tensor in load_file(path).items()
    }


def run_victim(recipe, tmp_path, *arguments):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.victim", *map(str, (path, *arguments))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["exit"] == 0, done.stderr
    return outcome["kills"]


def assert_same_end(killed, whole):
    assert_equal(weights_of(killed["output"]), weights_of(whole["output"]))
    found, expected = (
        [{name: value for name, value in entry.items() if "flos" not in name} for entry in without_clocks(log_of(run))]
        for run in (killed, whole)
    )
    assert found == expected
    left = [path for path in Path(killed["output"]).rglob("*") if ".partial" in path.name or ".saving" in path.parts]
    assert not left and not list(Path(killed["output"]).rglob("checkpoint-*"))


def test_a_run_killed_again_and_again_ends_like_one_that_never_was(recipe, whole, tmp_path):
    # Times and counts that a fast machine does not outrun.
    assert run_victim(recipe, tmp_path, 7, 4, 1, 30) > 1
    assert_same_end(recipe, whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(recipe, whole, tmp_path, seed):
    assert run_victim(recipe, tmp_path, seed, 20, 0.7, 16) >= 3
    assert_same_end(recipe, whole)


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_two_threads_give_the_same_bits_again(text_folder, tmp_path, bf16):
    """Products large enough that threads share them, in processes of their own; one is killed after a checkpoint."""
    teacher = make_teacher(tmp_path, "bert", layers=4, hidden=384, heads=6, ffn=1536)
    recipe = make_recipe(teacher, text_folder, tmp_path / "whole")
    recipe["student"]["shape"] = {"layers": 2, "hidden": 384, "heads": 6, "ffn": 1536}
    recipe["stages"] = recipe["stages"][:1]
    training = {"per_device_train_batch_size": 40, "gradient_accumulation_steps": 1, "max_steps": 12, "bf16": bf16}
    recipe["stages"][0]["training"] = TRAINING | training
    environment = os.environ | {"OMP_NUM_THREADS": "2"}

    def start(output, *options):
        path = tmp_path / f"{output}.json"
        path.write_text(json.dumps(recipe | {"output": str(tmp_path / output)}))
        return subprocess.Popen(
            [sys.executable, "-m", "limbeck", "distill", str(path), "-q", *options], env=environment
        )

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
