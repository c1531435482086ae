"""Drawing a matrix as a heat map, with its numbers where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from limbeck.report.marks import SMALL_TEXT, WIDTH, Cells, Drawing, Label, Mark, Stroke, shortened, text_width
from limbeck.report.palette import HEAT_LEVELS
from limbeck.report.scales import show

_LARGEST, _FOR_NUMBERS, _FOR_NAMES, _MOST_FOR_NAMES = 30.0, 23.0, 9.0, 84.0
_SCALE_WIDTH, _SCALE_HEIGHT = 120.0, 9.0
_LEAST_WITH_NUMBERS = 0.1  # Two decimals of less say nothing.


@dataclass(frozen=True)
class Heat:
    """A matrix to draw.

    Args:
        values: Rows of values; None where nothing is known.
        row_names: One a row.
        column_names: One a column.
        row_title: What the rows are.
        column_title: What the columns are.
        low: The value that is drawn as paper.
        high: The value that is drawn darkest (lightest on a dark page).
        label: What the values are, with their unit.
        upwards: Whether the first row is at the bottom, as layers are.
    """

    values: Sequence[Sequence[float | None]]
    row_names: Sequence[str]
    column_names: Sequence[str]
    row_title: str
    column_title: str
    low: float
    high: float
    label: str
    upwards: bool = False


def draw_heat(heat: Heat) -> Drawing:
    """Draw a heat map: the scale above it, rows and columns named, numbers in cells that are large enough."""
    rows, columns = len(heat.row_names), len(heat.column_names)
    left = min(_MOST_FOR_NAMES, max((text_width(name, SMALL_TEXT) for name in heat.row_names), default=0) + 8)
    side = min(_LARGEST, (WIDTH - left) / max(columns, 1))
    top = 50.0
    bottom = top + side * rows
    order = list(range(rows - 1, -1, -1) if heat.upwards else range(rows))
    levels: dict[int, list[tuple[float, float, float, float]]] = {}
    numbers: list[Mark] = []
    for place, row in enumerate(order):
        for column, value in enumerate(heat.values[row][:columns]):
            if value is None:
                continue
            x, y, level = left + side * column, top + side * place, _level(heat, value)
            levels.setdefault(level, []).append((x, y, side, side))
            if side >= _FOR_NUMBERS and heat.high >= _LEAST_WITH_NUMBERS:
                text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.1f}"
                numbers.append(Label(x + side / 2, y + side / 2 + 3, text, "middle", size=9, level=level))
    marks: list[Mark] = [
        *_draw_scale(heat),
        Label(0, top - 8, heat.row_title, size=SMALL_TEXT, ink="muted"),
        *(Cells(tuple(boxes), level) for level, boxes in sorted(levels.items())),
        *numbers,
        *_frame(left, top, side * columns, bottom),
    ]
    names, depth = _name_cells(heat, order, (left, top, bottom), side)
    marks += names
    middle = left + side * columns / 2
    marks.append(Label(middle, bottom + depth + 15, heat.column_title, "middle", "muted", SMALL_TEXT))
    return Drawing(bottom + depth + 22, tuple(marks))


def _level(heat: Heat, value: float) -> int:
    share = (value - heat.low) / (heat.high - heat.low) if heat.high > heat.low else 0.0
    return round(HEAT_LEVELS * min(1.0, max(0.0, share)))


def _draw_scale(heat: Heat) -> Iterator[Mark]:
    """Draw what the colours mean."""
    step = _SCALE_WIDTH / (HEAT_LEVELS + 1)
    low = text_width(show(heat.low), SMALL_TEXT) + 6
    for level in range(HEAT_LEVELS + 1):
        yield Cells(((low + step * level, 4, step, _SCALE_HEIGHT),), level)
    yield Label(0, 12, show(heat.low), size=SMALL_TEXT, ink="muted")
    right = low + _SCALE_WIDTH
    yield from _frame(low, 4, _SCALE_WIDTH, 4 + _SCALE_HEIGHT)
    after = f"{show(heat.high)}  {heat.label}"
    yield Label(right + 6, 12, shortened(after, WIDTH - right - 6, SMALL_TEXT), size=SMALL_TEXT, ink="muted")


def _frame(left: float, top: float, width: float, bottom: float) -> Iterator[Mark]:
    right = left + width
    corners = ((left, top), (right, top), (right, bottom), (left, bottom), (left, top))
    yield Stroke(corners, "rule")


def _name_cells(
    heat: Heat, order: Sequence[int], box: tuple[float, float, float], side: float
) -> tuple[list[Mark], float]:
    """Name rows and columns, some of them where they are many; long names of columns are turned."""
    left, top, bottom = box
    every = max(1, round(_FOR_NAMES / side + 0.49))
    marks: list[Mark] = [
        Label(
            left - 4,
            top + side * (place + 0.5) + 3.5,
            shortened(heat.row_names[row], left - 6, SMALL_TEXT),
            "end",
            size=SMALL_TEXT,
        )
        for place, row in enumerate(order)
        if row % every == 0
    ]
    turned = max((text_width(name, SMALL_TEXT) for name in heat.column_names), default=0) > side
    depth = 14.0
    for column, name in enumerate(heat.column_names):
        if column % every:
            continue
        x = left + side * (column + 0.5)
        if turned:
            text = shortened(name, _MOST_FOR_NAMES, SMALL_TEXT)
            depth = max(depth, text_width(text, SMALL_TEXT) + 8)
            marks.append(Label(x + 3.5, bottom + 5, text, "end", size=SMALL_TEXT, turned=True))
        else:
            marks.append(Label(x, bottom + 13, name, "middle", size=SMALL_TEXT))
    return marks, depth
