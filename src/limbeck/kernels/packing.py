"""Which samples a kernel takes together, and how their real tokens are packed for it and put back.

On a CPU the lengths can be read for free, so padding is packed away: samples of like length form a group and
their valid tokens move to the front. On any other device reading a length would stall the queue: there every
group keeps the full length, and a mask removes the padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# A group may compute at most this many times the logits that its samples need.
PADDING_ALLOWANCE = 1.15


@dataclass(frozen=True)
class Group:
    """Samples that are computed together, each with `length` token slots.

    Args:
        samples: How many.
        length: Token slots per sample.
        start: First sample, when the samples are consecutive and not packed.
        index: Where the slots come from, flat positions in `[B · L]`, `[samples · length]`; None when not
            packed.
        filled: Slots that hold a valid token, bool `[samples, length]`; None when all do.
    """

    samples: int
    length: int
    start: int = 0
    index: Tensor | None = None
    filled: Tensor | None = None


def plan_groups(vectors: Tensor, valid: Tensor | None, heads: int, block: int, on_host: bool) -> Iterator[Group]:
    """Divide a batch into groups of about `block` logits.

    Args:
        vectors: Any of the operands, `[B, L, width]`.
        valid: Real tokens, bool `[B, L]`; None means all.
        heads: Relation heads.
        block: Logits per group that are aimed at; one sample is the least a group holds.
        on_host: Whether the lengths may be read.

    Yields:
        Groups that hold every valid token once; samples without any are left out where lengths can be read.
    """
    batch, length, _ = vectors.shape
    if batch == 0 or length == 0:
        return
    lengths: list[int] = valid.sum(1).tolist() if valid is not None and on_host else []
    if valid is None or not lengths or min(lengths) == length:
        masked = not lengths
        size = max(1, block // max(1, heads * length * length))
        for start in range(0, batch, size):
            stop = min(start + size, batch)
            yield Group(stop - start, length, start, filled=valid[start:stop] if masked and valid is not None else None)
        return
    # A stable sort puts each sample's valid positions first, in their order.
    order = torch.sort(~valid, dim=1, stable=True).indices
    for members in _alike(lengths, block // heads):
        longest = lengths[members[0]]
        rows = torch.tensor(members, device=valid.device)
        index = (order[rows, :longest] + rows[:, None] * length).flatten()
        ragged = lengths[members[-1]] != longest
        filled = valid.flatten()[index].view(len(members), longest) if ragged else None
        yield Group(len(members), longest, index=index, filled=filled)


def _alike(lengths: list[int], block: int) -> Iterator[list[int]]:
    """Samples by falling length, cut before padding to the first one's length or `block` is exceeded."""
    members: list[int] = []
    needed = 0
    for sample in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        cost = lengths[sample] ** 2
        if cost == 0:
            break
        if members:
            computed = (len(members) + 1) * lengths[members[0]] ** 2
            if computed > block or computed > PADDING_ALLOWANCE * (needed + cost):
                yield members
                members, needed = [], 0
        members.append(sample)
        needed += cost
    if members:
        yield members


def pack(vectors: Tensor, group: Group, heads: int, out: Tensor) -> Tensor:
    """Take a group's vectors apart into units (sample by head).

    Args:
        vectors: `[B, L, width]`.
        group: Which of them.
        heads: Relation heads; divides width.
        out: Where to, `[samples · heads, length, width / heads]`, contiguous, of any dtype.

    Returns:
        `out`, zero in slots that are not filled whatever lay there.
    """
    width = vectors.shape[-1]
    if group.index is None:
        taken = vectors[group.start : group.start + group.samples]
    else:
        taken = vectors.reshape(-1, width).index_select(0, group.index).view(group.samples, group.length, width)
    if group.filled is not None:
        taken = taken.masked_fill(~group.filled[..., None], 0.0)
    units = taken.view(group.samples, group.length, heads, width // heads).transpose(1, 2)
    out.view(units.shape).copy_(units)
    return out


def unpack_into(target: Tensor, units: Tensor, group: Group) -> None:
    """Write a group's gradient back where its vectors came from; slots that are not filled get exactly 0.

    Args:
        target: `[B, L, width]`, or some heads of such; written at the group's positions.
        units: `[samples · heads, width / heads, length]`.
        group: Which positions.
    """
    width = target.shape[-1]
    values = units.reshape(group.samples, width, group.length).transpose(1, 2)
    if group.filled is not None:
        values = values.masked_fill(~group.filled[..., None], 0.0)
    if group.index is None:
        target[group.start : group.start + group.samples] = values
    else:
        target.flatten(0, 1).index_copy_(0, group.index, values.reshape(-1, width))
