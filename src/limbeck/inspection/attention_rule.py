"""A layer's attention, rebuilt from its tapped queries and keys, and the check that it is the model's own.

Fast attention kernels do not return their probabilities, so these are computed anew here. A *stream* is a tensor of
every token at one place of a layer, such as its queries; a *tap* reads streams during a forward pass. The stream
`context` is the output of attention before the output projection, the heads joined.

Axis letters: B batch, A attention heads, L tokens, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.errors import ModelError
from limbeck.inspection.subject import Subject
from limbeck.models import taps
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import blocks, shape_of
from limbeck.models.inference import Batch
from limbeck.models.streams import StreamKey

_TOLERANCE = 1e-3
"""Largest norm of the error of a rebuilt output, as a share of the norm of the model's own output."""
_ROUNDED_TOLERANCE = 3e-2
"""The same for models in float16 and bfloat16."""


@dataclass(frozen=True)
class AttentionRule:
    """How a layer attends, beyond its queries and keys.

    Attributes:
        heads: Query heads A.
        key_heads: Key heads; fewer where several query heads share one.
        scaling: Factor of the product of query and key, usually 1 / sqrt(D).
        causal: Whether a token sees only itself and the tokens before it.
        window: Tokens at this distance or further are not seen; None where tokens at any distance are seen.
    """

    heads: int
    key_heads: int
    scaling: float
    causal: bool
    window: int | None

    def sees_all_of(self, teacher: AttentionRule, length: int) -> bool:
        """Return whether a layer sees every token that a teacher's layer sees, in texts of up to `length` tokens."""
        # A layer that sees both sides never sees less than a causal one with the same window.
        if self.causal and not teacher.causal:
            return False
        return self._reach(length) >= teacher._reach(length)

    def _reach(self, length: int) -> int:
        """Return the smallest distance at which tokens are not seen, in texts of up to `length` tokens."""
        if self.window is None:
            return length
        return min(self.window, length)


def attention_rules(subject: Subject) -> list[AttentionRule]:
    """Return the rule of each layer; item 0 is the rule of layer 1.

    Scaling and window are attributes of the attention modules. Other things that a family may do, such as adding
    position biases to the scores, are not read here; `check_rebuilt` detects them.
    """
    shape = shape_of(subject.model.config)
    rules = []
    for block in blocks(subject.model):
        scaling = shape.head_size**-0.5
        window = None
        # Layers of one model may differ: some families alternate full attention and attention within a window.
        for module in block.modules():
            module_scaling = getattr(module, "scaling", None)
            if module_scaling is not None:
                scaling = float(module_scaling)
            module_window = getattr(module, "sliding_window", None)
            if module_window is not None:
                window = module_window
        rules.append(AttentionRule(shape.heads, shape.key_value_heads, scaling, shape.causal, window))
    return rules


def log_attention(query: Tensor, key: Tensor, valid: Tensor, rule: AttentionRule) -> Tensor:
    """Return the logarithm of the attention probabilities, `log softmax(scaling Q K^T)` over the tokens that are seen.

    Args:
        query: `[B, L, A * D]`, after position encodings that are applied to queries.
        key: `[B, L, key heads * D]`, after position encodings that are applied to keys.
        valid: Bool `[B, L]`, True for real tokens.
        rule: How the layer attends.

    Returns:
        `[B, A, attending token, attended token]`, float32; -inf where a token is not seen. The rows of padding tokens
        have no meaning, but are not -inf throughout, so that the softmax gives no NaN.
    """
    queries = split_heads(query, rule.heads)
    keys = _for_each_head(key, rule)
    # [B, A, L, D] x [B, A, D, L] -> [B, A, L, L].
    scores = queries @ keys.transpose(-1, -2) * rule.scaling
    hidden = ~_seen(valid, rule)[:, None]
    return scores.masked_fill(hidden, float("-inf")).log_softmax(-1)


def split_heads(stream: Tensor, heads: int) -> Tensor:
    """Return a stream `[B, L, heads * D]` by heads, `[B, heads, L, D]`, float32."""
    return stream.float().unflatten(-1, (heads, -1)).transpose(1, 2)


