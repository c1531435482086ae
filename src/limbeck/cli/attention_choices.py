"""Which layers and heads `limbeck inspect attention` draws, read from its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limbeck.inspection import Subject


def read_layers(text: str | None, subjects: Sequence[Subject]) -> list[tuple[int, int]]:
    """Read pairs of a student layer and the teacher layer beside it.

    Args:
        text: Numbers by commas, each alone or with the teacher's after a colon, or `all`; None is the last layer. A
            layer alone stands beside that of the uniform mapping.
        subjects: The model, and its teacher if there is one.

    Raises:
        RecipeError: for other text, or a layer that is not there.
    """
    from limbeck.inspection.attention import check_layers
    from limbeck.methods.layer_mapping import uniform

    depth, teacher_depth = subjects[0].layers, subjects[-1].layers
    beside = uniform(depth, teacher_depth)
    pairs: list[tuple[int, int]] = []
    for part in (str(depth) if text is None else text).split(","):
        if part.strip() == "all":
            pairs += ((layer, teachers[0]) for layer, teachers in beside.items())
            continue
        student, colon, teacher = (piece.strip() for piece in part.partition(":"))
        if not _is_number(student) or (colon and not _is_number(teacher)):
            raise RecipeError(f"--layers '{str(text)[:80]}' has to be all, or layers by commas such as 6 or 3:6,6:12.")
        if colon and len(subjects) == 1:
            raise RecipeError(f"--layers '{str(text)[:80]}' names a layer of a teacher; give --teacher too.")
        check_layers(subjects[0], "student" if len(subjects) > 1 else "model", [int(student)])
        pairs.append((int(student), int(teacher) if colon else beside[int(student)][0]))
    return pairs


def read_heads(text: str, subjects: Sequence[Subject]) -> list[int]:
    """Read the heads: numbers by commas, `mean`, or `all`.

    Raises:
        RecipeError: for other text.
    """
    from limbeck.inspection import MEAN_HEAD
    from limbeck.models.families import heads

    found: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        if part == "mean":
            found.append(MEAN_HEAD)
        elif part == "all":
            found += range(1, heads(subjects[0].model.config) + 1)
        elif _is_number(part) and int(part) > 0:
            found.append(int(part))
        else:
            raise RecipeError(f"--heads '{text[:80]}' has to be mean, all, or numbers from 1 by commas.")
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
