"""Units of figures in tables for pandas, where a column holds figures of several kinds."""

from typing import TYPE_CHECKING

from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX

if TYPE_CHECKING:
    from pandas import DataFrame

_PERCENT = "%"
_COUNTS = ("parameters", "tokens")
"""Figures that count millions of things."""
_MILLION = 1e6
_NUMBERS = ("mean", "deviation", "low", "high")
"""Columns of numbers in the unit of their row."""


def add_units(table: "DataFrame", name: str, *, without_unit: frozenset[str] = frozenset()) -> "DataFrame":
    """Return a table of figures with a column `unit` behind their names; counts are given in millions.

    Scores of tasks are in percent, and so is the share of the teacher's score, whose column gets another heading.

    Args:
        table: The table, a figure a row.
        name: The column with the names of the figures.
        without_unit: Figures that are plain numbers, such as losses.
    """
    readable = table.copy()
    units = []
    is_count = []
    for figure, metric in zip(table[name], table["metric"], strict=True):
        units.append(_unit_of(str(figure), str(metric), without_unit))
        is_count.append(figure in _COUNTS)
    for column in _NUMBERS:
        values = table[column].astype(float)
        # `mask` replaces the values of those rows that are counts.
        readable[column] = values.mask(is_count, values / _MILLION)
    readable.insert(readable.columns.get_loc(name) + 1, "unit", units)
    return readable.rename(columns={"retention": "retention, %"})


def _unit_of(figure: str, metric: str, without_unit: frozenset[str]) -> str:
    """Return the unit of a figure; empty for a plain number.

    Args:
        figure: The name of the figure.
        metric: The metric of a task's score; anything for another figure.
        without_unit: Figures that are plain numbers.
    """
    if figure in _COUNTS:
        return "million"
    if figure == "seconds":
        return "s"
    if figure.startswith("speedup"):
        return "times"
    if figure in without_unit or metric.endswith(THRESHOLD_SUFFIX):
        return ""
    return _PERCENT
