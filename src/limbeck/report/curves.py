"""Figures of training: the curves of a stage, and those of several runs beside each other."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from limbeck.core.blocks import Block, Figure, Notes, counted
from limbeck.report.figures import lines_figure
from limbeck.report.logs import RATE, Curve, StageLog
from limbeck.report.plots import SERIES, Lines, Series, spans_widely
from limbeck.report.subjects import RunFolder, StageFolder

T = TypeVar("T")
NamedCurves: TypeAlias = Sequence[tuple[str, Curve]]
"""Curves with their labels."""
StagesByRun: TypeAlias = list[tuple[str, StageFolder]]
_TERMS_IN_A_FIGURE = 4
_LAYER_NUMBERS = re.compile(r"(_\d+)+$")
_COMPARE = "Losses are comparable only where terms, weights and text are the same."
_SHARES = (
    "Losses of different terms have no common scale: each is divided by its first logged value, so only the shapes "
    "of the curves can be compared."
)


def loss_blocks(stage: StageFolder, heading: str) -> Iterator[Block]:
    """Draw loss, development scores, tokens a second, then the terms in groups, then note how they were logged.

    Args:
        stage: A stage.
        heading: The beginning of the titles of its figures.
    """
    # Training first, then quality, then speed.
    log = stage.log
    if not log.curves:
        reason = "there is no log" if stage.is_finished else "nothing has been logged yet"
        yield Notes((f"{heading}: {reason}.",))

    yield from _log_figure(log, f"{heading}: Loss", {"training": "loss", "held-out text": "eval_loss"})
    scores = [(label, curve) for label, curve in log.scores().items() if len(curve.points) > 1]
    if scores:
        label = "score of the student without fine-tuning"
        yield _curves_figure(f"{heading}: Scores on development rows", scores, label)
    # A single value is in the table of stages.
    rate = log.curves.get(RATE)
    if rate is not None and len(rate.points) > 1:
        label = "tokens per second since the last log, excluding padding and evaluation"
        yield _curves_figure(f"{heading}: Tokens/s", [("tokens/s", rate)], label, from_zero=True)
    yield from _term_figures(log, heading)
    yield from _log_notes(stage, heading)


def _term_figures(log: StageLog, heading: str) -> Iterator[Figure]:
    """Draw the terms of a loss that has several; terms that differ in their layers only share figures."""
    # A single term is the loss itself, which is drawn already.
    terms = log.terms()
    if len(terms) < 2:
        return
    terms_by_stem: dict[str, list[str]] = {}
    for term in terms:
        terms_by_stem.setdefault(_LAYER_NUMBERS.sub("", term) or term, []).append(term)

    for stem, terms_of_stem in terms_by_stem.items():
        for title, group in _split(f"{heading}: Term {stem}", terms_of_stem, _TERMS_IN_A_FIGURE):
            if len(group) == 1:
                yield from _single_term_figure(log, title, group[0])
            else:
                yield from _group_figures(log, title, group)


def _single_term_figure(log: StageLog, title: str, term: str) -> Iterator[Figure]:
    """Draw one term, in training and on held-out text."""
    labels = {f"{term}, training": f"loss_{term}", f"{term}, held-out text": f"eval_{term}"}
    return _log_figure(log, title, labels)


def _group_figures(log: StageLog, title: str, terms: Sequence[str]) -> Iterator[Figure]:
    """Draw several terms in training, and in a second figure on held-out text where that has a course."""
    yield from _log_figure(log, title, {term: f"loss_{term}" for term in terms})
    held_out = {term: f"eval_{term}" for term in terms}
    curves = [log.curves[name] for name in held_out.values() if name in log.curves]
    if any(len(curve.points) > 1 for curve in curves):
        yield from _log_figure(log, f"{title}, held-out text", held_out)


def _log_notes(stage: StageFolder, heading: str) -> Iterator[Notes]:
    """Note how far an unfinished stage is, and the values that could not be drawn."""
    log = stage.log
    if not stage.is_finished and log.lines:
        source = log.source
        if "step" in log.reached:
            source += f", up to step {log.reached['step']:,.0f}"
        yield Notes((f"{heading} is not finished: its curves are from {source}.",))
    problems = []
    if log.not_finite:
        problems.append(f"{heading}: {counted(log.not_finite, 'infinite or NaN value')} not drawn.")
    if log.damaged:
        problems.append(f"{heading}: {counted(log.damaged, 'damaged line')} of {log.source} skipped.")
    if problems:
        yield Notes(tuple(problems), warning=True)


def _log_figure(log: StageLog, title: str, names: Mapping[str, str]) -> Iterator[Figure]:
    """Draw curves of a log in one figure; nothing where the log has none of them.

    Args:
        log: The log.
        title: Of the figure.
        names: The names of the curves by their labels.
    """
    curves = []
    for label, name in names.items():
        if name in log.curves:
            curves.append((label, log.curves[name]))
    if curves:
        yield _curves_figure(title, curves, "mean over the steps since the last log")


def _split(title: str, items: Sequence[T], most: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Yield the items of each figure, at most `most`, with the figure's title, which is numbered if there are several.

    The figures are of equal size, so that the last one is not left with a single item.
    """
    figure_count = math.ceil(len(items) / most)
    if figure_count == 1:
        yield title, items
        return
    size = math.ceil(len(items) / figure_count)
    for figure in range(figure_count):
        start = figure * size
        yield f"{title} ({figure + 1} of {figure_count})", items[start : start + size]


