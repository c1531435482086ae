"""Divergence of the student's attention from the teacher's: the mean of every pair of layers, head by head.

Axis letters: B batch, A attention heads, L tokens, S/T number of student and teacher layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress
from limbeck.core.studies import MEAN_HEAD as MEAN_HEAD
from limbeck.errors import ModelError, RecipeError
from limbeck.inspection.subject import Subject, check_comparable, tokenise
from limbeck.models import taps, tokenizers
from limbeck.models.families import blocks, shape_of
from limbeck.models.inference import Batch, batches
from limbeck.models.streams import StreamKey

# From tapped query and key streams back to attention probabilities, and the proof that they are the model's.
#
# Axis letters: B batch, A attention heads, L tokens, D head width.


_TOLERANCE = 1e-3
_ROUNDED_TOLERANCE = 3e-2  # float16 and bfloat16


@dataclass(frozen=True)
class AttentionRule:
    """How a layer attends, beyond its queries and keys.

    Attributes:
        heads: Query heads A.
        key_heads: Key heads; fewer where several query heads share one.
        scaling: What query times key is multiplied by.
        causal: Whether a token sees only itself and the tokens before it.
        window: Tokens at this distance or further are not seen; None where all are.
    """

    heads: int
    key_heads: int
    scaling: float
    causal: bool
    window: int | None

    def sees_all_of(self, other: AttentionRule, length: int) -> bool:
        """Whether every token that `other` sees in texts of up to `length` tokens is seen here too."""
        ours, theirs = (rule.window if rule.window is not None else length for rule in (self, other))
        return (other.causal or not self.causal) and min(ours, length) >= min(theirs, length)


def attention_rules(subject: Subject) -> list[AttentionRule]:
    """Return how each layer attends: item 0 is layer 1.

    Scaling and window are read off the attention modules. Whatever else a family does is not known here;
    `check_rebuilt` finds out.
    """
    config = subject.model.config
    shape = shape_of(config)
    rules = []
    for block in blocks(subject.model):
        found: dict[str, Any] = {"scaling": shape.head_size**-0.5, "sliding_window": None}
        for module in block.modules():
            found |= {name: value for name in found if (value := getattr(module, name, None)) is not None}
        sizes = shape.heads, shape.key_value_heads, float(found["scaling"])
        rules.append(AttentionRule(*sizes, shape.causal, found["sliding_window"]))
    return rules


def log_attention(query: Tensor, key: Tensor, valid: Tensor, rule: AttentionRule) -> Tensor:
    """Return the logarithm of the attention probabilities, `log softmax(scaling Q K^T)` over the tokens that are seen.

    Args:
        query: `[B, L, A * D]`, as attention sees it.
        key: `[B, L, key heads * D]`, likewise.
        valid: Bool `[B, L]`, True for real tokens.
        rule: How the layer attends.

    Returns:
        `[B, A, L, L]`, float32; -inf where a token is not seen. Rows of padding mean nothing, but are finite somewhere.
    """
    scores = split_heads(query, rule.heads) @ _for_each_head(key, rule).transpose(-1, -2) * rule.scaling
    return scores.masked_fill(~_seen(valid, rule)[:, None], float("-inf")).log_softmax(-1)


def split_heads(stream: Tensor, heads: int) -> Tensor:
    """`[B, L, heads * D]` to `[B, heads, L, D]`, float32."""
    return stream.float().unflatten(-1, (heads, -1)).transpose(1, 2)


def _for_each_head(stream: Tensor, rule: AttentionRule) -> Tensor:
    return split_heads(stream, rule.key_heads).repeat_interleave(rule.heads // rule.key_heads, dim=1)


def _seen(valid: Tensor, rule: AttentionRule) -> Tensor:
    """Return which token sees which, bool `[B, L, L]`; each sees itself, so that no row is empty."""
    places = torch.arange(valid.shape[1], device=valid.device)
    distance = places[:, None] - places
    seen = torch.ones_like(distance, dtype=torch.bool) if rule.window is None else distance.abs() < rule.window
    if rule.causal:
        seen = seen & (distance >= 0)
    return (seen & valid[:, None, :]) | (distance == 0)


@torch.no_grad()
def check_rebuilt(subject: Subject, batch: Batch, layers: Sequence[int]) -> None:
    """Refuse a model whose attention is more than its queries and keys, by comparing its output with theirs.

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
    found = _streams(subject, batch, layers, "query", "key", "value", "context")
    for layer, (query, key, value, context) in zip(layers, found, strict=True):
        rule = rules[layer - 1]
        value = value.masked_fill(~valid[..., None], 0.0)
        rebuilt = log_attention(query, key, valid, rule).exp() @ _for_each_head(value, rule)
        wanted = split_heads(context, rule.heads)
        error = (rebuilt - wanted).transpose(1, 2)[valid].norm() / wanted.transpose(1, 2)[valid].norm()
        tolerance = _TOLERANCE if context.dtype in (torch.float32, torch.float64) else _ROUNDED_TOLERANCE
        if not error < tolerance:
            raise ModelError(
                f"The attention of '{subject.name}' ({subject.model.config.model_type}) cannot be rebuilt from queries "
                f"and keys: in layer {layer} it is off by {float(error):.1%}, since the family adds something to the "
                "scores, such as position biases; use `similarity` or `phrases`, which need hidden states only."
            )


