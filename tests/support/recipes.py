"""The models that a recipe's schema is made of."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models that a field's annotation names, in unions and containers too."""
    inner = [model for part in get_args(annotation) for model in models_in(part)]
    return [annotation, *inner] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else inner
