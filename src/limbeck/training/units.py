"""Units of a batch: its tokens, samples, labels, pairs and groups, counted before its forward pass.

The count by which a term's total is divided is proportional to one of these units.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.batches.batch import FILLER
from limbeck.objectives.terms import count_groups, same_group

UNITS = ("token", "sample", "label", "pair", "group")
"""Names of the units, in the order of their counts; see `Objective.unit`."""


def count_units(batch: Mapping[str, Any]) -> Tensor:
    """Count the valid tokens, samples, labelled positions, pairs of valid tokens and groups of samples of a batch.

    Args:
        batch: `attention_mask` `[B, L]`, and `labels` and `groups` where there are any.

    Returns:
        Float64 `[5]` in the order of `UNITS`, on the batch's device: no host sync.
    """
    mask: Tensor = batch["attention_mask"]
    # A filler batch is for a process without rows, and counts nothing.
    if FILLER in batch:
        return mask.new_zeros(len(UNITS), dtype=torch.float64)
    # Adding a number of the host to a tensor of the device needs no copy, as making a tensor of it would.
    zero = mask.new_zeros((), dtype=torch.float64)
    labels = batch.get("labels")
    label_count = zero
    if labels is not None:
        label_count = labels.ne(IGNORED_LABEL).sum(dtype=torch.float64)
    groups = batch.get("groups")
    group_count = zero
    if groups is not None:
        group_count = zero + count_groups(same_group(groups, mask))

    tokens_of_samples = mask.sum(1, dtype=torch.float64)
    counts = {
        "token": mask.sum(dtype=torch.float64),
        "sample": zero + mask.shape[0],
        "label": label_count,
        # Each sample of n valid tokens has n² pairs.
        "pair": tokens_of_samples.square().sum(),
        "group": group_count,
    }
    return torch.stack([counts[unit] for unit in UNITS])


def sum_units(batches: Iterable[Mapping[str, Any]]) -> Tensor:
    """Add up the units of several batches."""
    return torch.stack([count_units(batch) for batch in batches]).sum(0)
