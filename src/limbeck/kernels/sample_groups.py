"""Groups of samples that a kernel computes together.

On a CPU lengths can be read for free, so padding is packed away: samples of like length form a group and their valid
tokens move to the front. On any other device reading a length would stall the queue: there every group keeps the full
length, and a mask removes the padding.
"""

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
    lengths: list[int] = []
    if valid is not None and on_host:
        lengths = valid.sum(1).tolist()

    # Without lengths, or with equal ones, samples stay where they are.
    if not lengths or min(lengths) == length:
        size = max(1, block // max(1, heads * length * length))
        for start in range(0, batch, size):
            stop = min(start + size, batch)
            filled = None
            if valid is not None and not on_host:
                filled = valid[start:stop]
            yield Group(stop - start, length, start, filled=filled)
        return

    assert valid is not None
    # A stable sort puts each sample's valid positions first, in their order.
    order = torch.sort(~valid, dim=1, stable=True).indices
    for members in alike_samples(lengths, block // heads):
        longest = lengths[members[0]]
        rows = torch.tensor(members, device=valid.device)
        index = (order[rows, :longest] + rows[:, None] * length).flatten()
        filled = None
        if lengths[members[-1]] != longest:
            filled = valid.flatten()[index].view(len(members), longest)
        yield Group(len(members), longest, index=index, filled=filled)


def alike_samples(lengths: list[int], block: int, allowance: float = PADDING_ALLOWANCE) -> Iterator[list[int]]:
    """Group samples of like length, the longest first.

    Args:
        lengths: Tokens of each sample; those of 0 are left out.
        block: Logits that a group computes at most, if it is of several samples.
        allowance: How many times the logits that its samples need a group may compute, all padded to its longest.

    Yields:
        Numbers of the samples of a group, by falling length.
    """
    members: list[int] = []
    needed = 0
    longest_first = sorted(range(len(lengths)), key=lambda sample: -lengths[sample])
    for sample in longest_first:
        cost = lengths[sample] ** 2
        if cost == 0:
            # All others are empty too.
            break
        if members:
            # Of the group with this sample, all padded to the first.
            computed = (len(members) + 1) * lengths[members[0]] ** 2
            if computed > block or computed > allowance * (needed + cost):
                yield members
                members = []
                needed = 0
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
