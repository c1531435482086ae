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
            # There is no padding.
            return packed[0].unflatten(0, self.shape)
        # [B · L, ...].
        slots = packed.new_zeros(batch * length, *packed.shape[2:])
        return slots.index_copy(0, self.index, packed[0]).unflatten(0, self.shape)


class RowStreams(Mapping[StreamKey, Tensor]):
    """Streams of a batch that ran as one row, each put back to `[B, L, ...]` when it is asked for.

    Args:
        packing: Where the tokens of the row were.
        rows: Streams by token, `[1, T, ...]`.
        padded: All others, as they are.
    """

    def __init__(self, packing: Packing, rows: Streams, padded: Streams) -> None:
        self.packing = packing
        self.rows = dict(rows)
        self._padded = dict(padded)

    def __getitem__(self, key: StreamKey) -> Tensor:
        """Return a stream in rows of texts, which it stays from then on."""
        if key not in self._padded:
            self._padded[key] = self.packing.unpack(self.rows.pop(key))
        return self._padded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._padded or key in self.rows

    def __iter__(self) -> Iterator[StreamKey]:
        return iter(self.rows | self._padded)

    def __len__(self) -> int:
        return len(self.rows | self._padded)

    def tensors(self) -> list[Tensor]:
        """Return all tensors, each in the shape that it has by now."""
        return [*self.rows.values(), *self._padded.values()]

    def changed(self, change: Callable[[Tensor], Tensor]) -> "RowStreams":
        """Return a copy in which `change` has replaced every tensor by one of its shape."""
        rows = {key: change(stream) for key, stream in self.rows.items()}
        padded = {key: change(stream) for key, stream in self._padded.items()}
        return RowStreams(self.packing, rows, padded)


def rows_of_tokens(student: Streams, teacher: Streams) -> tuple[Streams, Streams] | None:
    """Return the streams of both models that are rows of the same tokens, `[1, T, ...]`.

    None where the models did not run so, or the teacher ran in float32, where sums over tokens keep the batch's order.
    """
    if not isinstance(student, RowStreams) or not isinstance(teacher, RowStreams):
        return None
    if not _same_tokens(student.packing, teacher.packing):
        return None
    is_teacher_half = any(stream.dtype in HALVES for stream in teacher.rows.values())
    if not is_teacher_half:
        return None
    return student.rows, teacher.rows


def _same_tokens(first: Packing, second: Packing) -> bool:
    """Whether two packings have their real tokens at the same places."""
    if first is second:
        return True
    is_alike = first.shape == second.shape and first.lengths == second.lengths
    return is_alike and torch.equal(first.index, second.index)
