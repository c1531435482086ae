"""The course of a stage over its steps: the losses by term, trained on and held out, and tokens a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limbeck.report.content import Block, Figure, Notes
from limbeck.report.draw_plot import Plot, Series
from limbeck.report.findings import RATE, Curve, StageFound, StageLog
from limbeck.report.layer_links import without_layers
from limbeck.report.make_figures import plot_figure
from limbeck.report.scales import Axis, spans_widely

_AT_ONCE = 4
_STEP = Axis("step", whole=True)


def loss_blocks(stage: StageFound, heading: str) -> Iterator[Block]:
    """Draw the whole loss, tokens a second, then the terms in groups, then say how it was drawn.

    Args:
        stage: A stage.
        heading: What stands before the titles of its figures.
    """
    log = stage.log
    if not log.curves:
        yield Notes((f"{heading}: {'no log is there' if stage.record else 'nothing was logged yet'}.",))
        yield from _notes(stage, heading)
        return
    pictures = [_figure(log, heading, "loss", {"training": "loss", "held-out text": "eval_loss"}), _rate(log, heading)]
    groups = _groups(log.terms())
    for title, terms in groups.items() if len(log.terms()) > 1 else ():
        names = {term: f"loss_{term}" for term in terms}
        if len(terms) == 1:
            names = {f"{terms[0]}, training": f"loss_{terms[0]}", f"{terms[0]}, held-out text": f"eval_{terms[0]}"}
        pictures.append(_figure(log, heading, title, names))
        measured = {term: f"eval_{term}" for term in terms}
        if len(terms) > 1 and any(len(curve.points) > 1 for curve in map(log.curve, measured.values()) if curve):
            pictures.append(_figure(log, heading, f"{title}, held-out text", measured))
    yield from (picture for picture in pictures if picture is not None)
    yield from _notes(stage, heading)


def _groups(terms: list[str]) -> dict[str, list[str]]:
    """Gather terms that differ in their layers only, few enough for one figure."""
    by_stem: dict[str, list[str]] = {}
    for term in terms:
        by_stem.setdefault(without_layers(term), []).append(term)
    groups: dict[str, list[str]] = {}
    for stem, found in by_stem.items():
        for start in range(0, len(found), _AT_ONCE):
            part = f" ({start // _AT_ONCE + 1} of {-(-len(found) // _AT_ONCE)})" if len(found) > _AT_ONCE else ""
            groups[f"{stem}{part}"] = found[start : start + _AT_ONCE]
    return groups


def _figure(log: StageLog, heading: str, title: str, names: dict[str, str]) -> Figure | None:
    found: list[tuple[str, Curve]] = [
        (label, curve) for label, name in names.items() if (curve := log.curve(name)) is not None
    ]
    if not found:
        return None
    series = [Series(label, curve.points, style, band=curve.ranges) for style, (label, curve) in enumerate(found)]
    logarithmic = spans_widely(y for one in series for _, y in one.points)
    label = "mean over the steps since the last log" + (", logarithmic" if logarithmic else "")
    caption = thinned_caption(curve for _, curve in found)
    what = "Loss" if title == "loss" else f"Term {title}"
    return plot_figure(f"{heading}: {what}", Plot(series, _STEP, Axis(label, log=logarithmic)), caption=caption)


def thinned_caption(curves: Iterable[Curve]) -> str:
    """Say how curves were thinned; nothing where none was."""
    most = max((curve.logged for curve in curves if curve.ranges), default=0)
    said = f"Thinned from {most:,} points: lines are means of neighbours, bands reach from least to greatest."
    return said if most else ""


def _rate(log: StageLog, heading: str) -> Figure | None:
    """Draw tokens a second; a single value says no more than the table of stages."""
    curve = log.curve(RATE)
    if curve is None or len(curve.points) < 2:
        return None
    y = Axis("tokens a second since the last log, without padding and evaluation", from_zero=True)
    plot = Plot([Series("tokens/s", curve.points, 2, band=curve.ranges)], _STEP, y)
    return plot_figure(f"{heading}: Tokens/s", plot, caption=thinned_caption([curve]))


def _notes(stage: StageFound, heading: str) -> Iterator[Block]:
    log = stage.log
    if not stage.record and log.lines:
        step = f", up to step {log.reached['step']:,.0f}" if "step" in log.reached else ""
        yield Notes((f"{heading} is not finished: its curves are from {log.source}{step}.",))
    problems = []
    if log.not_finite:
        problems.append(f"{heading}: {log.not_finite:,} logged values are infinite or no numbers, and are not drawn.")
    if log.damaged:
        problems.append(f"{heading}: {log.damaged:,} lines of {log.source} are damaged, and are passed over.")
    if problems:
        yield Notes(tuple(problems), warning=True)