def _for_each_head(stream: Tensor, rule: AttentionRule) -> Tensor:
    """Return keys or values `[B, L, key heads * D]` by query heads, `[B, A, L, D]`."""
    by_key_head = split_heads(stream, rule.key_heads)
    # In grouped-query attention, neighbouring query heads share a key head.
    return by_key_head.repeat_interleave(rule.heads // rule.key_heads, dim=1)


def _seen(valid: Tensor, rule: AttentionRule) -> Tensor:
    """Return which token sees which, bool `[B, attending token, attended token]`.

    Every token sees itself, padding too, so that no row is empty.
    """
    places = torch.arange(valid.shape[1], device=valid.device)
    # Positive where the attended token stands before the attending one.
    distance = places[:, None] - places
    in_reach = torch.ones_like(distance, dtype=torch.bool)
    if rule.window is not None:
        in_reach = distance.abs() < rule.window
    if rule.causal:
        in_reach = in_reach & (distance >= 0)
    is_itself = distance == 0
    return (in_reach & valid[:, None, :]) | is_itself


@torch.no_grad()
def check_rebuilt(subject: Subject, batch: Batch, layers: Sequence[int]) -> None:
    """Refuse a model whose attention does not follow from its queries and keys alone.

    The rebuilt probabilities times the values must give the attention's own output. They do not in families that add
    something to the scores, such as the relative positions of MPNet.

    Args:
        subject: The model.
        batch: Some text.
        layers: The layers to check, from 1.

    Raises:
        ModelError: naming the first layer where they differ.
    """
    rules = attention_rules(subject)
    valid = batch.valid.to(subject.device)
    streams = _read_streams(subject, batch, layers, "query", "key", "value", "context")
    for layer, (query, key, value, context) in zip(layers, streams, strict=True):
        rule = rules[layer - 1]
        # Padding may hold NaN or infinities, which a probability of 0 would not cancel.
        known_value = value.masked_fill(~valid[..., None], 0.0)
        # [B, A, L, L] x [B, A, L, D] -> [B, A, L, D].
        rebuilt = log_attention(query, key, valid, rule).exp() @ _for_each_head(known_value, rule)
        expected = split_heads(context, rule.heads)
        # [B, A, L, D] -> [B, L, A, D], so that `valid` selects the real tokens.
        difference = (rebuilt - expected).transpose(1, 2)[valid]
        error = difference.norm() / expected.transpose(1, 2)[valid].norm()
        tolerance = _TOLERANCE if context.dtype in (torch.float32, torch.float64) else _ROUNDED_TOLERANCE
        # Written with `not`, the condition holds for an error of NaN too.
        if not error < tolerance:
            raise ModelError(
                f"The attention of '{subject.name}' ({subject.model.config.model_type}) cannot be rebuilt from "
                f"queries and keys: the result in layer {layer} is off by {float(error):.1%}, because this family "
                "adds something to the attention scores, such as position biases; use `limbeck inspect "
                "similarity` or `phrases`, which need hidden states only."
            )


def read_attention(subject: Subject, batch: Batch, layers: Sequence[int]) -> list[Tensor]:
    """Run a model on a batch, and return the log probabilities of its attention, see `log_attention`.

    Args:
        subject: The model.
        batch: The texts.
        layers: The layers to return, from 1.

    Returns:
        One tensor `[B, A, L, L]` for each of `layers`.
    """
    rules = attention_rules(subject)
    valid = batch.valid.to(subject.device)
    logarithms = []
    for layer, (query, key) in zip(layers, _read_streams(subject, batch, layers, "query", "key"), strict=True):
        logarithms.append(log_attention(query, key, valid, rules[layer - 1]))
    return logarithms


def _read_streams(subject: Subject, batch: Batch, layers: Sequence[int], *names: str) -> list[list[Tensor]]:
    """Run a model on a batch, and return for each of `layers` its streams in the order of `names`."""
    keys = [StreamKey(name, layer) for layer in layers for name in names]
    with evaluation_mode(subject.model), taps.StreamTap(subject.model, keys) as tap:
        streams = tap(**batch.inputs)
    return [[streams[StreamKey(name, layer)] for name in names] for layer in layers]
