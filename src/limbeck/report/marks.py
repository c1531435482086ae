"""The few marks that every figure of a report is made of, drawn by a browser as by matplotlib.

Lengths are in units of a figure that is `WIDTH` units wide; y grows downwards. An ink is a name of the palette.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

WIDTH = 420.0
TEXT_SIZE = 12.0
SMALL_TEXT = 10.5
Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]
Symbol: TypeAlias = Literal["circle", "square", "triangle", "diamond", "wedge", "cross"]

SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "triangle", "diamond", "wedge", "cross")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2), (8, 2, 2, 2), (4, 1.5), (1, 3))
"""One of each for every series: what colour tells apart, shape does too."""
_WIDTH_OF_A_LETTER = 0.59
_OUTLINES: dict[Symbol, tuple[Point, ...]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "diamond": ((0, -1.3), (1.2, 0), (0, 1.3), (-1.2, 0)),
    "wedge": ((-1.1, -0.9), (1.1, -0.9), (0, 1.1)),
    "cross": (
        *((-1.2, -0.7), (-0.7, -1.2), (0, -0.5), (0.7, -1.2), (1.2, -0.7), (0.5, 0)),
        *((1.2, 0.7), (0.7, 1.2), (0, 0.5), (-0.7, 1.2), (-1.2, 0.7), (-0.5, 0)),
    ),
}


@dataclass(frozen=True)
class Stroke:
    """A line through points; with `bent` an S from the first to the second."""

    kind: ClassVar[str] = "stroke"
    points: tuple[Point, ...]
    ink: str
    width: float = 1.0
    dash: tuple[float, ...] = ()
    bent: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    """A filled outline."""

    kind: ClassVar[str] = "area"
    points: tuple[Point, ...]
    ink: str
    opacity: float = 1.0
    title: str = ""


@dataclass(frozen=True)
class Cells:
    """Squares of a heat map that have the same level: (x, y, width, height) each."""

    kind: ClassVar[str] = "cells"
    boxes: tuple[tuple[float, float, float, float], ...]
    level: int


@dataclass(frozen=True)
class Marker:
    """A symbol at a point; hollow ones show the paper."""

    kind: ClassVar[str] = "marker"
    x: float
    y: float
    symbol: Symbol
    ink: str
    size: float = 3.5
    hollow: bool = False
    title: str = ""

    @property
    def outline(self) -> tuple[Point, ...]:
        """Its corners; empty for a circle."""
        return tuple((self.x + self.size * x, self.y + self.size * y) for x, y in _OUTLINES.get(self.symbol, ()))


@dataclass(frozen=True)
class Label:
    """A line of text; with a halo it is read over lines, and on a cell of a heat map its ink is that of the level."""

    kind: ClassVar[str] = "label"
    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    ink: str = "ink"
    size: float = TEXT_SIZE
    bold: bool = False
    turned: bool = False
    halo: bool = False
    level: int | None = None


Mark: TypeAlias = Stroke | Area | Cells | Marker | Label


@dataclass(frozen=True)
class Drawing:
    """Marks in the order they are drawn, `WIDTH` wide."""

    height: float
    marks: tuple[Mark, ...]


def series_ink(style: int) -> str:
    """Return the ink of the n-th series; they repeat after the last."""
    return f"series-{style % len(SYMBOLS) + 1}"


def text_width(text: str, size: float = TEXT_SIZE) -> float:
    """Return about how wide a line of text is."""
    return len(text) * size * _WIDTH_OF_A_LETTER


def shortened(text: str, room: float, size: float = TEXT_SIZE) -> str:
    """Cut a text in the middle so that it fits into a width; names differ at both ends."""
    most = max(3, int(room / (size * _WIDTH_OF_A_LETTER)))
    if len(text) <= most:
        return text
    head = (most - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
