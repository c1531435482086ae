"""Measuring the terms of a module on batches, without changing anything that training draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.training.units import FILLER


def measure_terms(
    model: nn.Module, batches: Iterable[Any], prepare: Callable[[Any], Mapping[str, Any]]
) -> tuple[dict[str, Tensor], int]:
    """Add up every term over batches.

    Args:
        model: The module, or its wrapper; left in the mode that it is in.
        batches: What to measure on.
        prepare: Brings a batch to the device.

    Returns:
        Total and count of each term, float64 `[2]`, and the number of rows.
    """
    was_training = model.training
    model.eval()
    sums: dict[str, Tensor] = {}
    rows = 0
    # A data loader draws a seed: measuring must not change what is drawn in training.
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for batch in batches:
            inputs = prepare(batch)
            counts = 0 if FILLER in inputs else 1
            rows += counts * inputs["input_ids"].shape[0]
            for name, (total, count) in model(**without_marks(inputs)).items():
                pair = torch.stack([total.double(), count.double()]) * counts
                sums[name] = sums[name] + pair if name in sums else pair
    model.train(was_training)
    return sums, rows


def without_marks(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a batch the module takes."""
    return {name: value for name, value in batch.items() if name != FILLER}
