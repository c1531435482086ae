"""Packing: run a padded batch as one row of its real tokens, so that no layer computes padding.

Linear maps and norms then see real tokens only; attention keeps samples apart by their lengths. Streams are put back
where their tokens were, so that nothing above a tap knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Mean length from which packing pays: attention runs sample by sample, and for shorter ones starting its operations
# costs more than padding does.
SHORTEST_MEAN = 96


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a batch are.

    Args:
        shape: B and L of the batch.
        index: Flat places of the T real tokens in `[B · L]`, in order.
        lengths: Real tokens of each sample that has any.
    """

    shape: tuple[int, int]
    index: Tensor
    lengths: list[int]

    def pack(self, tokens: Tensor) -> Tensor:
        """Take the real tokens of `[B, L, ...]`: `[1, T, ...]`."""
        return tokens.flatten(0, 1).index_select(0, self.index).unsqueeze(0)

    def unpack(self, packed: Tensor) -> Tensor:
        """Put `[1, T, ...]` back to `[B, L, ...]`, with 0 in place of padding."""
        batch, length = self.shape
        if len(self.index) == batch * length:
            return packed[0].unflatten(0, self.shape)
        rows = packed.new_zeros(batch * length, *packed.shape[2:])
        return rows.index_copy(0, self.index, packed[0]).unflatten(0, self.shape)


def plan_packing(attention_mask: Tensor) -> Packing | None:
    """Find the real tokens of a batch; None where packing does not pay.

    Lengths are read on the host, which costs nothing on a CPU; any other device would wait for it.

    Args:
        attention_mask: `[B, L]`, nonzero where a token is real; any shape of mask.
    """
    if attention_mask.device.type != "cpu" or attention_mask.dim() != 2 or torch.compiler.is_compiling():
        return None
    valid = attention_mask.bool()
    lengths = [size for size in valid.sum(1).tolist() if size]
    if not lengths or sum(lengths) < SHORTEST_MEAN * len(lengths):
        return None
    return Packing((valid.shape[0], valid.shape[1]), valid.flatten().nonzero().flatten(), lengths)


def padded_batch_positions(input_ids: Tensor, padding_id: int | None) -> Tensor:
    """Position of every token as its model counts them by itself in a padded batch, `[B, L]`.

    Args:
        input_ids: `[B, L]`.
        padding_id: Where positions are counted from the padding id on, over tokens that are none (the RoBERTa
            lineage); None where they are places in the row.
    """
    if padding_id is None:
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    real = (input_ids != padding_id).long()
    return real.cumsum(1) * real + padding_id
