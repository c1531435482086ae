"""The pictures of a mapping search: its evolution, and the distribution of every score in each generation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from limbeck.report.drawing import Picture

_DARK, _WARM = "#1b4f8a", "#c8551b"  # told apart in grey and by the colour-blind
_PANELS_A_ROW = 3
_SPREAD = 0.12  # of the dots of a generation, sideways, so that equal ones are seen


def mapping_pictures(record: Mapping[str, Any]) -> dict[str, Picture]:
    """Return the pictures by their files' names; none of a search without a generation."""
    if not record["generations"]:
        return {}
    return {"evolution": evolution_picture(record), "distribution": distribution_picture(record)}


def evolution_picture(record: Mapping[str, Any]) -> Picture:
    """Draw highest, mean and lowest fitness over the generations, the deviation around the mean, and every member."""
    rows = record["generations"]
    numbers = np.array([row["number"] for row in rows])
    mean, deviation = (np.array([row[name] for row in rows]) for name in ("mean", "deviation"))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(numbers, mean - deviation, mean + deviation, color=_DARK, alpha=0.15, linewidth=0)
    axes.plot(numbers, [row["maximum"] for row in rows], color=_WARM, marker="^", linestyle="-", label="highest")
    axes.plot(numbers, mean, color=_DARK, marker="o", linestyle="-", label="mean, with deviation")
    axes.plot(numbers, [row["minimum"] for row in rows], color=_DARK, marker="v", linestyle=":", label="lowest")
    for number, values in zip(numbers, members_of(record, "fitness"), strict=True):
        axes.plot(*_scattered(int(number), values), linestyle="", marker=".", color="#808080", markersize=4)
    title = f"Evolution of the layer mapping: {record['name']}"
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(_fitness_label(record))
    _number_generations(axes)
    axes.legend(fontsize=9)
    course = "; ".join(
        f"generation {row['number']}: highest {row['maximum']:.2f}, mean {row['mean']:.2f}, lowest {row['minimum']:.2f}"
        for row in rows
    )
    return Picture(figure, title, f"{_fitness_label(record)} of the members of each generation. {course}.")


def distribution_picture(record: Mapping[str, Any]) -> Picture:
    """Draw how every score is distributed in each generation, a panel a score, as ELM's figure 4.

    A box has the middle half of the members and their median, its whiskers reach the extremes; dots are the members.
    """
    names = ["fitness", *record["scores"]] if len(record["scores"]) > 1 else ["fitness"]
    columns = min(len(names), _PANELS_A_ROW)
    figure_rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(1.4 + 3.0 * columns, 0.6 + 3.0 * figure_rows), layout="constrained")
    panels = figure.subplots(figure_rows, columns, squeeze=False).ravel()
    numbers = [row["number"] for row in record["generations"]]
    median = {"color": _WARM, "linewidth": 2}
    words = []
    for axes, name in zip(panels, names, strict=False):
        groups = members_of(record, name)
        axes.boxplot(groups, positions=numbers, whis=(0, 100), widths=0.6, manage_ticks=False, medianprops=median)
        for number, values in zip(numbers, groups, strict=True):
            axes.plot(*_scattered(number, values), linestyle="", marker=".", color=_DARK, markersize=5)
        axes.set_title(name, fontsize=10)
        _number_generations(axes)
        medians = ", ".join(f"{statistics.median(values):.2f}" for values in groups)
        words.append(f"{name}: medians {medians}")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    panels[0].set_ylabel("percent")
    title = f"Distribution of the scores by generation: {record['name']}"
    figure.suptitle(title, fontsize=11)
    return Picture(figure, title, f"Box plots of {', '.join(names)} for each generation. {'; '.join(words)}.")


def members_of(record: Mapping[str, Any], name: str) -> list[list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    by_gene = {candidate["gene"]: candidate for candidate in record["candidates"]}
    return [
        [by_gene[gene]["fitness"] if name == "fitness" else by_gene[gene]["scores"][name] for gene in row["members"]]
        for row in record["generations"]
    ]


def _scattered(number: int, values: Sequence[float]) -> tuple[list[float], Sequence[float]]:
    """Places of dots beside each other, in the order of the generation."""
    middle = (len(values) - 1) / 2
    return [number + _SPREAD * (index - middle) / max(middle, 1) for index in range(len(values))], values


def _number_generations(axes: Axes) -> None:
    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


def _fitness_label(record: Mapping[str, Any]) -> str:
    return f"fitness: mean of {', '.join(record['scores'])} (%)"
