"""Records as runs and searches leave them, and the card that a record gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.report import write_model_card
from tests.golden.committed import FOLDERS


def _read(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDERS[kind] / name).read_text(encoding="utf-8"))
    return found


def run_record() -> dict[str, Any]:
    """The record of a run with every part."""
    return _read("large-run", "run.json")


def comparison() -> dict[str, Any]:
    """Its evaluation."""
    found: dict[str, Any] = run_record()["evaluation"]
    return found


def mapping_search_record() -> dict[str, Any]:
    """The record of a mapping search, as small as shows everything: ELM's first and fourth generation of 4 layers."""
    return _read("large-search-mapping", "search.json")


def card_of(values, folder: Path) -> tuple[ModelCard, str]:
    path = write_model_card(values, folder)
    return ModelCard.load(path), path.read_text(encoding="utf-8")


def searched_shape(trial: int, layers: int, state: str = "trained", **changes: Any) -> dict[str, Any]:
    found = {
        "trial": trial, "layers": layers, "hidden": 384, "heads": 12, "ffn": 1536,
        "parameters": 12_000_000 + 1_774_464 * layers, "latency_share": 0.1 * layers, "latency_ms": 6.5 * layers,
        "teacher_ms": 65.0, "threads": 2, "note": None, "loss": 0.8 - 0.1 * layers, "reward": 0.3 + 0.05 * layers,
        "steps": 900, "state": state, "reason": None, "rewards_on_the_way": {"300": 0.2}, "training_seconds": 60.0,
    }  # fmt: skip
    return found | changes


def shape_search_record() -> dict[str, Any]:
    """The record of an architecture search with a shape of every state."""
    unknown = {"loss": None, "reward": None}
    reason = "after 300 steps its reward 0.200 was below the median of the others"
    shapes = [
        searched_shape(0, 3),
        searched_shape(1, 6),
        searched_shape(2, 4, loss=0.6, reward=0.39),
        searched_shape(3, 5, "cut", **unknown, steps=300, reason=reason),
        searched_shape(4, 2, "diverged", **unknown, steps=17, reason="its loss is no finite number"),
        searched_shape(
            5, 12, "refused", **unknown, steps=None, training_seconds=None, reason="1.2 of the | latency, 1 is it"
        ),
    ]
    return {
        "kind": "architecture",
        "name": "shape",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "latency_ms": 65.0},
        "methods": ["hidden_states"],
        "space": {"layers": [2, 3, 4, 5, 6, 12], "hidden": [384], "heads": [12], "ffn": [4, 2.5], "shapes": 12},
        "limits": {"parameters": 30_000_000, "latency_share": 1.0},
        "latency": {"device": "cpu", "length": 128, "batch": 1, "dtype": "float32", "seconds": 4.0},
        "loss": {"kind": "hidden", "untrained": 0.75},
        "share": 0.1,
        "sampler": "tpe",
        "shapes": shapes,
        "best": shapes[1],
        "front": [0, 1],
        "recipe": {"student": {"shape": {"layers": 6, "hidden": 384, "heads": 12, "ffn": 1536}}},
        "cost": {"trained": 3, "cut": 1, "diverged": 1, "refused": 1, "failed": 2, "training_seconds": 300.0},
    }


def _scored(step: int, score: float) -> dict[str, Any]:
    return {"step": step, "score": score, "agreement": score + 1, "explained": score - 1}


def layer_search_record() -> dict[str, Any]:
    """The record of a teacher-layer search with a layer of every state."""
    layers = [
        {"rank": 1, "layer": 10, "scores": [_scored(10, 40.0), _scored(30, 50.0)], "steps": 30, "state": "trained",
         "own_loss": 0.125},
        {"rank": 2, "layer": 12, "scores": [_scored(10, 41.0), _scored(30, 49.0)], "steps": 30, "state": "trained",
         "own_loss": 0.1},
        {"rank": 3, "layer": 11, "scores": [_scored(10, 39.0)], "steps": 10, "state": "cut", "own_loss": 0.5},
        {"rank": 4, "layer": 9, "scores": [], "steps": 3, "state": "diverged", "own_loss": None},
    ]  # fmt: skip
    return {
        "kind": "teacher-layer",
        "name": "layer",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "layers": 12},
        "student": {"shape": "bert 6x384, 12 heads, FFN 1536"},
        "methods": ["minilmv2"],
        "share": 1.0,
        "scores": ["agreement", "explained"],
        "rungs": [{"candidates": 4, "end": 10}, {"candidates": 2, "end": 30}],
        "layers": layers,
        "best": layers[0],
        "cost": {"steps": 73, "seconds": 130.0},
    }
