"""`TeacherReader`: a frozen teacher, run as far as somebody needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel

from limbeck.core.ranks import process_count
from limbeck.methods.composition import Term
from limbeck.models.families import blocks
from limbeck.models.packing import pack_linear_maps, unpack_linear_maps
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap


class TeacherReader:
    """Reads a teacher's streams for one student, or for many at once.

    It is no `nn.Module`: whoever holds it keeps the teacher out of parameters, state dict and gradient reducer.

    Args:
        teacher: The model that is read; frozen here, and cut above the deepest stream that is needed.
        terms: The terms of all students that are served; a stream is computed once however many read it.
        pooling: How `pooled` streams are made.
        sharded: Shard its layers over the processes, if there are several, when it is moved.
    """

    def __init__(
        self, teacher: PreTrainedModel, terms: Iterable[Term], *, pooling: str = "mean", sharded: bool = False
    ) -> None:
        self._sharded = sharded and process_count() > 1
        teacher.eval().requires_grad_(False)
        self.teacher = teacher
        self.tap = StreamTap(teacher, stream_keys(term.teacher for term in terms), drop_above=True, pooling=pooling)

    @torch.no_grad()
    def read(
        self, input_ids: Tensor, attention_mask: Tensor, scored: Tensor | None = None, **inputs: Tensor
    ) -> Streams:
        """Run the teacher, in the number format of its own weights.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`.
            scored: Bool `[B, L]`, the tokens that are scored over the vocabulary; None means all.
            **inputs: Further inputs.
        """
        with torch.autocast(device_type=input_ids.device.type, enabled=False):
            return self.tap(input_ids, attention_mask, scored=scored, **inputs)

    def move(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place the teacher where it stays.

        Args:
            device: Where.
            pack: On a CPU, lay its weights out for its products once; a compiler cannot see through that.
        """
        if self._sharded:
            _shard(self.teacher, torch.device(device))
            return
        unpack_linear_maps(blocks(self.teacher))
        self.teacher.to(device)
        if pack and torch.device(device).type == "cpu":
            pack_linear_maps(blocks(self.teacher))

    def close(self) -> None:
        """Take the tap off and unpack; blocks stay dropped."""
        unpack_linear_maps(blocks(self.teacher))
        self.tap.close()


def _shard(teacher: PreTrainedModel, device: torch.device) -> None:
    """Shard every block of its own, so that a forward that stops early leaves no wrapper half way."""
    if isinstance(blocks(teacher)[0], FSDPModule):
        return
    mesh = init_device_mesh(device.type, (process_count(),))
    for block in blocks(teacher):
        fully_shard(block, mesh=mesh, reshard_after_forward=True)  # Else a block of its own would stay whole.
    teacher.to(device)


def stream_keys(groups: Iterable[Collection[StreamKey]]) -> set[StreamKey]:
    """Join the streams of all terms."""
    return {key for group in groups for key in group}
