"""Groups of samples that a kernel computes together.

Each sample of a group has as many *slots* for tokens as its longest one has tokens; a slot that holds a valid token is
*filled*. On a CPU lengths can be read for free, so padding is *packed* away: samples of like length form a group, and
their valid tokens move to the front. On any other device the host would wait to read a length. There every group keeps
the full length, and a mask removes the padding. A *unit* is one head of one sample.
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
        samples: Number of samples.
        length: Slots of each sample.
        start: First sample of a group that is not packed, whose samples follow one another.
        index: For a packed group the position in the batch, in `[B · L]`, of the token in each slot,
            `[samples · length]`; None for a group that is not packed.
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
        block: Most logits of a group of several samples; a single sample may have more.
        on_host: Whether lengths may be read to the host.

    Yields:
        Groups that hold every valid token once. Samples without valid tokens are left out where lengths can be read.
    """
    batch, length, _ = vectors.shape
    if batch == 0 or length == 0:
        return
    lengths: list[int] = []
    if valid is not None and on_host:
        lengths = valid.sum(1).tolist()

    # Where lengths may not be read, or every sample has the full length, samples stay where they are.
    if not lengths or min(lengths) == length:
        samples_at_once = max(1, block // max(1, heads * length * length))
        for start in range(0, batch, samples_at_once):
            stop = min(start + samples_at_once, batch)
            # If lengths were read, every slot holds a token here.
            filled = None
            if valid is not None and not on_host:
                filled = valid[start:stop]
            yield Group(stop - start, length, start, filled=filled)
        return

    assert valid is not None
    # A stable sort puts each sample's valid positions first, in their order.
    positions = torch.sort(~valid, dim=1, stable=True).indices
    for members in alike_samples(lengths, block // heads):
        longest = lengths[members[0]]
        shortest = lengths[members[-1]]
        rows = torch.tensor(members, device=valid.device)
        # The positions of the group's slots in the batch as a flat list, `[B · L]`.
        index = (positions[rows, :longest] + rows[:, None] * length).flatten()
        filled = None
        if shortest != longest:
            filled = valid.flatten()[index].view(len(members), longest)
        yield Group(len(members), longest, index=index, filled=filled)


def alike_samples(lengths: list[int], block: int, allowance: float = PADDING_ALLOWANCE) -> Iterator[list[int]]:
    """Group samples of like length, the longest first.

    Args:
        lengths: Tokens of each sample; those of 0 are left out.
        block: Most logits of one head that a group of several samples computes.
        allowance: A group, padded to its longest sample, computes at most this many times the logits that its samples
            need.

    Yields:
        Indices of the samples of a group, the longest first.
    """
    members: list[int] = []
    # Logits that the members need without padding.
    needed = 0
    longest_first = sorted(range(len(lengths)), key=lambda sample: -lengths[sample])
    for sample in longest_first:
        cost = lengths[sample] ** 2
        if cost == 0:
            # The samples that follow are empty too.
            break
        if members:
            # Logits of the group if this sample joined it, all padded to the first member, which is the longest.
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
    """Copy a group's vectors unit by unit.

    Args:
        vectors: Vectors of the batch, `[B, L, width]`.
        group: The group.
        heads: Relation heads; divides width.
        out: Receives them, `[samples · heads, length, width / heads]`, contiguous, of any dtype.

    Returns:
        `out`, with 0 in slots that are not filled, even if the padding holds NaN.
    """
    width = vectors.shape[-1]
    if group.index is None:
        vectors_of_group = vectors[group.start : group.start + group.samples]
    else:
        vectors_of_group = (
            vectors.reshape(-1, width).index_select(0, group.index).view(group.samples, group.length, width)
        )
    if group.filled is not None:
        vectors_of_group = vectors_of_group.masked_fill(~group.filled[..., None], 0.0)
    units = vectors_of_group.view(group.samples, group.length, heads, width // heads).transpose(1, 2)
    out.view(units.shape).copy_(units)
    return out


def unpack_into(target: Tensor, units: Tensor, group: Group) -> None:
    """Write a group's gradient to the places that its vectors came from; slots that are not filled get exactly 0.

    Args:
        target: Gradient of the batch's vectors, or of some heads of them, `[B, L, width]`; changed in place.
        units: Gradient by unit, `[samples · heads, width / heads, length]`.
        group: The group.
    """
    width = target.shape[-1]
    values = units.reshape(group.samples, width, group.length).transpose(1, 2)
    if group.filled is not None:
        values = values.masked_fill(~group.filled[..., None], 0.0)
    if group.index is None:
        target[group.start : group.start + group.samples] = values
    else:
        target.flatten(0, 1).index_copy_(0, group.index, values.reshape(-1, width))