def course_figures(runs: Sequence[tuple[str, RunFolder]]) -> Iterator[Figure]:
    """Draw the courses of runs beside each other: losses of equal stages, shares of the first loss of others, speed.

    Args:
        runs: Each with its label.
    """
    # Losses of one method compare as they are. Those of different methods in the same place compare by shape alone.
    stages_alike: dict[tuple[str, str], StagesByRun] = {}
    stages_by_place: dict[int, StagesByRun] = {}
    for label, run in runs:
        for place, stage in enumerate(run.stages, start=1):
            if "loss" in stage.log.curves:
                stages_alike.setdefault((stage.title, stage.method), []).append((label, stage))
                stages_by_place.setdefault(place, []).append((label, stage))

    for (title, method), stages in stages_alike.items():
        yield from _figures_of_alike(f"Stage '{title}' ({method}) of the runs", stages)
    for place, stages in stages_by_place.items():
        names = {(stage.title, stage.method) for _, stage in stages}
        if len(names) > 1:
            yield from _figures_of_shares(f"Stage {place} of the runs, relative to the first loss", stages)
        rates = _curves_of(stages, RATE)
        yield from _beside(f"Tokens/s in stage {place} of the runs", rates, "tokens per second", from_zero=True)


def _figures_of_alike(heading: str, stages: StagesByRun) -> Iterator[Figure]:
    """Draw the losses of stages whose losses compare."""
    training = _curves_of(stages, "loss")
    yield from _beside(heading, training, "training loss", _COMPARE)
    held_out = _curves_of(stages, "eval_loss")
    yield from _beside(f"{heading}, held-out text", held_out, "loss on held-out text", _COMPARE)


def _figures_of_shares(heading: str, stages: StagesByRun) -> Iterator[Figure]:
    """Draw the losses of different stages, each divided by its first value."""
    shares = []
    for label, curve in _curves_of(stages, "loss"):
        first = curve.points[0][1]
        if first > 0:
            shares.append((label, _divided(curve, first)))
    yield from _beside(heading, shares, "training loss relative to the first logged value", _SHARES)


def _curves_of(stages: StagesByRun, name: str) -> NamedCurves:
    return [(label, stage.log.curves[name]) for label, stage in stages if name in stage.log.curves]


def _divided(curve: Curve, divisor: float) -> Curve:
    points = tuple((x, y / divisor) for x, y in curve.points)
    ranges = tuple((low / divisor, high / divisor) for low, high in curve.ranges)
    return Curve(points, ranges, curve.logged)


def _beside(
    title: str, curves: NamedCurves, label: str, caption: str = "", *, from_zero: bool = False
) -> Iterator[Figure]:
    """Draw the same curve of several runs, at most `SERIES` in a figure; nothing for one run, or for single points."""
    if len(curves) < 2 or all(len(curve.points) < 2 for _, curve in curves):
        return
    for figure_title, figure_curves in _split(title, curves, SERIES):
        yield _curves_figure(figure_title, figure_curves, label, caption, from_zero=from_zero)


def _curves_figure(
    title: str, curves: NamedCurves, label: str, caption: str = "", *, from_zero: bool = False
) -> Figure:
    """Draw curves over the step, on a logarithmic scale where they span widely; the caption notes thinned curves."""
    series = []
    values: list[float] = []
    most_logged = 0
    for name, curve in curves:
        series.append(Series(name, curve.points, band=curve.ranges))
        values += [y for _, y in curve.points]
        # Only thinned curves have ranges.
        if curve.ranges:
            most_logged = max(most_logged, curve.logged)
    if most_logged:
        caption += (
            f" Thinned from {most_logged:,} points: lines show means of neighbouring points, bands their minimum and "
            "maximum."
        )
        caption = caption.strip()

    # Losses fall by orders of magnitude at the start, which would flatten the rest on a linear scale.
    is_log = not from_zero and spans_widely(values)
    if is_log:
        label += ", logarithmic"
    plot = Lines(series, "step", label, x_is_whole=True, y_from_zero=from_zero, y_is_log=is_log)
    return lines_figure(title, plot, caption)
