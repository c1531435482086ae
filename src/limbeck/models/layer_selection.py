"""The teacher's layers that a student's layers start from, by a strategy or a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from limbeck.errors import ModelError, suggestion

LAYER_STRATEGIES = ("random", "first", "last", "uniform", "ends")

LayerStrategy: TypeAlias = str | Sequence[int]


def selected_layers(strategy: LayerStrategy, student_depth: int, teacher_depth: int) -> list[int]:
    """Return the teacher layer that each student layer is copied from.

    With S = `student_depth`, T = `teacher_depth` and i = 1..S:

    - `random`: none, the empty list;
    - `first`: i, the truncated teacher;
    - `last`: T − S + i;
    - `uniform`: min(k·i, T) with k = ⌈T/S⌉, for example 2, 4, 6 for 3 of 6;
    - `ends`: evenly spaced from the first to the last, 1 + ⌊(i−1)(T−1)/(S−1)⌋, for example 1, 3, 6; T alone
    for S = 1;
    - explicit: S teacher layers. They may repeat and need not increase.

    Args:
        strategy: One of `LAYER_STRATEGIES`, or the layers themselves, counted from 1.
        student_depth: Layers of the student, at least 1.
        teacher_depth: Layers of the teacher, at least 1.

    Raises:
        ModelError: for an unknown strategy, a student deeper than its teacher (explicit layers may repeat),
            explicit layers of another number than the student has, or out of range.
    """
    if not isinstance(strategy, str):
        check_listed(strategy, student_depth, teacher_depth)
        return list(strategy)
    if strategy not in LAYER_STRATEGIES:
        raise ModelError(
            f"Unknown layer strategy '{strategy}'.{suggestion(strategy, LAYER_STRATEGIES)} You can also list the "
            "layers, as in [1, 3, 6]."
        )
    if strategy == "random":
        return []
    # The named strategies take each teacher layer at most once.
    if student_depth > teacher_depth:
        raise ModelError(
            f"A student of {student_depth} layers cannot start from the '{strategy}' layers of a teacher of "
            f"{teacher_depth}, because it would need more layers than there are; list the layers yourself (they "
            "may repeat), or set layers: random."
        )
    return named_layers(strategy, student_depth, teacher_depth)


def check_listed(listed: Sequence[int], student_depth: int, teacher_depth: int) -> None:
    """Refuse a list with a layer that the teacher lacks, or without one layer for each of the student's.

    Args:
        listed: The teacher's layers that the student's start from, counted from 1.
        student_depth: Number of the student's layers.
        teacher_depth: Number of the teacher's layers.

    Raises:
        ModelError: one line.
    """
    for layer in listed:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 1 <= layer <= teacher_depth:
            raise ModelError(f"Teacher layer {layer!r} does not exist: this teacher's layers are 1 to {teacher_depth}.")
    if len(listed) != student_depth:
        raise ModelError(
            f"The student has {student_depth} layers, but {len(listed)} teacher layers are listed to start from "
            f"({list(listed)}); list one teacher layer for each student layer."
        )


def named_layers(strategy: str, student: int, teacher: int) -> list[int]:
    """Return the teacher layers that a strategy selects, counted from 1; for the formulas see `selected_layers`.

    Args:
        strategy: `last`, `uniform`, `ends` or `first`.
        student: Number of the student's layers.
        teacher: Number of the teacher's layers.
    """
    student_layers = range(1, student + 1)
    if strategy == "last":
        return [teacher - student + i for i in student_layers]
    if strategy == "uniform":
        step = math.ceil(teacher / student)
        return [min(step * i, teacher) for i in student_layers]
    if strategy == "ends":
        if student == 1:
            return [teacher]
        return [1 + (i - 1) * (teacher - 1) // (student - 1) for i in student_layers]
    # The remaining strategy is `first`.
    return list(student_layers)
