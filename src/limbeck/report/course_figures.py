"""The courses of several runs in one figure: losses, held-out losses and tokens a second of their stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from limbeck.report.content import Figure
from limbeck.report.draw_plot import Plot, Series
from limbeck.report.findings import RATE, Curve, RunFound, StageFound
from limbeck.report.loss_figures import thinned_caption
from limbeck.report.make_figures import plot_figure
from limbeck.report.palette import SERIES
from limbeck.report.scales import Axis, spans_widely

Courses: TypeAlias = Sequence[tuple[str, StageFound]]
"""Stages that are put into one figure, with what each is called."""
_STEP = Axis("step", whole=True)
_COMPARE = "Losses compare only where the terms, their weights and the text are the same."
_SHARES = (
    "Losses of different terms are on no common scale: each is a share of the first that was logged, so that only "
    "the form of the curves compares."
)


def course_figures(runs: Sequence[tuple[str, RunFound]]) -> Iterator[Figure]:
    """Draw the courses of runs beside each other: as they are where stages are alike, else as shares of their start.

    Args:
        runs: What each is called, and the run.
    """
    alike: dict[tuple[str, str], list[tuple[str, StageFound]]] = {}
    by_place: dict[int, list[tuple[str, StageFound]]] = {}
    for label, run in runs:
        for place, stage in enumerate(run.stages, start=1):
            if stage.log.curve("loss") is not None:
                alike.setdefault((stage.title, stage.method), []).append((label, stage))
                by_place.setdefault(place, []).append((label, stage))
    for (title, method), courses in alike.items():
        heading = f"Stage '{title}' ({method}) of the runs"
        yield from _drawn(heading, courses, "loss", "training loss", _COMPARE)
        yield from _drawn(f"{heading}, held-out text", courses, "eval_loss", "loss on held-out text", _COMPARE)
    for place, courses in by_place.items():
        if len({(stage.title, stage.method) for _, stage in courses}) > 1:
            heading = f"Stage {place} of the runs, as shares of the first loss"
            label = "training loss, as a share of the first logged"
            yield from _drawn(heading, courses, "loss", label, _SHARES, shares=True)
        yield from _drawn(f"Tokens/s in stage {place} of the runs", courses, RATE, "tokens a second", "", zero=True)


def _drawn(
    title: str, courses: Courses, name: str, label: str, caption: str, *, shares: bool = False, zero: bool = False
) -> Iterator[Figure]:
    """Draw a quantity of stages, few enough in a figure to be told apart; nothing where only one has it."""
    found = [(called, curve) for called, stage in courses if (curve := stage.log.curve(name)) is not None]
    if shares:
        found = [(called, share) for called, curve in found if (share := _share(curve)) is not None]
    if len(found) < 2 or max(len(curve.points) for _, curve in found) < 2:
        return
    figures = -(-len(found) // SERIES)
    size = -(-len(found) // figures)
    for number in range(figures):
        drawn = found[number * size : (number + 1) * size]
        series = [Series(called, curve.points, i, band=curve.ranges) for i, (called, curve) in enumerate(drawn)]
        logarithmic = not zero and spans_widely(y for one in series for _, y in one.points)
        several = f" ({number + 1} of {figures})" if figures > 1 else ""
        said = " ".join(filter(None, (caption, thinned_caption(curve for _, curve in drawn))))
        y = Axis(label + (", logarithmic" if logarithmic else ""), log=logarithmic, from_zero=zero)
        yield plot_figure(f"{title}{several}", Plot(series, _STEP, y), caption=said)


def _share(curve: Curve) -> Curve | None:
    """Divide a curve by its first value; None where that is not positive."""
    first = curve.points[0][1]
    if first <= 0:
        return None
    points = tuple((x, y / first) for x, y in curve.points)
    return Curve(points, tuple((low / first, high / first) for low, high in curve.ranges), curve.logged)
