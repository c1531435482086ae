"""Batches that run as one row of their real tokens, and the streams of such a row.

A padded batch `[B, L]` is *packed* to a row `[1, T]` of its T real tokens, sample after sample. A *stream* is a tensor
of a model at a layer, see `streams.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.kernels.packed_attention import HALVES
from limbeck.models.streams import StreamKey, Streams


@dataclass(frozen=True)
class Packing:
    """The places of the real tokens of a batch.

    Args:
        shape: B and L of the batch.
        index: The index of each real token in the batch as a flat list of B · L tokens, in order: `[T]`.
        lengths: The number of real tokens of each sample that has any.
        offsets: The place in the row at which each of these samples begins, and the row's end: int32 `[samples + 1]` on
            a GPU, whose attention needs it; None on a CPU.
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
    """Streams of a batch that ran packed, each of which is unpacked to `[B, L, ...]` when it is looked up.

    Args:
        packing: The places of the row's tokens in the batch.
        rows: Streams with a vector for each token, `[1, T, ...]`.
        padded: All other streams, such as one vector for each sample.
    """

    def __init__(self, packing: Packing, rows: Streams, padded: Streams) -> None:
        self.packing = packing
        self.rows = dict(rows)
        self._padded = dict(padded)

    def __getitem__(self, key: StreamKey) -> Tensor:
        """Return a stream `[B, L, ...]`; one that was packed is replaced by its unpacked form."""
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
        """Return all tensors, packed or not, as they are now."""
        return [*self.rows.values(), *self._padded.values()]

    def changed(self, change: Callable[[Tensor], Tensor]) -> "RowStreams":
        """Return a copy in which `change` has replaced every tensor by one of its shape."""
        rows = {key: change(stream) for key, stream in self.rows.items()}
        padded = {key: change(stream) for key, stream in self._padded.items()}
        return RowStreams(self.packing, rows, padded)


def rows_of_tokens(student: Streams, teacher: Streams) -> tuple[Streams, Streams] | None:
    """Return the packed streams `[1, T, ...]` of both models, if these have the same tokens; else None.

    None is also returned if the teacher ran in float32: there sums over tokens keep the order of the padded batch, so
    that losses do not depend on packing.
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
