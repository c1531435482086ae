"""A recipe that trains a tiny student in a second, and the models that a recipe's schema is made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

TRAINING = {
    "max_steps": 4,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-3,
    "bf16": False,
    "logging_steps": 1,
    "save_steps": 2,
    "eval_steps": 2,
}
MINILMV2 = {"name": "minilmv2", "relation_heads": 4}


def recipe_of(
    teacher: Path | str,
    text: Path | str,
    /,
    *methods: Mapping[str, Any],
    length: int = 32,
    held_out: float = 0.2,
    **changes: Any,
) -> dict[str, Any]:
    """A recipe with a stage for each method, by default MiniLMv2; tests change what they are about."""
    return {
        "name": "tiny",
        "seed": 1,
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}},
        "corpus": {"sources": [str(text)], "length": length, "held_out": held_out},
        "stages": [{"method": dict(method), "training": dict(TRAINING)} for method in methods or (MINILMV2,)],
        "evaluation": {"enabled": False},
    } | changes


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models that a field's annotation names, in unions and containers too."""
    inner = [model for part in get_args(annotation) for model in models_in(part)]
    return [annotation, *inner] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else inner