def read_attention(subject: Subject, batch: Batch, layers: Sequence[int]) -> list[Tensor]:
    """Run a model; return each layer's log probabilities, `[B, A, L, L]`, see `log_attention`."""
    rules, valid = attention_rules(subject), batch.valid.to(subject.device)
    streams = zip(layers, _streams(subject, batch, layers, "query", "key"), strict=True)
    return [log_attention(query, key, valid, rules[layer - 1]) for layer, (query, key) in streams]


def _streams(subject: Subject, batch: Batch, layers: Sequence[int], *kinds: str) -> list[list[Tensor]]:
    """Run a model; return the streams of these kinds in each layer."""
    keys = [[StreamKey(kind, layer) for kind in kinds] for layer in layers]
    with (
        taps.evaluation_mode(subject.model),
        taps.StreamTap(subject.model, [key for each in keys for key in each]) as tap,
    ):
        found = tap(**batch.inputs)
    return [[found[key] for key in each] for each in keys]


_ENTRIES = 2**18  # of a map, over the rows of a batch


@dataclass(frozen=True)
class AttentionDivergence:
    """Every layer of the student beside every layer of the teacher.

    Attributes:
        student: The student's name.
        teacher: The teacher's name.
        by_head: Whether heads are compared one by one; else it is the maps' mean over heads, since the models differ in
            their number.
        values: `values[s][t][a]` is the mean of KL(teacher || student) over the tokens, in nats, for student layer
            s + 1, teacher layer t + 1 and head a + 1 (one entry unless `by_head`). NaN where the student's layer cannot
            see a token that the teacher's sees.
        tokens: Tokens that the means are over.
        cut: Texts that were cut to the longest length.
    """

    student: str
    teacher: str
    by_head: bool
    values: tuple[tuple[tuple[float, ...], ...], ...]
    tokens: int
    cut: int

    @property
    def means(self) -> tuple[tuple[float, ...], ...]:
        """The mean over heads for every pair of layers, `[S, T]`."""
        return tuple(tuple(math.fsum(pair) / len(pair) for pair in row) for row in self.values)

    @property
    def nearest(self) -> tuple[int, ...]:
        """For every layer of the student, from 1, the teacher layer with the lowest mean, from 1."""
        known = [[math.inf if math.isnan(mean) else mean for mean in row] for row in self.means]
        return tuple(row.index(min(row)) + 1 for row in known)


