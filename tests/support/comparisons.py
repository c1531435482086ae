"""A tiny comparison: a plan that runs in seconds, its text, its teacher and its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.models import make_teacher

#: As many heads as the teacher, so that every method can train it.
STUDENT = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 48}
#: A budget of about four steps.
TOKENS = 1000


def write_teacher(folder: Path) -> Path:
    """Write a teacher of three layers with a masked language model head."""
    return make_teacher(folder, "bert", head="masked_lm", layers=3, hidden=32, heads=4, ffn=64)


def tiny_plan(teacher: Path | str, text: Path | str, **changes: Any) -> dict[str, Any]:
    """A plan of two methods that measures next to nothing; tests change what they are about."""
    return {
        "teacher": {"model": str(teacher)},
        "corpus": {"sources": [str(text)], "length": 24, "held_out": 0.2},
        "students": [STUDENT],
        "methods": [{"name": "hidden_states", "mappings": ["last"]}, "minilmv2"],
        "seeds": [1],
        "budget": {"tokens": TOKENS},
        "training": {
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-3,
            "bf16": False,
            "logging_steps": 1,
            "eval_strategy": "no",
            "save_strategy": "no",
        },
        "evaluation": {"held_out": {"blocks": 16, "pairs": 30, "retrieval_pairs": 10}, "speed": {"enabled": False}},
    } | changes


def mixed_plan(teacher: Path | str, text: Path | str) -> dict[str, Any]:
    """A plan of six combinations, one of which cannot be and is left out."""
    methods = [{"name": "hidden_states", "mappings": ["last", "single"]}, "tinybert"]
    students = [STUDENT, {"name": "few heads", "shape": {**STUDENT, "heads": 2}}]
    return tiny_plan(teacher, text, methods=methods, students=students, skip_impossible=True)
