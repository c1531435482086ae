"""Gathering the rows of a batch over ranks, for terms that couple samples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.nn.functional import all_gather


def gather_rows(rows: Tensor) -> Tensor:
    """Join the rows of all ranks along dimension 0; gradients flow back to the rank they belong to.

    Every rank must hold the same number of rows, as its data loader sees to.

    Args:
        rows: `[B, ...]` of this rank.

    Returns:
        `[ranks * B, ...]`; the input itself without distribution.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    if torch.distributed.get_world_size() == 1:
        return rows
    return torch.cat(list(all_gather(rows.contiguous())), dim=0)
