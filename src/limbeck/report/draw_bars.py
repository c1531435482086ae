"""Drawing bars: groups one below the other, each bar with its name, its value and its deviation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from limbeck.report.marks import (
    SMALL_TEXT,
    WIDTH,
    Area,
    Drawing,
    Label,
    Mark,
    Stroke,
    series_ink,
    shortened,
    text_width,
)
from limbeck.report.scales import Axis, make_scale, show

_ROW, _BAR, _HEADING, _BELOW = 17.0, 11.0, 20.0, 36.0
_MOST_FOR_NAMES, _FOR_VALUES = 150.0, 78.0


@dataclass(frozen=True)
class Bar:
    """A bar.

    Args:
        label: What it is of.
        value: Its length.
        deviation: Of the value, where there is one.
        style: Which colour.
        text: The value as it is written; by default with its deviation.
    """

    label: str
    value: float
    deviation: float | None = None
    style: int = 0
    text: str = ""

    @property
    def written(self) -> str:
        """The value as it stands beside the bar."""
        if self.text:
            return self.text
        return show(self.value) if self.deviation is None else f"{show(self.value)} ± {show(self.deviation)}"


@dataclass(frozen=True)
class BarGroup:
    """Bars under a heading."""

    title: str
    bars: Sequence[Bar]


def draw_bars(groups: Sequence[BarGroup], label: str) -> Drawing:
    """Draw groups of bars over one scale that begins at 0, whiskers for deviations, values to the right."""
    bars = [bar for group in groups for bar in group.bars]
    left = min(_MOST_FOR_NAMES, max(text_width(bar.label, SMALL_TEXT) for bar in bars) + 10)
    right = WIDTH - max(_FOR_VALUES, max(text_width(bar.written, SMALL_TEXT) for bar in bars) + 12)
    ends = [bar.value + sign * (bar.deviation or 0.0) for bar in bars for sign in (-1, 1)]
    scale = make_scale(ends, Axis(label, from_zero=True), left, right)
    zero, below = scale.place(0.0), sum(_HEADING + _ROW * len(group.bars) for group in groups) + 4
    marks: list[Mark] = []
    for tick in scale.ticks:
        x = scale.place(tick)
        marks += [
            Stroke(((x, 4), (x, below)), "rule"),
            Label(x, below + 14, scale.label(tick), "middle", "muted", SMALL_TEXT),
        ]
    marks.append(Label((left + right) / 2, below + 30, label, "middle", "muted", SMALL_TEXT))
    y = 0.0
    for group in groups:
        marks.append(Label(0, y + 14, shortened(group.title, WIDTH), bold=True, halo=True))
        y += _HEADING
        for bar in group.bars:
            middle, end = y + _ROW / 2, scale.place(bar.value)
            low, high = sorted((zero, end))
            corners = (
                (low, middle - _BAR / 2),
                (high, middle - _BAR / 2),
                (high, middle + _BAR / 2),
                (low, middle + _BAR / 2),
            )
            marks.append(
                Label(left - 6, middle + 3.5, shortened(bar.label, left - 8, SMALL_TEXT), "end", size=SMALL_TEXT)
            )
            marks.append(Area(corners, series_ink(bar.style), title=f"{group.title}, {bar.label}: {bar.written}"))
            if bar.deviation:
                low, high = (scale.place(bar.value + sign * bar.deviation) for sign in (-1, 1))
                marks += _whisker(low, high, middle)
            marks.append(Label(right + 8, middle + 3.5, bar.written, size=SMALL_TEXT))
            y += _ROW
    marks.append(Stroke(((zero, 4), (zero, below)), "muted"))
    return Drawing(below + _BELOW, tuple(marks))


def _whisker(low: float, high: float, middle: float) -> Iterator[Mark]:
    """Draw a deviation so that it is seen on the bar as beside it."""
    for ink, width in (("paper", 4.0), ("ink", 1.5)):
        yield Stroke(((low, middle), (high, middle)), ink, width)
        for x in (low, high):
            yield Stroke(((x, middle - 3), (x, middle + 3)), ink, width)
