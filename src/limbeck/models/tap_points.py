"""Tap points: the places in a running model where streams are recorded, and where it may stop.

A *stream* is a tensor of a model at a layer, such as `hidden` or `query`; see `streams.py`. One attention function,
which is registered with transformers, records query, key, value and context of most families. It calls SDPA (PyTorch's
scaled dot-product attention), so fast attention stays on and no projection is computed twice. Families that do not go
through `transformers.AttentionInterface` are tapped by hooks on their maps, or refused, never silently left out. Plain
dropout modules draw by limbeck's own kernel, which is faster on a CPU.

Axis letters: B batch, L tokens, T real tokens of a packed batch, A heads, D head size.
"""

from __future__ import annotations

from collections import defaultdict
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
from limbeck.models.stop_forward import StopForward
from limbeck.models.streams import OF_ATTENTION, OF_OUTPUT, StreamKey


@dataclass
class Recorder:
    """Keeps the requested streams of one forward.

    Args:
        wanted: The streams to keep.
        last_layer: The deepest layer that has to run.
        stop_after: The part of `last_layer` that is needed: `"projections"`, `"context"` or `"block"`.
        layer: The layer that runs now, counted from 1.
        active: Whether a forward is running.
        packing: The places of the real tokens, if attention runs packed; see `packing.py`.
        streams: The streams that are recorded so far.
    """

    wanted: tuple[StreamKey, ...]
    last_layer: int
    stop_after: str
    layer: int = 0
    active: bool = False
    packing: Packing | None = None
    streams: dict[StreamKey, Tensor] = field(default_factory=dict)

    @classmethod
    def plan(cls, keys: Iterable[StreamKey], depth: int) -> Recorder:
        """Return a recorder for some streams, which knows the deepest layer that has to run, and how much of it.

        Layer 0 is the embedding, which needs no block to run; the layers of the blocks begin with 1. `pooled`, `vector`
        and `logits` need the whole model.
        """
        # A tuple without repetitions, since torch.compile has trouble with sets.
        wanted = tuple(dict.fromkeys(keys))
        names_by_layer: defaultdict[int, set[str]] = defaultdict(set)
        for key in wanted:
            needed_layer = depth if key.name in OF_OUTPUT else key.layer
            names_by_layer[needed_layer].add(key.name)
        last_layer = max(names_by_layer, default=0)
        names_of_last = names_by_layer[last_layer]

        # Streams of attention are made before the end of the block, the context after the projections.
        needs_whole_block = any(name not in OF_ATTENTION for name in names_of_last)
        if needs_whole_block:
            stop_after = "block"
        elif "context" in names_of_last:
            stop_after = "context"
        else:
            stop_after = "projections"
        return cls(wanted, last_layer, stop_after)

    def start(self, packing: Packing | None = None) -> None:
        """Begin a forward with no streams.

        Args:
            packing: The places of the real tokens, if attention runs packed.
        """
        self.layer = 0
        self.packing = packing
        self.active = True
        self.streams = {}

    def finish(self) -> dict[StreamKey, Tensor]:
        """End the forward and return the recorded streams, keeping no reference to them."""
        streams = self.streams
        self.streams = {}
        self.active = False
        return streams

    def wants(self, name: str, layer: int) -> bool:
        """Whether a stream of the running forward is to be kept."""
        return self.active and StreamKey(name, layer) in self.wanted

    def record(self, name: str, layer: int, tensor: Tensor) -> None:
        """Keep `tensor` if it was asked for."""
        if self.wants(name, layer):
            self.streams[StreamKey(name, layer)] = tensor

    def stop_if_done(self, after: str) -> None:
        """Leave the block, by raising, if the part `after` of the running layer is the last that is needed."""
        if self.layer == self.last_layer and self.stop_after == after:
            raise StopForward


TAPPED_ATTENTION = "limbeck_tap"
"""The name of the tapped attention in transformers."""
_RECORDER = "_limbeck_recorder"
"""Attribute of a tapped block's modules: the recorder."""


def tapped_attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Run SDPA attention, and give the wanted ones of query, key, value and context to the module's recorder.

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
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if recorder.wants(name, layer):
            # `[B, A, L, D]` to `[B, L, A * D]`: a view where the model itself split the heads from that layout.
            recorder.record(name, layer, tensor.transpose(1, 2).flatten(2))
    recorder.stop_if_done("projections")

    probabilities = None
    if recorder.active and recorder.packing is not None:
        context = _attend_packed(query, key, value, recorder.packing, **kwargs)
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
    """Attend within the samples of a packed row `[1, A, T, D]`, or of a padded batch `[B, A, L, D]`.

    In the latter case only attention is packed: its inputs are packed here, and its output is unpacked.

    Returns:
        The attention output, `[1, T, A, D]` or `[B, L, A, D]`.
    """
    # Several query heads may share a key head.
    queries_of_a_key = query.shape[1] // key.shape[1]
    if queries_of_a_key > 1:
        key = key.repeat_interleave(queries_of_a_key, 1)
        value = value.repeat_interleave(queries_of_a_key, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling

    # A packing has the shape of the padded batch, [B, L].
    is_padded_batch = (query.shape[0], query.shape[2]) == packing.shape
    row_query = _packed_heads(query, packing, is_padded_batch)
    row_key = _packed_heads(key, packing, is_padded_batch)
    row_value = _packed_heads(value, packing, is_padded_batch)
    if packing.offsets is None:
        context = packed_attention(row_query, row_key, row_value, packing.lengths, scale=scale, dropout=dropout)
    else:
        context = varlen_attention(
            row_query, row_key, row_value, packing.offsets, max(packing.lengths), scale=scale, dropout=dropout
        )
    # [1, T, A, D].
    row = context.unsqueeze(0)
    return packing.unpack(row) if is_padded_batch else row


def _packed_heads(operand: Tensor, packing: Packing, is_padded_batch: bool) -> Tensor:
    """Return a packed row `[1, A, T, D]`, or the real tokens of a padded batch `[B, A, L, D]`, as `[A, T, D]`."""
    if not is_padded_batch:
        return operand[0]
    # [B, L, A, D] -> [1, T, A, D] -> [A, T, D].
    tokens = packing.pack(operand.transpose(1, 2))
    return tokens[0].transpose(0, 1)


def attach_attention(block: nn.Module, recorder: Recorder) -> None:
    """Give every submodule of a block the recorder; only its attention module ever looks it up."""
    for module in block.modules():
        module.__dict__[_RECORDER] = recorder


# The mask is made as for SDPA, which the tapped attention calls.
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
    paths = {"query": projections.query, "key": projections.key, "value": projections.value}
    handles = []
    for name, path in paths.items():
        hook = partial(_record_output, recorder, name)
        handles.append(block.get_submodule(path).register_forward_hook(hook))
    output = block.get_submodule(projections.output)
    handles.append(output.register_forward_pre_hook(partial(_record_context, recorder)))
    return handles


def _record_output(recorder: Recorder, name: str, module: nn.Module, args: Any, output: Tensor) -> None:
    """Keep the output of a query, key or value map."""
    recorder.record(name, recorder.layer, output)
    if name == "value":
        recorder.stop_if_done("projections")


def _record_context(recorder: Recorder, module: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Keep the input of the output map."""
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
        own_forward = module.__dict__.get("forward")
        if isinstance(own_forward, partial) and own_forward.func is _drop:
            del module.__dict__["forward"]


def _drop(module: nn.Dropout, x: Tensor) -> Tensor:
    """Run a dropout module by limbeck's own kernel."""
    return fast_dropout(x, module.p, module.training)
