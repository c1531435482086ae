"""Figures of training: the curves of a stage, and the losses of several runs beside each other.

A *curve* is the course of a logged quantity over the steps. A *term* is one part of a loss that is a sum.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from limbeck.core.blocks import Block, Figure, Notes, counted, slug
from limbeck.report.figures import describe_lines, is_single_point
from limbeck.report.logs import Curve, StageLog
from limbeck.report.names import metric_name
from limbeck.report.plots import SERIES, Lines, Panels, Series, spans_widely
from limbeck.report.subjects import RunFolder, StageFolder

CurvesByLabel: TypeAlias = Mapping[str, Curve]
"""Curves by their labels in the legend."""
_MOST_TERM_COLUMNS = 3
"""Most panels of terms in a row of their figure."""
_TERM_SCALE = 0.65
"""Size of the panel of a term, relative to a figure of its own."""
_LOSS = "mean over the steps since the last log"
_SCORE = "score of the student without fine-tuning"
COMPARE_LOSSES = "Losses are comparable only where terms, weights and text are the same."
"""Note below losses of several runs."""


def loss_blocks(stage: StageFolder, heading: str, positive: str | None = None) -> Iterator[Block]:
    """Draw the loss of a stage, its scores on development rows and its terms, then note what could not be drawn.

    Args:
        stage: The stage.
        heading: Beginning of the titles of its figures.
        positive: The class that the score `f1` is of; None where it is not known.
    """
    log = stage.log
    if not log.curves and not log.problem:
        reason = "there is no log" if stage.is_finished else "nothing has been logged yet"
        yield Notes((f"{heading}: {reason}.",))
    for figure in _stage_figures(stage, heading, positive):
        # A figure of a single point shows nothing that the tables of terms, and of teacher and student, do not have.
        if not is_single_point(figure.drawing):
            yield figure

    # A log has reached no step if none of its lines has a loss.
    last_step = log.reached.get("step")
    if last_step is not None and not stage.is_finished:
        # The page may have no curve of it, see above.
        yield Notes((f"{heading} is not finished: its log goes up to step {last_step:,.0f}.",))
    problems = []
    if log.problem:
        problems.append(f"{heading}: {log.problem}")
    if log.not_finite:
        problems.append(f"{heading}: {counted(log.not_finite, 'infinite or NaN value')} not drawn.")
    if log.damaged:
        problems.append(f"{heading}: {counted(log.damaged, 'damaged line')} of log.jsonl skipped.")
    if problems:
        yield Notes(tuple(problems), warning=True)


def _stage_figures(stage: StageFolder, heading: str, positive: str | None) -> Iterator[Figure]:
    """Yield the figures of the loss, of the scores on development rows and of the terms.

    Args:
        stage: The stage.
        heading: The name of the stage, for the titles.
        positive: The class that metrics of one class are of; see `loss_blocks`.
    """
    log = stage.log
    losses = _curves_of(log, {"training": "loss", "held-out text": "eval_loss"})
    if losses:
        yield _curves_figure(f"{heading}: Loss", losses, _LOSS)
    scores = {metric_name(metric, positive): curve for metric, curve in log.scores().items()}
    if scores:
        caption = ""
        scored_by_step = stage.record.scored_by_step
        if scored_by_step is not None:
            caption = f"Each score is on the same {scored_by_step}, so it may differ from the score on all of them."
        yield _curves_figure(f"{heading}: Scores on development rows", scores, _SCORE, caption)
    # A single term is the loss itself, which is drawn already.
    if len(log.terms()) > 1:
        yield _terms_figure(log, f"{heading}: Terms of the loss")


def _curves_of(log: StageLog, name_by_label: Mapping[str, str]) -> CurvesByLabel:
    """Return the named curves by their labels; names that the log does not have are left out."""
    curves = {}
    for label, name in name_by_label.items():
        if name in log.curves:
            curves[label] = log.curves[name]
    return curves


def _terms_figure(log: StageLog, title: str) -> Figure:
    """Draw each term in a panel of its own, since terms have no common scale, in training and on held-out text."""
    panels = []
    words = []
    for term in log.terms():
        curves = _curves_of(log, {"training": f"loss_{term}", "held-out text": f"eval_{term}"})
        plot = _lines(curves, "loss")
        panels.append((term, plot))
        words.append(f"{term}: {describe_lines(plot)}")
    drawing = Panels(panels, columns=min(len(panels), _MOST_TERM_COLUMNS), scale=_TERM_SCALE)
    return Figure(slug(title), title, caption="", description=" ".join(words), drawing=drawing)


def course_figures(runs: Sequence[tuple[str, RunFolder]]) -> Iterator[Figure]:
    """Draw the losses of several runs in common figures, one for each stage that at least two of them have.

    Args:
        runs: The runs, each after its label.
    """
    # Stages belong together if they have the same title and method. Losses of different methods have different terms,
    # and cannot be compared. A recipe gives each of its stages another title.
    logs_by_stage: dict[tuple[str, str], dict[str, StageLog]] = {}
    for label, run in runs:
        for stage in run.stages:
            log_by_label = logs_by_stage.setdefault((stage.title, stage.method), {})
            log_by_label[label] = stage.log

    for (title, method), log_by_label in logs_by_stage.items():
        heading = f"Stage '{title}' ({method}) of the runs"
        yield from _beside(heading, log_by_label, "loss", "training loss")
        yield from _beside(f"{heading}, held-out text", log_by_label, "eval_loss", "loss on held-out text")


def _beside(title: str, log_by_label: Mapping[str, StageLog], name: str, y: str) -> Iterator[Figure]:
    """Draw the same curve of several runs; nothing for one run, or where no run has points at two steps.

    Args:
        title: Title of the figure.
        log_by_label: The logs of the runs, by their labels.
        name: Name of the curve in the logs.
        y: Label of the vertical axis.
    """
    curves = {label: log.curves[name] for label, log in log_by_label.items() if name in log.curves}
    if len(curves) < 2:
        return
    # The runs are split over several figures, since no more than `SERIES` curves can be told apart in one.
    labels = list(curves)
    groups = [labels[start : start + SERIES] for start in range(0, len(labels), SERIES)]
    for number, group in enumerate(groups, start=1):
        title_of_group = title
        if len(groups) > 1:
            title_of_group = f"{title} ({number} of {len(groups)})"
        curves_of_group = {label: curves[label] for label in group}
        # Runs of different lengths may have a single point each, at different steps: no curve either.
        if any(len(np.unique(curve[:, 0])) > 1 for curve in curves_of_group.values()):
            yield _curves_figure(title_of_group, curves_of_group, y, COMPARE_LOSSES)


def _curves_figure(title: str, curves: CurvesByLabel, y: str, caption: str = "") -> Figure:
    """Draw curves over the step; their numbers are in the logs."""
    plot = _lines(curves, y)
    return Figure(slug(title), title, caption, describe_lines(plot), plot)


def _lines(curves: CurvesByLabel, y: str) -> Lines:
    """Declare curves over the step.

    The scale is logarithmic where they span widely: losses fall by orders of magnitude at the start, which would
    flatten the rest on a linear one.
    """
    values: list[float] = []
    for curve in curves.values():
        values += curve[:, 1].tolist()  # A row of a curve is (step, value).
    is_log = spans_widely(values)
    if is_log:
        y += ", logarithmic"
    series = [Series(label, curve) for label, curve in curves.items()]
    return Lines(series, "step", y, x_is_whole=True, y_is_log=is_log)
