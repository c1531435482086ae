"""Runs whose moments are in bfloat16: `optim_args: moments=bfloat16`."""

import pytest
import torch

import limbeck
from limbeck.kernels.rounded_adamw import RoundedAdamW
from limbeck.recipe.optimizers import choose_optimizer
from limbeck.recipe.training_arguments import build_arguments
from tests.support.together import distil
from tests.support.training import (
    assert_ends_like,
    assert_equal,
    at_step,
    elsewhere,
    kill_at,
    log_of,
    record_of,
    stage_folder,
    student_of,
)
from tests.training.conftest import make_recipe, refused


@pytest.fixture
def rounded(bert_folder, text_folder, tmp_path):
    return make_recipe(bert_folder, text_folder, tmp_path / "run", optim_args="moments=bfloat16")


def test_a_run_keeps_them_so_and_says_it(rounded, whole):
    kill_at(rounded, 5)
    state = torch.load(stage_folder(rounded) / "checkpoint-4" / "optimizer.pt", weights_only=True)["state"]
    assert {x.dtype for own in state.values() for name, x in own.items() if name != "step"} == {torch.bfloat16}
    straight = elsewhere(rounded, rounded["output"] + "-straight")
    limbeck.distill(straight)
    assert_ends_like(rounded, straight)
    precision = record_of(whole)["stages"][0]["precision"]
    assert record_of(rounded)["stages"][0]["precision"] == f"{precision}, moments in bfloat16"
    usual, found = student_of(whole), student_of(rounded)
    assert any(not torch.equal(found[name], usual[name]) for name in usual)
    losses = [log_of(recipe)[-1]["eval_loss"] for recipe in (whole, rounded)]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)


def test_a_run_does_not_change_to_them(rounded, killed):
    rounded["output"] = killed["output"]
    with refused("stages.0.training.optim_args = None, this recipe 'moments=bfloat16'"):
        limbeck.distill(rounded, resume=True)


def test_all_processes_round_alike(rounded, tmp_path):
    rounded["stages"][0]["training"]["per_device_train_batch_size"] = 8

    def keep(model):
        name = torch.distributed.get_rank() if torch.distributed.is_initialized() else "one"
        torch.save(dict(model.named_parameters()), tmp_path / f"{name}.pt")

    with at_step(6, keep):
        distil(rounded)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1))
    assert_equal(first, second)


def test_the_optimizer_is_that_of_the_arguments():
    for optim in ("adamw_torch", "adamw_torch_fused"):
        asked = {"optim": optim, "optim_args": "moments = bfloat16", "adam_beta2": 0.98, "learning_rate": 2e-3}
        kind, options = choose_optimizer(build_arguments(asked, output="", seed=7, evaluates=False))
        assert (kind, options) == (RoundedAdamW, {"lr": 2e-3, "betas": (0.9, 0.98), "eps": 1e-8, "seed": 7})
