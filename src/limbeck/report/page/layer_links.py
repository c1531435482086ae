"""Which layers a stage joined: its method composed again, for the shapes that the record names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from limbeck.errors import LimbeckError
from limbeck.methods.composition import LABELLED_TASKS, Pairing, Term
from limbeck.methods.registry import METHODS
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.report.page.draw_layers import SCORES, LinkKind

_SHAPE = re.compile(r"(\S+) (\d+)x(\d+), (\d+) heads, FFN (\d+)(?:, embedding (\d+))?")
_MOST_LAYERS = 200


@dataclass(frozen=True)
class LayerLinks:
    """The layers that the terms of a stage join.

    Args:
        student: Depth.
        teacher: Depth.
        terms: The terms.
        kinds: The same, gathered by objective and streams.
    """

    student: int
    teacher: int
    terms: Sequence[Term]
    kinds: Sequence[LinkKind]


def find_links(
    method: Mapping[str, Any],
    student: str,
    teacher: str,
    task: str = "text",
    layer_cosines: Sequence[float] | None = None,
) -> LayerLinks | None:
    """Compose a method for a student and a teacher of recorded shapes.

    Args:
        method: As a recipe's stage has it: its name and options.
        student: The shape of the student, as records write it.
        teacher: The shape of its teacher.
        task: The kind of the stage's labels, or "text".
        layer_cosines: Measured for the mapping "contribution".

    Returns:
        None where the record does not say enough, or says what no method takes.
    """
    shapes = _read_shape(student), _read_shape(teacher)
    name = method.get("name")
    if shapes[0] is None or shapes[1] is None or not isinstance(name, str) or name not in METHODS:
        return None
    known = METHODS[name]
    pairing = Pairing(
        shapes[0],
        shapes[1],
        next((labelled for labelled in LABELLED_TASKS if labelled == task), "text"),
        tuple(layer_cosines) if layer_cosines else None,
    )
    try:
        options = known.options.model_validate({key: value for key, value in method.items() if key != "name"})
        terms = known.compose(options, pairing)
    except (LimbeckError, ValidationError):
        return None
    return LayerLinks(shapes[0].layers, shapes[1].layers, terms, _kinds(terms))


def describe_streams(keys: Sequence[StreamKey]) -> str:
    """Name streams by kind and layer, long lists of one kind by their ends."""
    by_kind: dict[str, list[int]] = {}
    for key in keys:
        by_kind.setdefault(key.kind, []).append(key.layer)
    parts = []
    for kind, layers in by_kind.items():
        unique = sorted(set(layers))
        shown = f"{unique[0]}–{unique[-1]}" if len(unique) > 3 else ", ".join(map(str, unique))
        parts.append(f"{kind} {shown}")
    return "; ".join(parts)


def _read_shape(text: str) -> Shape | None:
    """Read a shape as it writes itself; key heads are taken to be as many as query heads."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    layers, hidden, heads, ffn = (int(found[index]) for index in (2, 3, 4, 5))
    if not 0 < layers <= _MOST_LAYERS or not heads or hidden % heads:
        return None
    embedding = int(found[6]) if found[6] else hidden
    return Shape(found[1], layers, hidden, heads, heads, hidden // heads, ffn, 0, embedding, None)


def _kinds(terms: Sequence[Term]) -> list[LinkKind]:
    """Gather the pairs of layers by what joins them; terms that read no teacher join nothing."""
    found: dict[str, dict[tuple[int, int], None]] = {}
    for term in terms:
        streams = dict.fromkeys(key.kind for key in term.student)
        label = f"{term.objective} ({', '.join(streams)})"
        pairs = found.setdefault(label, {}) if term.teacher else {}
        pairs |= dict.fromkeys((_row(a), _row(b)) for a in term.student for b in term.teacher)
    return [LinkKind(label, tuple(pairs)) for label, pairs in found.items()]


def _row(key: StreamKey) -> int:
    return SCORES if key.kind == "logits" else key.layer
