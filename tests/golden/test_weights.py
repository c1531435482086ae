"""Twenty steps of every method on BERT, eight on two other families: rows met, losses and the student's weights."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file

import limbeck
from limbeck.methods import METHODS
from limbeck.training.trainer import DistillationTrainer
from tests.golden.snapshot import check
from tests.support.methods import tiny_run
from tests.support.models import make_teacher

STEPS = {"bert": 20, "roberta": 8, "modernbert": 8}
TRAINING = {
    "per_device_train_batch_size": 4,
    # Where a gradient is zero but for rounding, Adam would otherwise make a whole step of it.
    "adam_epsilon": 1e-5,
}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    return {family: make_teacher(folder, family, head="masked_lm") for family in STEPS}


@pytest.fixture
def rows_met(monkeypatch):
    """A hash of the batches trained on, in order: their rows, masks and labels."""
    digest = hashlib.sha256()
    original = DistillationTrainer.training_step

    def step(self, model, inputs, *arguments, **named):
        for name in sorted(inputs):
            if isinstance(inputs[name], torch.Tensor):
                digest.update(f"{name} {tuple(inputs[name].shape)}".encode())
                digest.update(inputs[name].long().numpy().tobytes())
        return original(self, model, inputs, *arguments, **named)

    monkeypatch.setattr(DistillationTrainer, "training_step", step)
    return digest


def measured(tensor: torch.Tensor) -> list[float]:
    """The norm of a weight, and a projection that also changes with the order of its elements."""
    flat = tensor.double().flatten()
    waves = torch.cos(torch.arange(len(flat), dtype=torch.float64))
    return [round(float(flat.norm()), 9), round(float(flat @ waves), 9)]


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if "text" in method.tasks])
def test_first_steps(name, teachers, text_folder, tmp_path, rows_met):
    found = {}
    for family, steps in STEPS.items():
        corpus = {"sources": [str(text_folder)], "length": 16, "held_out": 0.1}
        recipe = tiny_run(name, teachers[family], corpus, tmp_path / family, max_steps=steps, **TRAINING)
        recipe["student"]["dropout"] = 0.1
        result = limbeck.distill(recipe)
        logs = sorted((result.student.parent / "stages").glob("*/log.jsonl"))
        entries = [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
        weights = load_file(result.student / "model.safetensors")
        found[family] = {
            "rows met": rows_met.hexdigest()[:16],
            "losses": [entry["loss"] for entry in entries if "loss" in entry],
            "weights": {key: measured(tensor) for key, tensor in weights.items()},
        }
        assert len(found[family]["losses"]) == steps * len(recipe["stages"])
    check(f"weights/{name}", found, relative=1e-5, absolute=1e-4)
