"""Sizes that are too large to be measured, refused before anything is loaded."""

import math
from collections.abc import Iterable

import psutil
import torch

from limbeck.errors import RecipeError
from limbeck.models.families import Shape

LONGEST = 131_072
"""Tokens of a text where no saved model says how many it takes; more than any encoder here does."""


def check_length(option: str, lengths: Iterable[int]) -> None:
    """Refuse texts longer than `LONGEST` tokens.

    Args:
        option: The option that has them, for the message.
        lengths: Lengths of texts in tokens.

    Raises:
        RecipeError: naming the longest.
    """
    longest = max(lengths)
    if longest > LONGEST:
        raise RecipeError(
            f"{option} {longest} is more than the {LONGEST} tokens that a text may have here; use {LONGEST} or less."
        )


def check_memory(options: str, least_bytes: float, device: torch.device) -> None:
    """Refuse what cannot fit into the free memory of a device.

    Args:
        options: The options that ask for it, with their values, for the message.
        least_bytes: A lower bound of its memory.
        device: The device that computes.

    Raises:
        RecipeError: with both amounts.
    """
    free = free_bytes(device)
    if least_bytes > free:
        raise RecipeError(
            f"{options} take at least {least_bytes / 1e9:,.0f} GB of memory, but only {free / 1e9:,.0f} GB of "
            f"{device.type} memory are free; use smaller numbers."
        )


def free_bytes(device: torch.device) -> float:
    """Return the free memory of a device; infinity where it does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu":
        return float(psutil.virtual_memory().available)
    return math.inf


def least_forward_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return the bytes that a forward pass holds at once at the very least: input and intermediate of one block.

    Args:
        shape: The model's shape.
        tokens: Tokens of the batch.
        itemsize: Bytes of a number.
    """
    return tokens * (shape.ffn + 2 * shape.hidden) * itemsize


def least_training_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return the bytes that a backward pass needs of the forward pass at the very least.

    That is of every block its intermediate, and the inputs of its four matrix products with one of its attention.

    Args:
        shape: The model's shape.
        tokens: Tokens of the batch.
        itemsize: Bytes of a number.
    """
    return shape.layers * tokens * (shape.ffn + 4 * shape.hidden) * itemsize
