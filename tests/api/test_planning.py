"""`limbeck.plan`: the stages of a recipe in memory."""

import pytest
import torch

import limbeck
from limbeck.errors import LimbeckError
from tests.support.recipes import recipe_of

METHODS = {
    "relations": {"name": "minilmv2", "relation_heads": 4},
    "hidden states": {"name": "hidden_states"},
    "masked tokens": {"name": "mlm"},
}


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path, request):
    method = METHODS[getattr(request, "param", "relations")]
    training = {"max_steps": 1, "logging_steps": 1, "per_device_train_batch_size": 4, "bf16": False}
    recipe = recipe_of(bert_folder, text_folder, method, output=str(tmp_path / "run"))
    recipe["stages"][0]["training"] = training
    recipe["student"]["dropout"] = 0.0
    return recipe


@pytest.mark.parametrize("recipe", METHODS, indirect=True)
def test_the_loss_of_the_first_batch_is_that_of_a_runs_first_step(recipe, tmp_path):
    stage = limbeck.plan(recipe).stage(0)
    batch = next(stage.batches())
    loss = stage.loss(batch)
    loss.backward()
    assert any(parameter.grad is not None for parameter in stage.module.student.parameters())
    stage.close()
    assert not (tmp_path / "run").exists()

    (trained,) = limbeck.distill(recipe).record["stages"]
    assert loss.item() == pytest.approx(trained["final_loss"], rel=1e-5)


def test_a_plan_is_shown_as_validate_prints_it(recipe):
    plan = limbeck.plan(recipe)
    assert len(plan) == 1
    assert repr(plan) == repr(limbeck.validate(recipe))


def test_batches_are_those_of_one_epoch_and_the_same_each_time(recipe):
    stage = limbeck.plan(recipe).stage(0)
    first, second = list(stage.batches()), list(stage.batches())
    assert len(first) > 1
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(first, second, strict=True))


def test_a_stage_that_is_not_there_is_refused(recipe):
    with pytest.raises(LimbeckError, match="there is no stage 3"):
        limbeck.plan(recipe).stage(3)
