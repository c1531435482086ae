"""Layers by name or number: how a method's option becomes a layer of a model."""

from __future__ import annotations

from limbeck.errors import RecipeError
from limbeck.methods.option_types import LayerChoice
from limbeck.models.families import Shape

# MiniLMv2 section 3.2: the teacher layer that worked best, by depth and width of the teacher.
_BEST_LARGE_LAYER = {"bert": 21, "roberta": 19, "xlm-roberta": 19}


def resolve_layer(choice: LayerChoice, shape: Shape, owner: str) -> int:
    """Turn `last`, `auto` or a number (negative counts from the end, -1 is the last) into a layer 1..N.

    `auto` is the last layer, except for 24-layer BERT (21) and RoBERTa or XLM-R (19).

    Args:
        choice: What the recipe says.
        shape: The model's shape.
        owner: `"teacher"` or `"student"`, for the message.

    Returns:
        The layer, 1..N.

    Raises:
        RecipeError: if the model has no such layer.

    Source:
        MiniLMv2 (arXiv 2012.15828) section 3.2.
    """
    if choice == "last":
        return shape.layers
    if choice == "auto":
        return _BEST_LARGE_LAYER.get(shape.model_type, shape.layers) if shape.layers == 24 else shape.layers
    layer = choice + shape.layers + 1 if choice < 0 else choice
    if not 1 <= layer <= shape.layers:
        raise RecipeError(
            f"{owner}_layer {choice} does not exist: this {owner} has {shape.layers} layers; "
            f"use 1 to {shape.layers}, -1 for the last, or 'last'."
        )
    return layer


def stream_width(shape: Shape, kind: str) -> int:
    """Width of a per-token stream: keys and values are narrower where query heads share them."""
    if kind in ("key", "value"):
        return shape.key_value_heads * shape.head_size
    return shape.heads * shape.head_size if kind in ("query", "context") else shape.hidden
