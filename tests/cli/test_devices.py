"""`--device`: on every command that computes, all of a command goes there, and nothing of it stays behind."""

import os

import pytest
import torch

from limbeck.core import devices
from limbeck.core.workers import visible_device
from limbeck.errors import RecipeError
from tests.support.commands import assert_one_line_error

COMPUTING = [
    "quickstart", "distill", "finetune", "compare", "evaluate", "search mapping", "search architecture",
    "search teacher-layer", "inspect similarity", "inspect phrases", "inspect attention", "inspect contribution",
    "benchmark loss", "benchmark step", "benchmark model",
]  # fmt: skip


@pytest.fixture
def two_gpus(monkeypatch):
    """As torch sees a machine with two GPUs, of which the environment may hide some."""

    def count():
        names = os.environ.get("CUDA_VISIBLE_DEVICES")
        return 2 if names is None else len([name for name in names.split(",") if name.strip()])

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: count() > 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", count)
    monkeypatch.setattr(torch.cuda, "device_count", count)


@pytest.mark.parametrize("command", COMPUTING)
def test_every_command_that_computes_has_it(limbeck, command):
    assert "Device to compute on" in " ".join(limbeck.shown(*command.split(), "--help").replace("│", "").split())


def test_a_command_is_sent_to_the_cpu_and_the_next_one_is_not(limbeck, two_gpus, monkeypatch):
    found = []

    def distill(*_, **__):
        found.append((devices.choose_device("auto").type, devices.has_accelerator()))
        raise RecipeError("enough")

    monkeypatch.setattr("limbeck.api.distilling.carry_out_distillation", distill)
    for given in (["--device", "cpu"], []):
        limbeck("quickstart", *given)
    assert found == [("cpu", False), ("cuda", True)]


@pytest.mark.parametrize(("before", "name"), [(None, "1"), ("6,4", "4")])
def test_one_gpu_is_the_only_one_that_is_seen(two_gpus, monkeypatch, before, name):
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    with devices.computing_on("cuda:1") as called:
        assert called == "cuda" and devices.choose_device("auto").type == "cuda"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == name and visible_device(1) == name
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.mark.parametrize("name", ["cuda:7", "mps", "cpu:1"])
def test_what_is_not_there_is_refused_by_its_name(two_gpus, monkeypatch, name):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,4")
    with pytest.raises(RecipeError, match=f"no device '{name}' here; use cpu"), devices.computing_on(name):
        pass
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6,4"


def test_a_number_is_for_gpus_and_for_one_process(limbeck, monkeypatch):
    with pytest.raises(RecipeError, match="--device xpu:1 has a number"):
        devices.computing_on("xpu:1").__enter__()
    for key, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(key, value)
    done = limbeck("distill", "recipe.yaml", "--device", "cuda:0")
    assert_one_line_error(done, 2, "all processes of the launcher on one device", "leave --device out")
