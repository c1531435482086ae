"""Drawing which layers learn from which: teacher and student as columns, a line for each pair of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from limbeck.report.draw_legend import Entry, draw_legend
from limbeck.report.marks import (
    DASHES,
    SMALL_TEXT,
    WIDTH,
    Area,
    Drawing,
    Label,
    Mark,
    Point,
    Stroke,
    series_ink,
    shortened,
)

_ROW, _BOX_WIDTH, _BOX_HEIGHT = 19.0, 92.0, 15.0
_TEACHER, _STUDENT = 40.0, WIDTH - 40.0 - _BOX_WIDTH
_BESIDE = 3.0
_CROWDED = 60  # Lines of a kind that are drawn thin.
SCORES = -1
"""Stands for a model's scores (logits), which are above its last layer."""


@dataclass(frozen=True)
class LinkKind:
    """Pairs of layers that the same kind of term joins.

    Args:
        label: The kind.
        pairs: (student layer, teacher layer); 0 is the embedding output, `SCORES` the head's scores.
    """

    label: str
    pairs: Sequence[tuple[int, int]]


def draw_layers(student_depth: int, teacher_depth: int, kinds: Sequence[LinkKind]) -> Drawing:
    """Draw the two models from the embedding output at the bottom to the top, and the kinds of links in turn.

    Layers that take part are filled, the others hollow. The student is spread over the height of its teacher.
    """
    legend, top = draw_legend(
        [Entry(kind.label, series_ink(style), None, DASHES[style % len(DASHES)]) for style, kind in enumerate(kinds)]
    )
    pairs = [pair for kind in kinds for pair in kind.pairs]
    columns = [
        _column(depth, any(pair[side] == SCORES for pair in pairs))
        for side, depth in ((0, student_depth), (1, teacher_depth))
    ]
    height = _ROW * max(len(column) for column in columns)
    start = top + 22
    places = [_places(column, start, height) for column in columns]
    marks: list[Mark] = [
        *legend,
        Label(_TEACHER + _BOX_WIDTH / 2, top + 13, "teacher", "middle", bold=True),
        Label(_STUDENT + _BOX_WIDTH / 2, top + 13, "student", "middle", bold=True),
    ]
    for style, kind in enumerate(kinds):
        shift = _BESIDE * (style - (len(kinds) - 1) / 2)
        for student, teacher in kind.pairs:
            ends: tuple[Point, Point] = (
                (_TEACHER + _BOX_WIDTH, places[1][teacher] + shift),
                (_STUDENT, places[0][student] + shift),
            )
            crowded = len(kind.pairs) > _CROWDED
            dash = DASHES[style % len(DASHES)] if not crowded else ()
            width, opacity = (0.6, 0.4) if crowded else (1.8, 1.0)
            marks.append(Stroke(ends, series_ink(style), width, dash, bent=True, opacity=opacity))
    for side, x in ((0, _STUDENT), (1, _TEACHER)):
        used = {pair[side] for pair in pairs}
        for layer, y in places[side].items():
            marks += _box(x, y, _name(layer), layer in used)
    return Drawing(start + height + 4, tuple(marks))


def _column(depth: int, scores: bool) -> list[int]:
    return [*range(depth + 1), *([SCORES] if scores else [])]


def _places(column: Sequence[int], top: float, height: float) -> dict[int, float]:
    """Where each layer lies, the first at the bottom, evenly over the height."""
    step = height / len(column)
    return {layer: top + height - step * (index + 0.5) for index, layer in enumerate(column)}


def _name(layer: int) -> str:
    return "scores" if layer == SCORES else "embedding" if layer == 0 else f"layer {layer}"


def _box(x: float, y: float, text: str, used: bool) -> Iterator[Mark]:
    half = _BOX_HEIGHT / 2
    corners = ((x, y - half), (x + _BOX_WIDTH, y - half), (x + _BOX_WIDTH, y + half), (x, y + half))
    yield Area(corners, "panel")
    yield Stroke((*corners, corners[0]), "ink" if used else "rule", 1.5 if used else 1.0)
    ink = "ink" if used else "muted"
    label = shortened(text, _BOX_WIDTH, SMALL_TEXT)
    yield Label(x + _BOX_WIDTH / 2, y + 3.8, label, "middle", ink, SMALL_TEXT, bold=used)
