"""Attention maps of one sentence: which token looks at which, teacher beside student."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from limbeck.errors import ModelError, RecipeError
from limbeck.evaluation.inference import evaluation_mode
from limbeck.inspection.attention_rules import attention_keys, attention_rules, check_rebuilt, rebuild
from limbeck.inspection.batches import batches, encode
from limbeck.inspection.subject import Subject, check_comparable
from limbeck.models.families import heads
from limbeck.models.taps import StreamTap

MEAN_HEAD = 0
"""Stands for the mean over all heads where a head is asked for."""


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
        _check_heads(subject, role, heads_shown)
    row = encode(student.tokenizer, [sentence])["input_ids"][0]
    for subject in subjects.values():
        _check_sentence(subject, row)
    found = {role: _maps(subject, role, row, wanted[role], heads_shown) for role, subject in subjects.items()}
    ours = next(iter(found.values()))
    beside = found.get("teacher", [None] * len(ours))
    tokens = tuple(student.tokenizer.convert_ids_to_tokens(row))
    name = None if teacher is None else teacher.name
    return AttentionMaps(student.name, name, tokens, tuple(zip(ours, beside, strict=True)))


@torch.no_grad()
def _maps(
    subject: Subject, role: str, row: list[int], layers: Sequence[int], heads_shown: Sequence[int]
) -> list[AttentionMap]:
    batch = next(batches([row], subject.tokenizer, device=subject.device))
    check_rebuilt(subject, batch, sorted(set(layers)))
    rules = attention_rules(subject)
    with evaluation_mode(subject.model), StreamTap(subject.model, attention_keys(layers)) as tap:
        streams = tap(**batch.inputs)
    maps = []
    for layer in layers:
        found = rebuild(streams, layer, batch.valid, rules[layer - 1]).exp()[0].cpu()
        for head in heads_shown:
            values = found.mean(0) if head == MEAN_HEAD else found[head - 1]
            maps.append(AttentionMap(role, layer, head, tuple(map(tuple, values.tolist()))))
    return maps


def check_layers(subject: Subject, role: str, layers: Sequence[int]) -> None:
    """Refuse a layer that a model does not have.

    Raises:
        RecipeError: naming it.
    """
    for layer in layers:
        if not 1 <= layer <= subject.layers:
            raise RecipeError(
                f"There is no layer {layer}: the {role} '{subject.name}' has layers 1 to {subject.layers}."
            )


def _check_heads(subject: Subject, role: str, heads_shown: Sequence[int]) -> None:
    highest = heads(subject.model.config)
    for head in heads_shown:
        if head != MEAN_HEAD and not 1 <= head <= highest:
            raise RecipeError(
                f"There is no head {head}: the {role} '{subject.name}' has heads 1 to {highest}; 'mean' is all of them."
            )


def _check_sentence(subject: Subject, row: list[int]) -> None:
    if not row:
        raise ModelError("The sentence has no token; give one with words.")
    if subject.longest is not None and len(row) > subject.longest:
        raise ModelError(
            f"The sentence has {len(row)} tokens, but '{subject.name}' takes {subject.longest}; give a shorter one."
        )
