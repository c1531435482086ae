"""Limits of benchmarks: lengths and memory that are refused before anything is loaded.

The estimates of memory are lower bounds: what they refuse cannot run, and what they let pass may still not fit.
"""

import math
from collections.abc import Iterable

import psutil
import torch

from limbeck.errors import RecipeError
from limbeck.models.families import Shape

LONGEST = 131_072
"""Most tokens of a text for models that are made from a shape; saved models have lower limits of their own."""


def check_length(option: str, lengths: Iterable[int]) -> None:
    """Refuse texts longer than `LONGEST` tokens.

    Args:
        option: The command-line option with the lengths, for the message.
        lengths: Lengths of texts in tokens.

    Raises:
        RecipeError: with the greatest length.
    """
    longest = max(lengths)
    if longest > LONGEST:
        raise RecipeError(
            f"{option} {longest} is more than the {LONGEST} tokens that a benchmark allows in a text; use "
            f"{LONGEST} or less."
        )


def check_memory(options: str, least_bytes: float, device: torch.device) -> None:
    """Refuse a measurement that cannot fit into the free memory of a device.

    Args:
        options: The command-line options that decide its size, with their values, for the message.
        least_bytes: A lower bound of the memory that it takes.
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
    """Return the free memory of a device in bytes; infinity for devices other than CUDA and CPU, which do not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu":
        return float(psutil.virtual_memory().available)
    return math.inf


def least_forward_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return the bytes that a forward pass holds at once at the very least.

    Within a feed-forward layer these are, for each token, the input, the intermediate vector and the output.

    Args:
        shape: The model's shape.
        tokens: Tokens of the batch.
        itemsize: Bytes of a number.
    """
    return tokens * (shape.ffn + 2 * shape.hidden) * itemsize


def least_training_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return the bytes that a backward pass needs of the forward pass at the very least.

    For each token and block these are the intermediate vector of the feed-forward layer, and at least four vectors of
    the hidden width that its other matrix products and its attention have read.

    Args:
        shape: The model's shape.
        tokens: Tokens of the batch.
        itemsize: Bytes of a number.
    """
    return shape.layers * tokens * (shape.ffn + 4 * shape.hidden) * itemsize
