"""Checks that methods share: heads and widths that fit each other, and terms that have a weight."""

from __future__ import annotations

from collections.abc import Iterable

from limbeck.errors import RecipeError
from limbeck.methods.layer_mapping import most_relation_heads, stream_width
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import Term


def equal_heads(pairing: Pairing, *, method: str, otherwise: str = "") -> int:
    """Return the number of attention heads that both models have.

    Args:
        pairing: The two models.
        method: Name of the method, for the message.
        otherwise: A way out other than `minilmv2`, for the message.

    Raises:
        RecipeError: if the numbers differ, or if query heads share keys in one of the models.
    """
    student = pairing.student
    teacher = pairing.teacher_shape
    way_out = "use minilmv2, which needs no equal heads"
    if otherwise:
        way_out = f"{otherwise}, or use minilmv2"
    if student.heads != teacher.heads:
        raise RecipeError(
            f"{method} compares attention head by head, so the student needs the teacher's {teacher.heads} heads, not "
            f"{student.heads}; set student.shape.heads: {teacher.heads}, or {way_out}."
        )
    for owner, shape in (("student", student), ("teacher", teacher)):
        if shape.key_value_heads != shape.heads:
            raise RecipeError(
                f"{method} compares attention head by head, but the {owner}'s {shape.heads} query heads share "
                f"{shape.key_value_heads} key heads; {way_out}."
            )
    return teacher.heads


def check_equal_widths(pairing: Pairing, *, method: str, compared: str, otherwise: str) -> None:
    """Refuse a student of another width, for methods that compare vectors without a map.

    Args:
        pairing: The two models.
        method: Name of the method, for the message.
        compared: Name of the vectors, for the message.
        otherwise: Another way out, for the message.

    Raises:
        RecipeError: if the widths differ.
    """
    if pairing.student.hidden != pairing.teacher.width:
        raise RecipeError(
            f"{method} compares {compared} without a map, so the student must be {pairing.teacher.width} wide, as "
            f"the teacher is, not {pairing.student.hidden}; change student.shape or {otherwise}."
        )


def check_relation_heads(pairing: Pairing, heads: int, streams: Iterable[str], *, example: int | None = None) -> None:
    """Refuse relation heads that do not divide the streams of both models.

    Args:
        pairing: The two models.
        heads: Relation heads.
        streams: Names of the streams, such as `"query"`.
        example: A number that fits, for the message.

    Raises:
        RecipeError: naming the first stream that they do not divide.
    """
    such_as = "" if example is None else f" such as {example}"
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        for stream in streams:
            width = stream_width(shape, stream)
            if heads < 1 or width % heads:
                raise RecipeError(
                    f"relation_heads {heads} does not divide the width {width} of the {owner}'s {stream}; "
                    f"use a divisor of both models' widths{such_as}, or 'auto'."
                )


def check_whole_rotary_heads(pairing: Pairing, heads: int, streams: Iterable[str], *, example: int) -> None:
    """Refuse a number of relation heads that cuts through attention heads of rotary positions.

    Rotary positions turn the features of an attention head in pairs, so that only whole heads can be related.

    Args:
        pairing: The two models.
        heads: Relation heads.
        streams: Names of the streams, such as `"query"`.
        example: A number that fits, for the message.

    Raises:
        RecipeError: naming the first stream whose attention heads they cut.
    """
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        for stream in streams:
            most = most_relation_heads(shape, stream)
            if most % heads:
                raise RecipeError(
                    f"relation_heads {heads} cuts through the {most} attention heads of the {owner}'s {stream}, "
                    "which rotary positions turn in pairs of features, so that the same words would be related "
                    "differently at another place; use a divisor of both models' attention heads such as "
                    f"{example}, or 'auto'."
                )


def check_rotary_pairs(pairing: Pairing, pairs: Iterable[str]) -> None:
    """Refuse relations of values with queries or keys that are turned by their position.

    Values are not turned, so such a relation would depend on the place of the words in the text.

    Args:
        pairing: The two models.
        pairs: Pairs of streams that are related, such as `"query-value"`.

    Raises:
        RecipeError: for the first such pair.
    """
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        for pair in pairs:
            first, second = pair.split("-")
            mixes_values = "value" in (first, second) and first != second
            if shape.rotary and mixes_values:
                raise RecipeError(
                    f"Relation '{pair}' mixes values with vectors that the {owner}'s rotary positions turn, so "
                    "that the same words would be related differently at another place; relate values with "
                    "values, and queries and keys with each other."
                )


def weighted_terms(terms: Iterable[Term], *, method: str) -> list[Term]:
    """Leave out the terms of weight 0.

    Args:
        terms: The terms.
        method: Name of the method, for the message.

    Raises:
        RecipeError: if none is left.
    """
    weighted = [term for term in terms if term.weight > 0]
    if not weighted:
        raise RecipeError(
            f"{method} has only weights of 0, so it would learn nothing; give at least one weight a value above 0."
        )
    return weighted
