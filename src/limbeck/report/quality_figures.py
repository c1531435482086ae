"""Quality against latency, with the models that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.report.content import Figure
from limbeck.report.draw_plot import Plot, Series, names_fit
from limbeck.report.make_figures import plot_figure
from limbeck.report.scales import Axis
from limbeck.search.shape_space import pareto_front

_ROOM = 0.25


@dataclass(frozen=True)
class Measured:
    """A model that was measured.

    Args:
        name: Of the model.
        latency: Milliseconds a pass.
        quality: More is better.
        teacher: Whether it is a teacher.
    """

    name: str
    latency: float
    quality: float
    teacher: bool = False


def quality_figure(models: Sequence[Measured], quality: str, latency: str, *, lowest: bool = False) -> Figure:
    """Draw models by latency and quality, and the front of those that no other beats in both.

    Args:
        models: Two or more.
        quality: The quantity, with its unit.
        latency: What a pass is.
        lowest: Less is better of the quality.
    """
    sign = 1 if lowest else -1
    front = pareto_front([(sign * model.quality, model.latency) for model in models])
    joined = [(models[index].latency, models[index].quality) for index in front]
    steps = [Series("Pareto front", joined, 5, "steps")] if len(joined) > 1 else []
    # With room below, or a student that keeps nearly all would lie on the edge as if it kept nothing.
    axes = Axis(f"latency, ms ({latency})", from_zero=True), Axis(quality, room=_ROOM)
    plot = Plot([*steps, *_points(models, numbered=False)], *axes)
    numbers = ""
    if not names_fit(plot):
        plot = Plot([*steps, *_points(models, numbered=True)], *axes)
        numbers = f" {'; '.join(f'{number}: {model.name}' for number, model in enumerate(models, start=1))}."
    names = ", ".join(models[index].name for index in front)
    better = "lower" if lowest else "upper"
    caption = f"The {better} left corner is best. Beaten by no other model in both: {names}.{numbers}"
    return plot_figure("Quality against latency", plot, caption=caption)


def _points(models: Sequence[Measured], *, numbered: bool) -> list[Series]:
    """The students and the teachers, with their names beside them, or with numbers for these."""
    kinds = (("student", False), ("teacher", True))
    series = []
    for style, (label, teacher) in enumerate(kinds):
        found = [(str(number), model) for number, model in enumerate(models, start=1) if model.teacher == teacher]
        if found:
            points = [(model.latency, model.quality) for _, model in found]
            names = [f"{number}: {model.name}" if numbered else model.name for number, model in found]
            numbers = [number for number, _ in found] if numbered else []
            series.append(Series(label, points, style, "points", names=names, numbers=numbers))
    return series
