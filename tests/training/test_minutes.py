"""Stages that train for minutes: the number of steps is measured, written, and taken by whoever goes on."""

import json
from pathlib import Path

import pytest
import yaml
from transformers import TrainerCallback

from limbeck import distill
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.asked import merge_options
from limbeck.training.measured_steps import MeasuredSteps
from tests.support.training import assert_equal, die, elsewhere, student_of
from tests.training.conftest import make_recipe, refused


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", save_steps=1, max_minutes=0.004)
    for name in ("max_steps", "num_train_epochs"):
        del recipe["stages"][0]["training"][name]
    return recipe


class DiesAtSecondStep(TrainerCallback):
    """Ends a run as a kill would; the measurement of the rate has no callbacks of the user."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            die()


def kept(recipe):
    """The recipe in the folder of a run."""
    return yaml.safe_load((Path(recipe["output"]) / "recipe.yaml").read_text())


def test_the_kept_recipe_has_the_steps_and_gives_the_same_student(recipe, tmp_path):
    run = distill(recipe).run
    document = kept(recipe)
    training = document["stages"][0]["training"]
    assert training["max_steps"] == run.stages[0].steps >= 1
    assert "max_minutes" not in training
    assert "0.004 minutes at " in document["reasons"]["stages.0.training.max_steps"]
    # The measurement left nothing: a run of so many steps, which measures nothing, has the same weights.
    document["output"] = str(tmp_path / "again")
    distill(document)
    assert_equal(student_of(recipe), student_of(document))


def test_a_resumed_run_takes_the_written_number(recipe, monkeypatch, tmp_path):
    recipe["stages"][0]["training"]["max_minutes"] = 0.02
    # A busy machine may measure fewer steps than the run needs to die at its second one.
    as_measured = MeasuredSteps(0.02, 5, 0.24)
    monkeypatch.setattr("limbeck.training.run.measure_steps", lambda *arguments, **options: as_measured)
    with pytest.raises(MemoryError):
        distill(recipe, callbacks=[DiesAtSecondStep])
    steps = kept(recipe)["stages"][0]["training"]["max_steps"]
    measured = next(Path(recipe["output"]).glob("stages/*/measured_steps.json"))
    assert json.loads(measured.read_text())["max_steps"] == steps == 5
    changed = elsewhere(recipe, recipe["output"])
    changed["stages"][0]["training"]["max_minutes"] = 5
    with refused("was begun with max_minutes 0.02, which was converted to"):
        distill(changed, resume=True)

    monkeypatch.setattr("limbeck.training.run.measure_steps", die)
    assert distill(recipe, resume=True).run.stages[0].steps == steps
    assert kept(recipe)["stages"][0]["training"]["max_steps"] == steps


def test_minutes_take_the_place_of_steps_and_stages_share_them():
    stages = [{"method": "hidden_states", "training": {"max_steps": 300}}, {"method": "minilmv2"}]
    divided = merge_options({"stages": stages}, {"minutes": 10})["stages"]
    assert [stage["training"] for stage in divided] == [{"max_minutes": 5.0}, {"max_minutes": 5.0}]
    stages[1]["training"] = {"max_steps": 100, "learning_rate": 1e-4}
    divided = merge_options({"stages": stages}, {"minutes": 10})["stages"]
    assert [stage["training"]["max_minutes"] for stage in divided] == [7.5, 2.5]
    assert "max_steps" not in divided[1]["training"]
    back = merge_options({"stages": divided}, {"steps": 7})["stages"]
    assert back[0]["training"] == {"max_steps": 7}
    with pytest.raises(RecipeError, match=r"--steps 3 and --minutes 10 both say"):
        merge_options({"stages": stages}, {"minutes": 10, "steps": 3})


@pytest.mark.parametrize(
    ("training", "text", "message"),
    [
        ({"max_steps": 5}, {}, "max_minutes and .*max_steps both say how long"),
        ({"num_train_epochs": 1}, {}, "max_minutes and .*num_train_epochs both say how long"),
        ({"max_minutes": 0}, {}, "max_minutes is 0.0; give more than 0"),
        ({}, {"lengths": {16: 0.5, 32: 0.5}}, "max_minutes cannot be combined with text.lengths"),
    ],
)
def test_what_minutes_cannot_be_told_for_is_refused(recipe, training, text, message):
    recipe["stages"][0]["training"] |= training
    recipe["stages"][0]["text"] = text
    with pytest.raises((RecipeError, OutputError), match=message):
        distill(recipe)
