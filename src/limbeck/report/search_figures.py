"""Figures of searches: the course of the fitness, loss against latency of shapes, scores of teacher layers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from limbeck.core import studies
from limbeck.core.blocks import Figure, Table
from limbeck.report.figures import plot_figure
from limbeck.report.plots import Axis, Panels, Plot, Point, Series
from limbeck.report.search_tables import describe_shape

_GENERATION = Axis("generation", whole=True)
_SPREAD = 0.12
"""Of the dots of a generation, sideways, so that equal ones are seen."""


def evolution_figure(record: studies.MappingSearch) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    rows = record.generations
    best = [(row.number, max(other.maximum for other in rows[: place + 1])) for place, row in enumerate(rows)]
    band = [(row.mean - row.deviation, row.mean + row.deviation) for row in rows]
    series = [
        _members(record, "fitness"),
        Series("best so far", best, 1, "steps"),
        Series("mean, with deviation", [(row.number, row.mean) for row in rows], 0, band=band),
        Series("highest", [(row.number, row.maximum) for row in rows], 2),
        Series("lowest", [(row.number, row.minimum) for row in rows], 3),
    ]
    label = f"fitness: mean of {', '.join(record.scores)} (percent)"
    caption = "Each dot is a member of its generation; the band is the deviation of its members."
    return plot_figure("Evolution of the fitness", Plot(series, _GENERATION, Axis(label)), caption=caption)


def distribution_figures(record: studies.MappingSearch) -> Iterator[Figure]:
    """Draw every score of the members of each generation, where the fitness has several scores."""
    for name in record.scores if len(record.scores) > 1 else ():
        yield plot_figure(f"Score {name} by generation", _distribution(record, name))


def distribution_figure(record: studies.MappingSearch) -> Figure:
    """Draw the distribution of the fitness and of its scores in each generation as panels, as ELM's figure 4."""
    names = ["fitness", *record.scores] if len(record.scores) > 1 else ["fitness"]
    panels = [(name, _distribution(record, name)) for name in names]
    medians = [(name, ", ".join(f"{value:.2f}" for _, value in plot.series[1].points)) for name, plot in panels]
    title = "Distribution of the scores by generation"
    caption = "A box has the middle half of the members and their median; its whiskers reach the extremes."
    words = "; ".join(f"{name}: medians {found}" for name, found in medians)
    words = f"Box plots of {', '.join(names)} for each generation. {words}."
    data = Table(title, ("", "Medians"), tuple(medians))
    return Figure("distribution", title, caption, words, Panels(panels, 3), data)


def shapes_figure(record: studies.ArchitectureSearch) -> Figure:
    """Draw the loss of every shape that was trained to the end against its latency, with the front and the best."""
    trained = [shape for shape in record.shapes if shape.state == "trained"]
    by_trial = {shape.trial: shape for shape in trained}
    best = [record.best] if record.best is not None else []
    others = [shape for shape in trained if shape.trial not in record.front]
    series = [
        _shapes("Pareto front", [by_trial[trial] for trial in record.front], 1, mark="steps"),
        _shapes("shape", others, 0),
        _shapes("best reward", best, 3, large=True),
    ]
    limit = record.limits.latency_share
    caption = f"{len(trained)} shapes; best reward: {describe_shape(best[0])}."
    caption += f" Limit of the latency: {limit:g} of the teacher's." if limit is not None else ""
    x = Axis("latency, as a share of the teacher's", from_zero=True)
    plot = Plot([one for one in series if one.points], x, Axis("loss (1: untrained)"), limit)
    return plot_figure("Loss and latency of shapes", plot, caption=caption)


def race_figure(record: studies.TeacherLayerSearch, mark: str = "recommended") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or of its course so far; it has a best layer.
        mark: The name of the best.
    """
    scored: dict[int, list[Point]] = {}
    for row in record.layers:
        for one in row.scores:
            if one.score is not None:
                scored.setdefault(one.step, []).append((row.layer, one.score))
    steps = sorted(scored)
    series = [Series(f"after {step:,} steps", sorted(scored[step]), style + 2) for style, step in enumerate(steps)]
    for best in filter(None, [record.best]):
        place = (best.layer, best.scores[-1].score or 0.0)
        series.append(Series(f"{mark}: layer {best.layer}", [place], 1, "points", large=True))
    x, y = Axis("teacher layer", whole=True), Axis(f"score: mean of {', '.join(record.scores)} (percent)")
    return plot_figure("Students of the layers of the teacher", Plot(series, x, y))


def search_pictures(record: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures that a finished search leaves, by their files' names; none where there is no generation."""
    search = studies.Search.read(record)
    found: dict[str, Figure] = {}
    match search:
        case studies.MappingSearch() if search.generations:
            found = {"evolution": evolution_figure(search), "distribution": distribution_figure(search)}
        case studies.ArchitectureSearch():
            found = {"loss_and_latency": shapes_figure(search)}
        case studies.TeacherLayerSearch():
            found = {"layers": race_figure(search)}
    return {stem: replace(figure, title=f"{figure.title}: {search.name}") for stem, figure in found.items()}


def members_of(record: studies.MappingSearch, name: str) -> list[list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    by_gene = {one.gene: one.fitness if name == "fitness" else one.scores[name] for one in record.candidates}
    return [[by_gene[gene] for gene in row.members] for row in record.generations]


def _distribution(record: studies.MappingSearch, name: str) -> Plot:
    """Return the members of each generation, and their median with its box."""
    groups = {row.number: v for row, v in zip(record.generations, members_of(record, name), strict=True) if v}
    medians = [(number, statistics.median(values)) for number, values in groups.items()]
    series = [_members(record, name), Series("median", medians, 1, boxes=list(groups.values()))]
    return Plot(series, _GENERATION, Axis(f"{name} (percent)"))


def _members(record: studies.MappingSearch, name: str) -> Series:
    """Return the members of each generation side by side."""
    points: list[Point] = []
    for row, values in zip(record.generations, members_of(record, name), strict=True):
        middle = (len(values) - 1) / 2
        spread = (_SPREAD * (index - middle) / max(middle, 1) for index in range(len(values)))
        points += [(row.number + aside, value) for aside, value in zip(spread, values, strict=True)]
    return Series("member", points, 5, "points")


def _shapes(label: str, shapes: Sequence[studies.SearchedShape], style: int, **more: Any) -> Series:
    points = [(shape.latency_share or 0.0, shape.loss or 0.0) for shape in shapes]
    names = [f"{shape.layers}x{shape.hidden}h{shape.heads}f{shape.ffn}" for shape in shapes]
    return Series(label, points, style, **{"mark": "points", **more}, names=names)
