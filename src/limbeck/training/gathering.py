"""Rows and sums over all processes, for terms that couple the samples of a batch."""

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
    if not _shares_batches():
        return rows
    return torch.cat(list(all_gather(rows.contiguous())), dim=0)


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum a tensor of equal shape over all ranks, without gradient; the input itself without distribution."""
    if not _shares_batches():
        return values
    summed = values.detach().clone()
    torch.distributed.all_reduce(summed)
    return summed


def _shares_batches() -> bool:
    """Return whether several processes share each batch."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
