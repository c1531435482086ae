"""Attention maps of one sentence: which token looks at which, teacher beside student.

A *map* is the matrix of attention probabilities of one head, or of the mean over the heads, in one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from limbeck.core.studies import MEAN_HEAD as MEAN_HEAD
from limbeck.errors import ModelError, RecipeError
from limbeck.inspection.attention_rule import check_rebuilt, read_attention
from limbeck.inspection.results import AttentionMap, AttentionMaps
from limbeck.inspection.subject import Subject, check_comparable
from limbeck.models import tokenizers
from limbeck.models.families import shape_of
from limbeck.models.inference import batches


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
        teacher: Another model with the same tokenizer, or None to look at one model alone.
        sentence: A text that fits both models.
        layers: Pairs (student layer, teacher layer) to show side by side, counted from 1. Without a teacher the second
            number is ignored.
        heads_shown: Heads to show of each layer, counted from 1. `MEAN_HEAD` stands for the mean over all heads, by
            which models with different numbers of heads can be compared.

    Raises:
        ModelError: if the models read text differently, the sentence is empty or too long, or a model's attention
            cannot be rebuilt.
        RecipeError: for a layer or head that a model does not have.
    """
    # One model is called "model" in messages and maps, two are called "student" and "teacher".
    student_layers = [student_layer for student_layer, _ in layers]
    if teacher is None:
        sides = [_Side("model", student, student_layers)]
    else:
        check_comparable(student, teacher)
        teacher_layers = [teacher_layer for _, teacher_layer in layers]
        sides = [_Side("student", student, student_layers), _Side("teacher", teacher, teacher_layers)]
    single_heads = [head for head in heads_shown if head != MEAN_HEAD]
    for side in sides:
        check_layers(side.subject, side.role, side.layers)
        number_of_heads = shape_of(side.subject.model.config).heads
        owner = f"{side.role} '{side.subject.name}'"
        _check_numbers("head", single_heads, number_of_heads, owner, "; 'mean' stands for all of them")

    # Both models have the same tokenizer, so the student's token ids are the teacher's too.
    token_ids = tokenizers.encode_texts(student.tokenizer, [sentence])["input_ids"][0]
    if not token_ids:
        raise ModelError("The sentence has no tokens; give a sentence with words.")
    for side in sides:
        _check_length(side.subject, len(token_ids))

    student_maps = _maps(sides[0], token_ids, heads_shown)
    teacher_maps: Sequence[AttentionMap | None] = [None] * len(student_maps)
    teacher_name = None
    if teacher is not None:
        teacher_maps = _maps(sides[1], token_ids, heads_shown)
        teacher_name = teacher.name
    return AttentionMaps(
        student=student.name,
        teacher=teacher_name,
        tokens=tuple(student.tokenizer.convert_ids_to_tokens(token_ids)),
        pairs=tuple(zip(student_maps, teacher_maps, strict=True)),
    )


class _Side(NamedTuple):
    """One of the compared models.

    Args:
        role: What messages and maps call it: "student", "teacher", or "model" for one alone.
        subject: The model.
        layers: Its layers to show, from 1, one for each of the layer pairs; a layer may occur several times.
    """

    role: str
    subject: Subject
    layers: list[int]


@torch.no_grad()
def _maps(side: _Side, token_ids: list[int], heads_shown: Sequence[int]) -> list[AttentionMap]:
    """Return the maps of a sentence: all shown heads of the first layer, then those of the next."""
    batch = next(batches([token_ids], side.subject.tokenizer, device=side.subject.device))
    check_rebuilt(side.subject, batch, sorted(set(side.layers)))
    log_probabilities = read_attention(side.subject, batch, side.layers)
    maps = []
    for layer, logarithms in zip(side.layers, log_probabilities, strict=True):
        # [1, A, L, L] -> [A, L, L], since the batch is one sentence.
        probabilities = logarithms.exp()[0].cpu()
        for head in heads_shown:
            # Heads are counted from 1, the axis from 0.
            values = probabilities.mean(0) if head == MEAN_HEAD else probabilities[head - 1]
            rows = tuple(tuple(weights) for weights in values.tolist())
            maps.append(AttentionMap(role=side.role, layer=layer, head=head, values=rows))
    return maps


def check_layers(subject: Subject, role: str, layers: Sequence[int]) -> None:
    """Refuse a layer that a model does not have.

    Raises:
        RecipeError: naming it.
    """
    _check_numbers("layer", layers, subject.layers, f"{role} '{subject.name}'")


def _check_length(subject: Subject, tokens: int) -> None:
    """Refuse a sentence that is too long for a model."""
    if subject.longest is not None and tokens > subject.longest:
        raise ModelError(
            f"The sentence has {tokens} tokens, but '{subject.name}' takes at most {subject.longest}; give a "
            "shorter sentence."
        )


def _check_numbers(unit: str, numbers: Sequence[int], most: int, owner: str, hint: str = "") -> None:
    """Refuse a number of a layer or head that is not from 1 to `most`.

    Args:
        unit: "layer" or "head", for the message.
        numbers: The numbers to check.
        most: How many layers or heads there are.
        owner: The model that has them, for the message.
        hint: The end of the message.
    """
    for number in numbers:
        if not 1 <= number <= most:
            raise RecipeError(
                f"{unit.capitalize()} {number} does not exist: the {owner} has {unit}s 1 to {most}{hint}."
            )
