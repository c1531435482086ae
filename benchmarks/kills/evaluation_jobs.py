"""Evaluating models cell by cell, and comparing methods, which distils before it evaluates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import limbeck.api
from limbeck.core.studies.evaluation import FINISHED
from limbeck.evaluation.run.results_file import ResultsFile

from .inputs import documents, write_model, write_task, write_text
from .job import Job, identity_of, names_below, weights_below, without_clocks

_SETTINGS = {"epochs": 3, "batch_size": 8, "length": 32, "learning_rates": 1e-3}


def prepare(inputs: Path) -> None:
    write_model(inputs / "teacher", layers=3)
    write_model(inputs / "other", layers=2, seed=5)
    write_task(inputs / "task")
    write_text(inputs / "text" / "0.txt", documents(120, seed=3))


def evaluate(inputs: Path, folder: Path) -> None:
    """Two models, three seeds: six cells."""
    limbeck.api.evaluate(
        [inputs / "teacher", inputs / "other"],
        str(inputs / "task" / "vowels.yaml"),
        output=folder,
        preset="quick",
        seeds=3,
        overrides=[f"{name}={json.dumps(value)}" for name, value in _SETTINGS.items()],
    )


def compare(inputs: Path, folder: Path) -> None:
    """Two methods, distilled with checkpoints, measured on held-out text, and fine-tuned: four cells and two runs."""
    training = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "bf16": False, "eval_strategy": "no"}
    plan = {
        "teacher": {"model": str(inputs / "teacher")},
        "corpus": {"sources": [str(inputs / "text")], "length": 24, "held_out": 0.2},
        "students": [{"layers": 2, "hidden": 32, "heads": 4, "ffn": 48}],
        "methods": [{"name": "hidden_states", "mappings": ["last"]}, "minilmv2"],
        "seeds": [1],
        "budget": {"tokens": 4000},
        "training": {**training, "logging_steps": 2, "save_strategy": "steps", "save_steps": 4},
        "evaluation": {
            "tasks": [str(inputs / "task" / "vowels.yaml")],
            "preset": "quick",
            "seeds": 1,
            "settings": _SETTINGS,
            "held_out": {"blocks": 16, "pairs": 30, "retrieval_pairs": 10},
            "speed": {"enabled": False},
        },
    }
    limbeck.api.compare(plan, output=folder)


def kept(folder: Path) -> dict[str, Any]:
    """Every line of a finished cell, so that one that ran twice shows too, and the weights of finished runs."""
    found: dict[str, Any] = {}
    for results in folder.rglob("results.jsonl"):
        for cell in ResultsFile(results.parent).read():
            if cell.status == FINISHED:
                found.setdefault(f"cell {cell.id}", []).append(cell.to_dict())
    for record in folder.glob("runs/**/run.json"):
        if json.loads(record.read_text(encoding="utf-8"))["status"] == "finished":
            found[f"run {record.parent.name}"] = identity_of(record.parent / "student" / "model.safetensors")
    return found


def outcome(folder: Path) -> dict[str, Any]:
    """All scores, weights, tables and files."""
    found = kept(folder)
    record = folder / "comparison.json"
    outcome = {
        "cells": {name: without_clocks(rows) for name, rows in sorted(found.items()) if name.startswith("cell")},
        "weights": weights_below(folder),
        "comparison": without_clocks(json.loads(record.read_text(encoding="utf-8"))) if record.exists() else None,
        "tables": {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))},
        "files": names_below(folder),
    }
    # Wherever models and text lay at last: they are known by what they hold.
    plain: dict[str, Any] = json.loads(re.sub(r"[^\s\"|']*/(inputs|place)(-\d+)?/", "", json.dumps(outcome)))
    return plain


JOBS = (
    Job("evaluation", "evaluate", prepare, evaluate, kept, outcome, frozenset({"cell"}), moves=True),
    Job("evaluation", "compare", prepare, compare, kept, outcome, frozenset({"cell", "step"}), moves=True),
)
