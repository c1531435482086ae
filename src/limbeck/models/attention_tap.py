"""The attention tap: one registered attention function that hands out query, key, value and context of any family.

It wraps SDPA, so fast attention stays on and no projection is computed twice. Families that do not go through
`transformers.AttentionInterface` are refused when a model is tapped, never silently left out.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from limbeck.kernels.packed_attention import packed_attention
from limbeck.models.recorder import Recorder, StopForward

TAPPED_ATTENTION = "limbeck_tap"
_RECORDER = "_limbeck_recorder"


def _concatenate_heads(per_head: Tensor) -> Tensor:
    """`[B, A, L, D]` to `[B, L, A * D]`; a view where the model itself split the heads from that layout."""
    return per_head.transpose(1, 2).flatten(2)


def tapped_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Run SDPA attention and hand the streams of this layer to the module's recorder.

    Args:
        module: The attention module; a tapped one carries a recorder.
        query: `[B, A, L, D]`, as attention sees it; key and value alike (with their own number of heads).
        key: See `query`.
        value: See `query`.
        attention_mask: What the family's mask function made for SDPA.
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
            recorder.record(kind, layer, _concatenate_heads(tensor))
    if recorder.stops_at(layer, "projections"):
        raise StopForward
    if recorder.active and recorder.lengths is not None:
        context, probabilities = _attend_packed(query, key, value, recorder.lengths, **kwargs), None
    else:
        context, probabilities = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if recorder.wants("context", layer):
        recorder.record("context", layer, context.flatten(2))
    if recorder.stops_at(layer, "context"):
        raise StopForward
    return context, probabilities


def _attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: list[int],
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> Tensor:
    """Attend within the samples of a packed row, `[1, A, T, D]` each; the result is `[1, T, A, D]`."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return packed_attention(query[0], key[0], value[0], lengths, scale=scale, dropout=dropout).unsqueeze(0)


def register() -> None:
    """Make the tapped attention known to transformers, with the mask that SDPA takes."""
    AttentionInterface.register(TAPPED_ATTENTION, tapped_attention_forward)
    AttentionMaskInterface.register(TAPPED_ATTENTION, sdpa_mask)


def attach(block: nn.Module, recorder: Recorder) -> None:
    """Give every submodule of a block the recorder; only its attention module ever looks it up."""
    for module in block.modules():
        module.__dict__[_RECORDER] = recorder


def detach(block: nn.Module) -> None:
    """Undo `attach`."""
    for module in block.modules():
        module.__dict__.pop(_RECORDER, None)


register()
