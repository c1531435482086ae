"""Whole runs of `distill`: two stages with all that is random in them, a mixed stream, masked language modelling."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import limbeck.api
from limbeck.training.checkpoints import all_checkpoints
from limbeck.training.seals import find_damage

from .events import Event
from .inputs import documents, write_model, write_text
from .job import Job, identity_of, names_below, weights_below, without_clocks

_TRAINING = {
    "max_steps": 16,
    "per_device_train_batch_size": 5,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-3,
    "bf16": False,
    "logging_steps": 3,
    "save_steps": 4,
    "eval_steps": 7,
}
_CHECKPOINT = "checkpoint of "
_STUDENT = {"shape": {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}, "dropout": 0.1}


def prepare(inputs: Path) -> None:
    write_model(inputs / "teacher", layers=4)
    for number in range(4):
        write_text(inputs / "en" / f"{number}.txt", documents(60, seed=number))
    write_text(inputs / "sw" / "0.txt", documents(40, seed=9))


def two_stages(inputs: Path) -> dict[str, Any]:
    """Dropout, replaced tokens, accumulation, learned maps; steps that do not divide each other."""
    methods = [{"name": "minilmv2", "relation_heads": 4}, {"name": "hidden_states"}]
    return {
        "corpus": {"sources": [str(inputs / "en")], "length": 32, "held_out": 0.1},
        "stages": [{"method": method, "training": _TRAINING, "augment": {"replace_tokens": 0.3}} for method in methods],
    }


def streamed(inputs: Path) -> dict[str, Any]:
    """Two sources mixed on the fly, read by two worker processes."""
    corpus = {"sources": [str(inputs / "en"), str(inputs / "sw")], "length": 32, "held_out": 0.1}
    return {
        "corpus": corpus | {"streaming": True, "shuffle_buffer": 40, "mix": {"exponent": 0.3}},
        "stages": [{"method": {"name": "direct_minilm"}, "training": {**_TRAINING, "dataloader_num_workers": 2}}],
    }


def masked(inputs: Path) -> dict[str, Any]:
    """DistilBERT, whose masks are drawn anew for every block, with a student that begins as layers of its teacher."""
    return {
        "student": {"shape": {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64}, "initialise": {"layers": "uniform"}},
        "corpus": {"sources": [str(inputs / "en")], "length": 32, "held_out": 0.1},
        "stages": [{"method": {"name": "distilbert"}, "training": _TRAINING}],
    }


def run(recipe: Any, inputs: Path, folder: Path) -> None:
    """Distil, as the command does with `--resume`."""
    whole = {"output": str(folder), "seed": 1, "teacher": {"model": str(inputs / "teacher")}, "student": _STUDENT}
    limbeck.api.distill(whole | {"evaluation": {"enabled": False}} | recipe(inputs), resume=True)


def kept(folder: Path) -> dict[str, Any]:
    """Weights of finished stages, and of each stage the step of its newest whole checkpoint."""
    found: dict[str, Any] = {}
    for stage in sorted(folder.glob("stages/*")):
        if (stage / "stage.json").exists():
            found[stage.name] = identity_of(stage / "model.safetensors")
        elif steps := [step for step, path in all_checkpoints(stage) if find_damage(path) is None]:
            found[_CHECKPOINT + stage.name] = steps[0]
    return found


def lost(before: Mapping[str, Any], events: Sequence[Event], after: Mapping[str, Any]) -> list[str]:
    """Name finished stages that changed, and checkpoints that an attempt did not go on from."""
    first: dict[str, int] = {}
    for event in events:
        if event.name == "step":
            stage, step = event.detail.split(":")
            first.setdefault(stage, int(step))
    found = []
    for name, value in before.items():
        stage = name.removeprefix(_CHECKPOINT)
        if stage == name:
            if after.get(name) != value or name in first:
                found.append(name)
        elif first.get(stage, value + 1) <= value or not (stage in after or after.get(name, 0) >= value):
            found.append(f"{name}, step {value}")
    return found


def outcome(folder: Path) -> dict[str, Any]:
    """All weights, bit for bit, what was logged and recorded, and which files there are."""
    # Wherever the text lay at last; what was made of it is compared by its hashes.
    text = re.sub(r'[^"]*/inputs(-\d+)?/', "", (folder / "run.json").read_text(encoding="utf-8"))
    record = json.loads(text)
    for view in record["corpus"]["views"]:
        del view["fingerprint"]
    return {
        "weights": weights_below(folder),
        "logs": {str(path.relative_to(folder)): _log(path) for path in sorted(folder.glob("stages/*/log.jsonl"))},
        "record": without_clocks({name: record.get(name) for name in ("status", "corpus", "student")}),
        "stages": without_clocks([{**stage, "weights": None} for stage in record["stages"]]),
        "files": names_below(folder),
    }


def _log(path: Path) -> list[Mapping[str, Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [without_clocks(line) for line in lines if "train_runtime" not in line]


_STEPS = frozenset({"step"})
JOBS = (
    Job("training", "two stages", prepare, partial(run, two_stages), kept, outcome, _STEPS, moves=True, lost=lost),
    Job(
        "training",
        "streamed",
        prepare,
        partial(run, streamed),
        kept,
        outcome,
        _STEPS,
        workers=True,
        moves=True,
        lost=lost,
    ),
    Job("training", "masked", prepare, partial(run, masked), kept, outcome, _STEPS, moves=True, lost=lost),
)
