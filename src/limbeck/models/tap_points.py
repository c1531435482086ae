"""Tap points: the streams that a running forward hands out, and the part after which it may stop.

One registered attention function hands out query, key, value and context of any family. It wraps SDPA, so fast
attention stays on and no projection is computed twice. Families that do not go through
`transformers.AttentionInterface` are tapped by hooks on their maps, or refused, never silently left out. Plain dropout
modules and linear maps compute by limbeck's own kernels, which are faster on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from limbeck.kernels.dropout import fast_dropout
from limbeck.kernels.packed_attention import packed_attention
from limbeck.kernels.varlen_attention import varlen_attention
from limbeck.models.family_table import Projections
from limbeck.models.packed_rows import Packing
from limbeck.models.streams import ATTENTION_KINDS, OF_OUTPUT, StreamKey


class StopForward(Exception):  # noqa: N818 - control flow, not an error
    """Leaves a block whose remaining output nobody asked for; caught inside that block."""


@dataclass
class Recorder:
    """Keeps the requested streams of one forward.

    Args:
        wanted: The streams to keep.
        last_layer: The deepest layer that has to run.
        stop_after: The part of `last_layer` that is needed: `"projections"`, `"context"` or `"block"`.
    """

    wanted: tuple[StreamKey, ...]
    last_layer: int
    stop_after: str
    layer: int = 0
    active: bool = False
    packing: Packing | None = None
    found: dict[StreamKey, Tensor] = field(default_factory=dict)

    @classmethod
    def plan(cls, keys: Iterable[StreamKey], depth: int) -> Recorder:
        """Work out the deepest layer and part of it that `keys` need.

        `pooled`, `vector` and `logits` need the whole model; `embedding` needs no block at all.
        """
        wanted = tuple(dict.fromkeys(keys))  # No set, whose members a compiler's guards may fail to find.
        reach = [depth if key.kind in OF_OUTPUT else key.layer for key in wanted]
        last_layer = max(reach, default=0)
        kinds = {key.kind for key, layer in zip(wanted, reach, strict=True) if layer == last_layer}
        beyond_projections = "context" if "context" in kinds else "projections"
        return cls(wanted, last_layer, "block" if kinds - set(ATTENTION_KINDS) else beyond_projections)

    def start(self, packing: Packing | None = None) -> None:
        """Begin a forward with nothing found.

        Args:
            packing: The real tokens, where attention runs over them alone.
        """
        self.layer = 0
        self.packing = packing
        self.active = True
        self.found = {}

    def finish(self) -> dict[StreamKey, Tensor]:
        """End the forward and return the recorded streams, keeping no reference to them."""
        found, self.found, self.active = self.found, {}, False
        return found

    def wants(self, kind: str, layer: int) -> bool:
        """Whether a stream of the running forward is to be kept."""
        return self.active and StreamKey(kind, layer) in self.wanted

    def record(self, kind: str, layer: int, tensor: Tensor) -> None:
        """Keep `tensor` if it was asked for."""
        if self.wants(kind, layer):
            self.found[StreamKey(kind, layer)] = tensor

    def stop_if_done(self, after: str) -> None:
        """Leave the block if nothing beyond `after` in the running layer is needed."""
        if self.layer == self.last_layer and self.stop_after == after:
            raise StopForward


TAPPED_ATTENTION = "limbeck_tap"
_RECORDER = "_limbeck_recorder"


def tapped_attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Run SDPA attention and hand the streams of this layer to the module's recorder.

    Args:
        module: The attention module; a tapped one carries a recorder.
        query: `[B, A, L, D]`, as attention sees it; key and value alike (with their own number of heads).
        key: See `query`.
        value: See `query`.
        attention_mask: The mask that the family's mask function made for SDPA.
        **kwargs: Passed on to SDPA.

    Returns:
        The attention output `[B, L, A, D]` and no attention probabilities.
    """
    recorder: Recorder | None = module.__dict__.get(_RECORDER)
    if recorder is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    layer = recorder.layer
    for kind, tensor in (("query", query), ("key", key), ("value", value)):
        if recorder.wants(kind, layer):
            # `[B, A, L, D]` to `[B, L, A * D]`: a view where the model itself split the heads from that layout.
            recorder.record(kind, layer, tensor.transpose(1, 2).flatten(2))
    recorder.stop_if_done("projections")
    if recorder.active and recorder.packing is not None:
        context, probabilities = _attend_packed(query, key, value, recorder.packing, **kwargs), None
    else:
        context, probabilities = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    recorder.record("context", layer, context.flatten(2))
    recorder.stop_if_done("context")
    return context, probabilities


def _attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> Tensor:
    """Attend within samples of a packed row, `[1, A, T, D]` to `[1, T, A, D]`, or of a batch, `[B, A, L, D]`."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    tokens = [x.transpose(1, 2) for x in (query, key, value)]
    in_rows = tokens[0].shape[:2] == packing.shape
    query, key, value = ((packing.pack(x) if in_rows else x)[0].transpose(0, 1) for x in tokens)
    if packing.offsets is None:
        context = packed_attention(query, key, value, packing.lengths, scale=scale, dropout=dropout)
    else:
        longest = max(packing.lengths)
        context = varlen_attention(query, key, value, packing.offsets, longest, scale=scale, dropout=dropout)
    return packing.unpack(context.unsqueeze(0)) if in_rows else context.unsqueeze(0)


def attach_attention(block: nn.Module, recorder: Recorder) -> None:
    """Give every submodule of a block the recorder; only its attention module ever looks it up."""
    for module in block.modules():
        module.__dict__[_RECORDER] = recorder


# With the mask that SDPA takes.
AttentionInterface.register(TAPPED_ATTENTION, tapped_attention_forward)
AttentionMaskInterface.register(TAPPED_ATTENTION, sdpa_mask)


def attach_projections(
    block: nn.Module, recorder: Recorder, projections: Projections
) -> list[torch.utils.hooks.RemovableHandle]:
    """Record the outputs of a block's query, key and value maps, and the input of its output map.

    Args:
        block: One block.
        recorder: Keeps the wanted streams.
        projections: Where the maps are; they run in the order query, key, value.

    Returns:
        The handles that take the hooks off.
    """
    handles = [
        block.get_submodule(path).register_forward_hook(partial(_record_output, recorder, kind))
        for kind, path in (("query", projections.query), ("key", projections.key), ("value", projections.value))
    ]
    output = block.get_submodule(projections.output)
    handles.append(output.register_forward_pre_hook(partial(_record_context, recorder)))
    return handles


def _record_output(recorder: Recorder, kind: str, module: nn.Module, args: Any, output: Tensor) -> None:
    recorder.record(kind, recorder.layer, output)
    if kind == "value":
        recorder.stop_if_done("projections")


def _record_context(recorder: Recorder, module: nn.Module, args: tuple[Tensor, ...]) -> None:
    recorder.record("context", recorder.layer, args[0])
    recorder.stop_if_done("context")


def attach_dropout(model: nn.Module) -> None:
    """Let the plain dropout modules of a model draw by `fast_dropout`; nothing else of them changes."""
    for module in model.modules():
        if type(module) is nn.Dropout and not module.inplace:
            module.__dict__["forward"] = partial(_drop, module)


def detach(model: nn.Module) -> None:
    """Undo `attach_attention` and `attach_dropout`."""
    for module in model.modules():
        module.__dict__.pop(_RECORDER, None)
        if getattr(module.__dict__.get("forward"), "func", None) is _drop:
            del module.__dict__["forward"]


def _drop(module: nn.Dropout, x: Tensor) -> Tensor:
    return fast_dropout(x, module.p, module.training)
