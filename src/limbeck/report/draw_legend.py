"""Drawing what the lines and symbols of a figure stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.report.marks import SMALL_TEXT, WIDTH, Label, Mark, Marker, Stroke, Symbol, shortened, text_width

_SAMPLE, _GAP, _ROW = 22.0, 14.0, 17.0


@dataclass(frozen=True)
class Entry:
    """A line of a legend.

    Args:
        label: What it stands for.
        ink: Its colour.
        symbol: Its marker, if it has one.
        dash: The dash of its line; None where there is no line.
    """

    label: str
    ink: str
    symbol: Symbol | None
    dash: tuple[float, ...] | None


def draw_legend(entries: Sequence[Entry], top: float = 0.0) -> tuple[list[Mark], float]:
    """Draw a legend from the left to the right, in as many rows as it takes.

    Returns:
        The marks, and where they end below.
    """
    marks: list[Mark] = []
    x, y = 0.0, top + 12
    for entry in entries:
        text = shortened(entry.label, WIDTH - _SAMPLE - 6, SMALL_TEXT)
        width = _SAMPLE + 6 + text_width(text, SMALL_TEXT)
        if x > 0 and x + width > WIDTH:
            x, y = 0.0, y + _ROW
        if entry.dash is not None:
            marks.append(Stroke(((x, y - 4), (x + _SAMPLE, y - 4)), entry.ink, 2.0, entry.dash))
        if entry.symbol is not None:
            marks.append(Marker(x + _SAMPLE / 2, y - 4, entry.symbol, entry.ink))
        marks.append(Label(x + _SAMPLE + 6, y, text, size=SMALL_TEXT))
        x += width + _GAP
    return marks, y + 8
