"""The names of the files that a run, its checkpoints, its student and every export consist of."""

import json
from pathlib import Path

import pytest
from transformers import TrainerCallback

from limbeck.api import distill
from limbeck.errors import Interrupted
from tests.golden import internals
from tests.golden.snapshot import check
from tests.support.models import make_teacher


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_folder) -> Path:
    """A finished run of two stages, the second with masks, measured and with checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    training = {
        "max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "bf16": False, "logging_steps": 1,
        "save_steps": 2, "eval_steps": 2,
    }  # fmt: skip
    methods = ({"name": "minilmv2", "relation_heads": 4}, {"name": "mlm"})
    distill(
        {
            "output": str(folder / "run"),
            "seed": 1,
            "teacher": {"model": str(make_teacher(folder, "bert", head="masked_lm"))},
            "student": {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}},
            "corpus": {"sources": [str(text_folder)], "length": 32, "held_out": 0.2},
            "stages": [{"method": method, "training": training} for method in methods],
            "evaluation": {"pairs": 60, "retrieval_pairs": 20, "batch_sizes": [1], "latency_seconds": 0.1},
        }
    )
    return folder / "run"


def test_a_run(run):
    """Its student included; a finished stage keeps no checkpoint."""
    check("files/run", names(run))


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **keywords):
        if state.global_step == 3:
            raise KeyboardInterrupt


def test_a_stopped_run(tiny_recipe, tmp_path, monkeypatch):
    """Its checkpoints included."""
    trainer = internals.DistillationTrainer
    original = trainer.train
    monkeypatch.setattr(trainer, "train", lambda self, **named: (self.add_callback(Stop()), original(self, **named))[1])
    with pytest.raises(Interrupted):
        distill(tiny_recipe)
    check("files/stopped_run", names(tmp_path / "run"))


@pytest.mark.parametrize("name", internals.registered_names()["formats"])
def test_an_export(name, run, limbeck, tmp_path):
    output = tmp_path / "export"
    done = limbeck("export", run, "--format", name, "--output", output, "--json")
    assert done.returncode == 0, done.stderr
    printed = sorted(json.loads(done.stdout))
    check(f"files/export_{name.replace('-', '_')}", {"files": names(output), "printed": printed})
