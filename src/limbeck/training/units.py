"""Units of a batch: what the counts of terms are proportional to, known before its first backward."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.batches.batch import FILLER
from limbeck.objectives.terms import count_groups, same_group

UNITS = ("token", "sample", "label", "pair", "group")


def count_units(batch: Mapping[str, Any]) -> Tensor:
    """Count the valid tokens, samples, labelled positions, pairs of valid tokens and groups of samples of a batch.

    Args:
        batch: `attention_mask` `[B, L]`, and `labels` and `groups` where there are any.

    Returns:
        Float64 `[5]` in the order of `UNITS`, on the batch's device: no host sync.
    """
    mask: Tensor = batch["attention_mask"]
    if FILLER in batch:
        return mask.new_zeros(len(UNITS), dtype=torch.float64)
    labels, groups = batch.get("labels"), batch.get("groups")
    zero = mask.new_zeros((), dtype=torch.float64)
    return torch.stack(
        [
            mask.sum(dtype=torch.float64),
            zero + mask.shape[0],
            zero if labels is None else labels.ne(IGNORED_LABEL).sum(dtype=torch.float64),
            mask.sum(1, dtype=torch.float64).square().sum(),
            zero if groups is None else zero + count_groups(same_group(groups, mask)),
        ]
    )


def sum_units(batches: Iterable[Mapping[str, Any]]) -> Tensor:
    """Add up the units of several batches."""
    return torch.stack([count_units(batch) for batch in batches]).sum(0)
