"""Units: what the counts of a batch are proportional to, known before its first backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

UNITS = ("token", "sample", "label", "pair")
IGNORED_LABEL = -100
FILLER = "filler"
"""Key of a batch that only keeps a process in step with the others: it counts nothing."""


def count_units(batch: Mapping[str, Any]) -> Tensor:
    """Count the valid tokens, the samples, the labelled positions and the pairs of valid tokens of a batch.

    Args:
        batch: `attention_mask` `[B, L]`, and `labels` where there are any.

    Returns:
        Float64 `[4]` in the order of `UNITS`, on the batch's device: no host sync.
    """
    mask: Tensor = batch["attention_mask"]
    if FILLER in batch:
        return mask.new_zeros(len(UNITS), dtype=torch.float64)
    labels: Tensor | None = batch.get("labels")
    zero = mask.new_zeros((), dtype=torch.float64)
    return torch.stack(
        [
            mask.sum(dtype=torch.float64),
            zero + mask.shape[0],
            zero if labels is None else labels.ne(IGNORED_LABEL).sum(dtype=torch.float64),
            mask.sum(1, dtype=torch.float64).square().sum(),
        ]
    )


def sum_units(batches: Iterable[Mapping[str, Any]]) -> Tensor:
    """Add up the units of several batches."""
    return torch.stack([count_units(batch) for batch in batches]).sum(0)
