"""One recipe whose runs are stopped in every way, and a run of it that never was; they end alike."""

import shutil
from pathlib import Path

import pytest

import limbeck
from tests.support.training import kill_at


def make_recipe(teacher, text, output):
    """Six steps in two epochs, with dropout and replaced tokens; checkpoints of every second step."""
    training = {
        "max_steps": 6,
        "per_device_train_batch_size": 40,
        "learning_rate": 1e-3,
        "bf16": False,
        "logging_steps": 1,
        "save_steps": 2,
        "eval_steps": 2,
        "num_train_epochs": 9,
    }
    stage = {"method": {"name": "minilmv2", "relation_heads": 4}, "augment": {"replace_tokens": 0.3}}
    return {
        "name": "resumable",
        "output": str(output),
        "seed": 1,
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": 2, "hidden": 16, "heads": 2, "ffn": 32}, "dropout": 0.1},
        "corpus": {"sources": [str(text)], "length": 32, "held_out": 0.2},
        "stages": [{**stage, "training": training}],
        "evaluation": {"enabled": False},
    }


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    return make_recipe(bert_folder, text_folder, tmp_path / "run")


@pytest.fixture(scope="session")
def whole(bert_folder, text_folder, tmp_path_factory):
    """The recipe of a run that was never stopped."""
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("whole") / "run")
    limbeck.distill(recipe)
    return recipe


@pytest.fixture(scope="session")
def killed_once(bert_folder, text_folder, tmp_path_factory):
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("killed") / "run")
    kill_at(recipe, 5)
    return recipe


@pytest.fixture
def killed(recipe, killed_once):
    """The recipe of a run that was killed at its fifth step, with checkpoints of steps 2 and 4."""
    shutil.copytree(Path(killed_once["output"]), Path(recipe["output"]))
    return recipe
