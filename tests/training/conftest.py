"""One recipe whose runs are stopped in every way, and a run of it that never was; they end alike."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import limbeck
from limbeck.errors import OutputError
from tests.support.recipes import recipe_of
from tests.support.training import kill_at

REFUSALS = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text())


@contextmanager
def refused(line, kind=OutputError):
    """The block is refused in a line of which a part is given."""
    with pytest.raises(kind) as caught:
        yield
    assert line in str(caught.value)


def make_recipe(teacher, text, output, *methods, **training):
    """Six steps a stage, with dropout and replaced tokens; checkpoints of every second step."""
    recipe = recipe_of(teacher, text, *methods, output=str(output))
    recipe["student"] = {"shape": {"layers": 2, "hidden": 16, "heads": 2, "ffn": 32}, "dropout": 0.1}
    for stage in recipe["stages"]:
        stage["augment"] = {"replace_tokens": 0.3}
        # Two epochs.
        fixed = {"max_steps": 6, "per_device_train_batch_size": 40, "num_train_epochs": 9, "eval_steps": 4}
        stage["training"] |= fixed | training
    return recipe


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
    shutil.copytree(killed_once["output"], recipe["output"])
    return recipe