@torch.no_grad()
def measure_divergence(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 128, report: Report = no_progress
) -> AttentionDivergence:
    """Measure the mean divergence of attention distributions over some texts, all pairs of layers at once.

    For each real token KL(teacher || student) = sum of p_T (log p_T - log p_S) over the tokens it looks at; padding
    takes no part. The mean is over all tokens of all texts, as in MiniLM (arXiv 2002.10957, section 3.1).

    Args:
        student: A model.
        teacher: Another with the same tokenizer.
        texts: Any number.
        length: Longest input in tokens, special tokens included; lowered to what both models can take.
        report: Receives progress.

    Raises:
        ModelError: if the two read text differently, or a model's attention cannot be rebuilt.
        CorpusError: if the texts hold no token.
    """
    check_comparable(student, teacher)
    rows = tokenise(student.tokenizer, texts, length, student.longest, teacher.longest)
    longest = max(map(len, rows.ids))
    by_head = shape_of(student.model.config).heads == shape_of(teacher.model.config).heads
    entropy, cross, tokens = torch.zeros(()), torch.zeros(()), 0
    size = max(1, _ENTRIES // longest**2)
    read = batches(rows.ids, student.tokenizer, device=student.device, batch_size=size, report=report, what="Attention")
    for number, batch in enumerate(read):
        both = []
        for subject in (student, teacher):
            layers = range(1, subject.layers + 1)
            if number == 0:
                check_rebuilt(subject, batch, layers)
            maps = torch.stack(read_attention(subject, batch, layers))
            # The mean over heads is one of probabilities.
            both.append(maps if by_head else maps.logsumexp(2, keepdim=True) - math.log(maps.shape[2]))
        of_teacher, of_both = divergence_sums(both[0], both[1], batch.valid.to(student.device))
        entropy, cross = entropy + of_teacher.cpu(), cross + of_both.cpu()
        tokens += int(batch.valid.sum())
    values = (entropy[None] + cross) / tokens
    for s, ours in enumerate(attention_rules(student)):
        for t, theirs in enumerate(attention_rules(teacher)):
            if not ours.sees_all_of(theirs, longest):
                values[s, t] = float("nan")
    found = tuple(tuple(tuple(pair) for pair in row) for row in values.tolist())
    return AttentionDivergence(student.name, teacher.name, by_head, found, tokens, rows.cut)


def divergence_sums(student: Tensor, teacher: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the two halves of KL(teacher || student) over the real tokens of a batch.

    Args:
        student: Log probabilities `[S, B, A, L, L]`; -inf where a token is not seen.
        teacher: Log probabilities `[T, B, A, L, L]`.
        valid: Bool `[B, L]`.

    Returns:
        The sum of p_T log p_T, `[T, A]`, and that of -p_T log p_S, `[S, T, A]`, float64. Where the student cannot see a
        token, it adds nothing to the second.
    """
    # Filled, not multiplied: neither what padding holds nor 0 times -inf must leak.
    padding = ~valid[:, None, :, None]
    probabilities = teacher.exp().masked_fill(padding, 0.0)
    seen = student.masked_fill(padding | (student == float("-inf")), 0.0)
    entropy = -torch.special.entr(probabilities).sum((1, 3, 4), dtype=torch.float64)
    cross = torch.einsum("tbaij,sbaij->sta", probabilities, seen)
    return entropy, -cross.double()


# Attention maps of one sentence: which token looks at which, teacher beside student.


@dataclass(frozen=True)
class AttentionMap:
    """One map.

    Attributes:
        role: `"student"` or `"teacher"`; `"model"` for one alone.
        layer: From 1.
        head: From 1, or `MEAN_HEAD`.
        values: `values[i][j]` is how much token i looks at token j; each row sums to 1.
    """

    role: str
    layer: int
    head: int
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class AttentionMaps:
    """The maps of a sentence.

    Attributes:
        student: The model's name.
        teacher: The teacher's name, or None without one.
        tokens: The sentence as the models read it.
        pairs: For each layer pair and head the student's map and, with a teacher, the teacher's.
    """

    student: str
    teacher: str | None
    tokens: tuple[str, ...]
    pairs: tuple[tuple[AttentionMap, AttentionMap | None], ...]


def draw_maps(
    student: Subject,
    teacher: Subject | None,
    sentence: str,
    *,
    layers: Sequence[tuple[int, int]],
    heads_shown: Sequence[int] = (MEAN_HEAD,),
) -> AttentionMaps:
    """Compute the attention maps of a sentence.

    Args:
        student: A model.
        teacher: Another with the same tokenizer, or None to look at one model alone.
        sentence: A text that fits both models.
        layers: Pairs of a student layer and the teacher layer beside it, from 1; the second counts only with a teacher.
        heads_shown: From 1; `MEAN_HEAD` is the mean over all heads, which models of different head numbers share.

    Raises:
        ModelError: if the models read text differently, the sentence is empty or too long, or a model's attention
            cannot be rebuilt.
        RecipeError: for a layer or head that a model does not have.
    """
    subjects = {"model": student} if teacher is None else {"student": student, "teacher": teacher}
    if teacher is not None:
        check_comparable(student, teacher)
    wanted = {role: [pair[side] for pair in layers] for side, role in enumerate(subjects)}
    for role, subject in subjects.items():
        check_layers(subject, role, wanted[role])
        heads = [head for head in heads_shown if head != MEAN_HEAD]
        highest = shape_of(subject.model.config).heads
        _check_numbers("head", heads, highest, f"{role} '{subject.name}'", "; 'mean' stands for all of them")
    row = tokenizers.encode_texts(student.tokenizer, [sentence])["input_ids"][0]
    if not row:
        raise ModelError("The sentence has no tokens; give one with words.")
    for subject in subjects.values():
        if subject.longest is not None and len(row) > subject.longest:
            raise ModelError(
                f"The sentence has {len(row)} tokens, but '{subject.name}' takes {subject.longest}; give a shorter one."
            )
    ours, *rest = (_maps(subject, role, row, wanted[role], heads_shown) for role, subject in subjects.items())
    theirs = rest[0] if rest else [None] * len(ours)
    tokens = tuple(student.tokenizer.convert_ids_to_tokens(row))
    beside = None if teacher is None else teacher.name
    return AttentionMaps(student.name, beside, tokens, tuple(zip(ours, theirs, strict=True)))


@torch.no_grad()
def _maps(
    subject: Subject, role: str, row: list[int], layers: Sequence[int], heads_shown: Sequence[int]
) -> list[AttentionMap]:
    batch = next(batches([row], subject.tokenizer, device=subject.device))
    check_rebuilt(subject, batch, sorted(set(layers)))
    maps = []
    for layer, logarithms in zip(layers, read_attention(subject, batch, layers), strict=True):
        found = logarithms.exp()[0].cpu()
        for head in heads_shown:
            values = found.mean(0) if head == MEAN_HEAD else found[head - 1]
            maps.append(AttentionMap(role, layer, head, tuple(map(tuple, values.tolist()))))
    return maps


def check_layers(subject: Subject, role: str, layers: Sequence[int]) -> None:
    """Refuse a layer that a model does not have.

    Raises:
        RecipeError: naming it.
    """
    _check_numbers("layer", layers, subject.layers, f"{role} '{subject.name}'")


def _check_numbers(kind: str, numbers: Sequence[int], most: int, owner: str, hint: str = "") -> None:
    for number in numbers:
        if not 1 <= number <= most:
            raise RecipeError(f"There is no {kind} {number}: the {owner} has {kind}s 1 to {most}{hint}.")
