"""Batches that run as one row of their real tokens, and the streams of such a row."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.kernels.packed_attention import HALVES
from limbeck.models.streams import StreamKey, Streams


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a batch are.

    Args:
        shape: B and L of the batch.
        index: Flat places of the T real tokens in `[B · L]`, in order.
        lengths: Real tokens of each sample that has any.
        offsets: Where each of these begins in the row, and where it ends, int32, on a GPU; None on a CPU.
    """

    shape: tuple[int, int]
    index: Tensor
    lengths: list[int]
    offsets: Tensor | None = None

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


class RowStreams(Mapping[StreamKey, Tensor]):
    """Streams of a batch that ran as one row, each put back to `[B, L, ...]` when it is asked for.

    Args:
        packing: Where the tokens of the row were.
        rows: Streams by token, `[1, T, ...]`.
        made: All others, as they are.
    """

    def __init__(self, packing: Packing, rows: Streams, made: Streams) -> None:
        self.packing = packing
        self.rows = dict(rows)
        self._made = dict(made)

    def __getitem__(self, key: StreamKey) -> Tensor:
        if key not in self._made:
            self._made[key] = self.packing.unpack(self.rows.pop(key))
        return self._made[key]

    def __contains__(self, key: object) -> bool:
        return key in self._made or key in self.rows

    def __iter__(self) -> Iterator[StreamKey]:
        return iter(self.rows | self._made)

    def __len__(self) -> int:
        return len(self.rows | self._made)

    def tensors(self) -> list[Tensor]:
        """Return all that it holds, each stream in the shape that it has by now."""
        return [*self.rows.values(), *self._made.values()]

    def changed(self, change: Callable[[Tensor], Tensor]) -> "RowStreams":
        """Return a copy in which `change` has replaced every tensor by one of its shape."""
        rows = {key: change(stream) for key, stream in self.rows.items()}
        padded = {key: change(stream) for key, stream in self._made.items()}
        return RowStreams(self.packing, rows, padded)


def rows_of_tokens(student: Streams, teacher: Streams) -> tuple[Streams, Streams] | None:
    """Return the streams of both models that are rows of the same tokens, `[1, T, ...]`.

    None where the models did not run so, or the teacher ran in float32, where sums over tokens keep the batch's order.
    """
    if not isinstance(student, RowStreams) or not isinstance(teacher, RowStreams):
        return None
    if not _same_tokens(student.packing, teacher.packing):
        return None
    in_half = any(x.dtype in HALVES for x in teacher.rows.values())
    return (student.rows, teacher.rows) if in_half else None


def _same_tokens(first: Packing, second: Packing) -> bool:
    """Whether two packings have their real tokens at the same places."""
    if first is second:
        return True
    is_alike = first.shape == second.shape and first.lengths == second.lengths
    return is_alike and torch.equal(first.index, second.index)
