"""Quality against latency, with the models that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.report.page.content import Figure
from limbeck.report.page.draw_plot import Plot, Series
from limbeck.report.page.make_figures import plot_figure
from limbeck.report.page.scales import Axis
from limbeck.search.pareto import pareto_front


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
    series = [
        Series(label, [(m.latency, m.quality) for m in found], style, "points", names=[m.name for m in found])
        for style, (label, found) in enumerate(
            (("student", [m for m in models if not m.teacher]), ("teacher", [m for m in models if m.teacher]))
        )
        if found
    ]
    joined = [(models[index].latency, models[index].quality) for index in front]
    if len(joined) > 1:
        series.insert(0, Series("Pareto front", joined, 5, "steps"))
    names = ", ".join(models[index].name for index in front)
    better = "lower" if lowest else "upper"
    caption = f"The {better} left corner is best. Beaten by no other model in both: {names}."
    plot = Plot(series, Axis(f"latency, ms ({latency})", from_zero=True), Axis(quality))
    return plot_figure("Quality against latency", plot, caption=caption)
