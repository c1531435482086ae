"""Pooling: one vector for a row of hidden states."""

from __future__ import annotations

from torch import Tensor

from limbeck.errors import ModelError, suggestion

POOLINGS = ("mean", "cls")


def pool(hidden: Tensor, valid: Tensor, pooling: str) -> Tensor:
    """Pool the hidden states of each row, in float32 (or float64 for float64 input).

    `mean`: the average over valid tokens, and zero for a row without any. `cls`: the first valid token, so that left
    padding does not matter.

    Args:
        hidden: `[B, L, width]`.
        valid: Bool `[B, L]`, True for real tokens.
        pooling: `"mean"` or `"cls"`.

    Returns:
        `[B, width]`.

    Raises:
        ModelError: for another pooling.
    """
    check_pooling(pooling)
    hidden = hidden if hidden.is_floating_point() and hidden.element_size() == 8 else hidden.float()
    if pooling == "mean":
        # Not a product with the mask: a non-finite padding position must not leak.
        kept = hidden.masked_fill(~valid.unsqueeze(-1), 0.0)
        return kept.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
    first = valid.int().argmax(1)
    return hidden.gather(1, first[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)


def check_pooling(pooling: str) -> None:
    """Refuse a pooling that is none of `POOLINGS`.

    Raises:
        ModelError: naming the nearest.
    """
    if pooling not in POOLINGS:
        raise ModelError(f"Unknown pooling '{pooling}'.{suggestion(pooling, POOLINGS)}")
