"""Which layers a stage joined: as its record has them, and its method composed again for the shapes named there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from limbeck.core.records import LayerLink
from limbeck.errors import LimbeckError
from limbeck.methods.composition import LABELLED_TASKS, Pairing, Term
from limbeck.methods.registry import read_method
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.report.plots import SCORES, LinkKind

_SHAPE = re.compile(r"(\S+) (\d+)x(\d+), (\d+) heads, FFN (\d+)(?:, embedding (\d+))?")
_LAYERS = re.compile(r"(_\d+)+$")
_MOST_LAYERS = 200


@dataclass(frozen=True)
class LayerLinks:
    """The layers that the terms of a stage join.

    Args:
        student: Depth.
        teacher: Depth, or where it is not known the highest layer that is read.
        kinds: Pairs of layers, gathered by what joins them.
        headings: Of the table of the terms.
        terms: A row each.
        whole: Whether both depths are known.
    """

    student: int
    teacher: int
    kinds: Sequence[LinkKind]
    headings: tuple[str, ...]
    terms: tuple[tuple[str, ...], ...]
    whole: bool = True

    @property
    def joins(self) -> bool:
        """Whether any layers are joined."""
        return any(kind.pairs for kind in self.kinds)

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """The pairs of numbered layers, without scores."""
        return {pair for kind in self.kinds for pair in kind.pairs if SCORES not in pair}


def find_links(
    method: Mapping[str, Any], student: str, teacher: str, task: str = "text", layer_cosines: Sequence[float] = ()
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
    ours, theirs = _read_shape(student), _read_shape(teacher)
    if ours is None or theirs is None or not isinstance(method.get("name"), str):
        return None
    labels = next((known for known in LABELLED_TASKS if known == task), "text")
    pairing = Pairing(ours, theirs, labels, tuple(layer_cosines) or None)  # type: ignore[arg-type]
    try:
        chosen, options = read_method(method)
        terms = chosen.compose(options, pairing)
    except (LimbeckError, ValidationError):
        return None
    found: dict[str, dict[tuple[int, int], None]] = {}
    for term in terms:  # Those that read no teacher join nothing.
        streams = dict.fromkeys(key.kind for key in term.student)
        pairs = found.setdefault(f"{term.objective} ({', '.join(streams)})", {})
        pairs |= dict.fromkeys((_row(a), _row(b)) for a in term.student for b in term.teacher)
    headings = ("Term", "Objective", "Weight", "Student", "Teacher")
    return LayerLinks(ours.layers, theirs.layers, _kinds(found), headings, tuple(map(_row_of, terms)))


def recorded_links(layers: Sequence[LayerLink], student: str, teacher: str) -> LayerLinks | None:
    """Read the layers that a stage joined as its record has them, whatever its teacher was.

    Args:
        layers: Of the stage's record.
        student: The shape of the student, as records write it; empty if it is not known.
        teacher: The shape of its teacher, likewise.

    Returns:
        None where nothing that can be drawn is recorded.
    """
    found: dict[str, dict[tuple[int, int], None]] = {}
    rows = []
    for entry in layers:
        own, theirs = ([n for n in side if 0 <= n <= _MOST_LAYERS] for side in (entry.student, entry.teacher))
        for term in entry.terms:
            kind = found.setdefault(without_layers(term), {})
            kind |= dict.fromkeys((a, b) for a in own for b in theirs)
            rows.append((term, ", ".join(map(str, own)), ", ".join(map(str, theirs))))
    pairs = [pair for kind in found.values() for pair in kind]
    if not pairs:
        return None
    shapes = _read_shape(student), _read_shape(teacher)
    deepest = (max(pair[side] for pair in pairs) for side in (0, 1))
    depths = [max(shape.layers, deep) if shape else deep for shape, deep in zip(shapes, deepest, strict=True)]
    headings = ("Term", "Student", "Teacher")
    return LayerLinks(depths[0], depths[1], _kinds(found), headings, tuple(rows), None not in shapes)


def _kinds(found: Mapping[str, Mapping[tuple[int, int], None]]) -> list[LinkKind]:
    return [LinkKind(label, tuple(pairs)) for label, pairs in found.items()]


def without_layers(term: str) -> str:
    """Name what terms have in common that differ in their layers only: `hidden` of `hidden_1_2`."""
    return _LAYERS.sub("", term) or term


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


def _row_of(term: Term) -> tuple[str, ...]:
    streams = describe_streams(term.student), describe_streams(term.teacher) or "labels"
    return (term.name, term.objective, f"{term.weight:g}", *streams)


def _row(key: StreamKey) -> int:
    return SCORES if key.kind == "logits" else key.layer
