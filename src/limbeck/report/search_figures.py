"""Figures of searches: the course of the fitness, loss against latency of shapes, scores of teacher layers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from limbeck.core.blocks import Figure, Table
from limbeck.report.figures import plot_figure
from limbeck.report.plots import Axis, Panels, Plot, Series
from limbeck.report.records import describe_shape

_GENERATION = Axis("generation", whole=True)
_SPREAD = 0.12
"""Of the dots of a generation, sideways, so that equal ones are seen."""


def evolution_figure(record: Mapping[str, Any]) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    rows = record["generations"]
    best, so_far = [], float("-inf")
    for row in rows:
        so_far = max(so_far, row["maximum"])
        best.append((row["number"], so_far))
    series = [
        _members(record, "fitness", style=5),
        Series("best so far", best, 1, "steps"),
        Series(
            "mean, with deviation",
            _line(rows, "mean"),
            0,
            band=[(row["mean"] - row["deviation"], row["mean"] + row["deviation"]) for row in rows],
        ),
        Series("highest", _line(rows, "maximum"), 2),
        Series("lowest", _line(rows, "minimum"), 3),
    ]
    label = f"fitness: mean of {', '.join(record['scores'])} (percent)"
    caption = "Each dot is a member of its generation; the band is the deviation of its members."
    return plot_figure("Evolution of the fitness", Plot(series, _GENERATION, Axis(label)), caption=caption)


def distribution_figures(record: Mapping[str, Any]) -> Iterator[Figure]:
    """Draw every score of the members of each generation, where the fitness has several scores."""
    for name in record["scores"] if len(record["scores"]) > 1 else ():
        yield plot_figure(f"Score {name} by generation", _distribution(record, name))


def distribution_figure(record: Mapping[str, Any]) -> Figure:
    """Draw the distribution of the fitness and of its scores in each generation as panels, as ELM's figure 4."""
    names = ["fitness", *record["scores"]] if len(record["scores"]) > 1 else ["fitness"]
    plots = [_distribution(record, name) for name in names]
    medians = [[f"{value:.2f}" for _, value in plot.series[1].points] for plot in plots]
    words = "; ".join(f"{name}: medians {', '.join(found)}" for name, found in zip(names, medians, strict=True))
    title = "Distribution of the scores by generation"
    data = Table(title, ("", "Medians"), tuple((n, ", ".join(m)) for n, m in zip(names, medians, strict=True)))
    caption = "A box has the middle half of the members and their median; its whiskers reach the extremes."
    words = f"Box plots of {', '.join(names)} for each generation. {words}."
    return Figure("distribution", title, caption, words, Panels(list(zip(names, plots, strict=True)), 3), data)


def shapes_figure(record: Mapping[str, Any]) -> Figure:
    """Draw the loss of every shape that was trained to the end against its latency, with the front and the best."""
    trained = [shape for shape in record["shapes"] if shape["state"] == "trained"]
    by_trial = {shape["trial"]: shape for shape in trained}
    front = [by_trial[trial] for trial in record["front"]]
    best = record["best"]
    others = [shape for shape in trained if shape["trial"] not in record["front"]]
    series = [
        Series("Pareto front", [_place(shape) for shape in front], 1, "steps", names=[_short(s) for s in front]),
        Series("shape", [_place(shape) for shape in others], 0, "points", names=[_short(s) for s in others]),
        Series("best reward", [_place(best)], 3, "points", names=[_short(best)], large=True),
    ]
    limit = record["limits"]["latency_share"]
    caption = f"{len(trained)} shapes; best reward: {describe_shape(best)}."
    caption += f" Limit of the latency: {limit:g} of the teacher's." if limit is not None else ""
    x = Axis("latency, as a share of the teacher's", from_zero=True)
    plot = Plot([one for one in series if one.points], x, Axis("loss (1: untrained)"), limit)
    return plot_figure("Loss and latency of shapes", plot, caption=caption)


def race_figure(record: Mapping[str, Any], mark: str = "recommended") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or what it has found so far.
        mark: What the best is called.
    """
    scored: dict[int, list[tuple[float, float]]] = {}
    for row in record["layers"]:
        for one in row["scores"]:
            if one["score"] is not None:
                scored.setdefault(one["step"], []).append((row["layer"], one["score"]))
    steps = sorted(scored)
    series = [Series(f"after {step:,} steps", sorted(scored[step]), style + 2) for style, step in enumerate(steps)]
    best = record["best"]
    place = (best["layer"], best["scores"][-1]["score"])
    series.append(Series(f"{mark}: layer {best['layer']}", [place], 1, "points", large=True))
    x, y = Axis("teacher layer", whole=True), Axis(f"score: mean of {', '.join(record['scores'])} (percent)")
    return plot_figure("Students of the layers of the teacher", Plot(series, x, y))


def search_pictures(record: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures that a finished search leaves, by their files' names; none where there is no generation."""
    match record["kind"]:
        case "mapping" if record["generations"]:
            found = {"evolution": evolution_figure(record), "distribution": distribution_figure(record)}
        case "architecture":
            found = {"loss_and_latency": shapes_figure(record)}
        case "teacher-layer":
            found = {"layers": race_figure(record)}
        case _:
            found = {}
    return {stem: replace(figure, title=f"{figure.title}: {record['name']}") for stem, figure in found.items()}


def members_of(record: Mapping[str, Any], name: str) -> list[list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    by_gene = {candidate["gene"]: candidate for candidate in record["candidates"]}
    return [
        [by_gene[gene]["fitness"] if name == "fitness" else by_gene[gene]["scores"][name] for gene in row["members"]]
        for row in record["generations"]
    ]


def _distribution(record: Mapping[str, Any], name: str) -> Plot:
    """Return the members of each generation, and their median with its box."""
    groups = {row["number"]: v for row, v in zip(record["generations"], members_of(record, name), strict=True) if v}
    medians = [(number, statistics.median(values)) for number, values in groups.items()]
    series = [_members(record, name, style=5), Series("median", medians, 1, boxes=list(groups.values()))]
    return Plot(series, _GENERATION, Axis(f"{name} (percent)"))


def _line(rows: list[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(row["number"], row[name]) for row in rows]


def _members(record: Mapping[str, Any], name: str, style: int) -> Series:
    """The members of each generation side by side."""
    points = []
    for row, values in zip(record["generations"], members_of(record, name), strict=True):
        middle = (len(values) - 1) / 2
        points += [
            (row["number"] + _SPREAD * (index - middle) / max(middle, 1), value) for index, value in enumerate(values)
        ]
    return Series("member", points, style, "points")


def _place(shape: Mapping[str, Any]) -> tuple[float, float]:
    return shape["latency_share"], shape["loss"]


def _short(shape: Mapping[str, Any]) -> str:
    return f"{shape['layers']}x{shape['hidden']}h{shape['heads']}f{shape['ffn']}"
