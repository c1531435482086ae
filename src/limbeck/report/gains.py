"""Gains: how far the figures of a student are above those of the untrained start, in sentences.

A gain is *clear* if the student's figure is above that of the start by more than chance, as far as the 95 % interval of
the student's figure tells: the start was scored on the same rows, so its figure varies as much. The difference of two
independent figures varies √2 times as much as one of them, and that of two figures of the same rows less. A figure
without an interval has a clear gain if it is above that of the start. Losses are clear by the same rule.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from limbeck.core.blocks import rounded
from limbeck.core.intervals import Interval, ends_of
from limbeck.core.records import Agreement, Retrieval, RunEvaluation, TaskFigures, UntrainedStart
from limbeck.core.records.run_evaluation import RETRIEVAL
from limbeck.report.names import metric_name, metric_of_rows
from limbeck.report.reliable import (
    interval_of_agreement,
    interval_of_held_out_score,
    interval_of_retrieval,
    is_reached_untrained,
)
from limbeck.report.scored_rows import rows_title

_VARIATION_OF_DIFFERENCE = math.sqrt(2)
"""Width of the 95 % interval of the difference of two figures, as a multiple of that of one figure, at the most."""
_DIGITS = 3
"""Digits of the figures in sentences; figures that are written alike are equal to a reader."""


class Gain(NamedTuple):
    """A figure of the student beside that of the untrained start.

    Attributes:
        name: Name of the figure.
        student: The student's value.
        start: The untrained start's value.
        interval: The 95 % interval of the student's value; None where there is none.
        is_second: Whether another figure of the same rows counts more.
        is_rough: Whether the texts were too few for an interval, so that chance alone may have raised the figure.
    """

    name: str
    student: float
    start: float
    interval: Interval | None
    is_second: bool = False
    is_rough: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether the student is clearly above the start."""
        lowest, _ = self.interval or (self.student, self.student)
        return self.student - self.start > _VARIATION_OF_DIFFERENCE * (self.student - lowest)

    @property
    def is_clearly_below(self) -> bool:
        """Whether the student is clearly below the start."""
        # Without an interval nobody knows whether chance has lowered a figure.
        if self.interval is None:
            return False
        _, highest = self.interval
        return self.start - self.student > _VARIATION_OF_DIFFERENCE * (highest - self.student)

    @property
    def is_clear_loss(self) -> bool:
        """Whether the student is clearly below the start, by a figure that counts most on its rows."""
        return self.is_clearly_below and not self.is_second

    def sentence(self, origin: UntrainedStart) -> str:
        """Say what became of the figure.

        Args:
            origin: The start, with what lies between it and the student: `training` or `fit`.
        """
        cause = origin.gain_of
        student = rounded(self.student, _DIGITS)
        start = rounded(self.start, _DIGITS)
        figure_of_start = f"the {origin.name}'s {start}"
        if self.is_clear and self.interval is None:
            return f"The {self.name} rose from {figure_of_start} to {student}, which may be chance."
        if self.is_clear:
            return f"The {cause} improved the {self.name}: {student} against {start}."
        if self.is_clearly_below:
            return f"The {cause} made the {self.name} worse: {student} is below {figure_of_start}."
        if self.student == self.start:
            return f"The {cause} did not improve the {self.name}: {student} equals {figure_of_start}."
        if self.student < self.start:
            by_chance = "" if self.interval is None else ", which may be chance"
            return f"The {cause} did not improve the {self.name}: {student} is below {figure_of_start}{by_chance}."
        return f"The {cause} did not clearly improve the {self.name}: {student} is not clearly above {figure_of_start}."


def gain_of(
    name: str,
    student: float | None,
    start: float | None,
    interval: Sequence[float | None] | None,
    *,
    is_second: bool = False,
    is_rough: bool = False,
) -> Gain | None:
    """Return the gain of a figure; None where a value is not known. The arguments are the fields of `Gain`."""
    if student is None or start is None:
        return None
    return Gain(name, _as_written(student), _as_written(start), ends_of(interval), is_second, is_rough)


def _as_written(figure: float) -> float:
    """Return a figure with the digits that sentences and tables show."""
    return float(rounded(figure, _DIGITS))


def gain_sentences(evaluation: RunEvaluation) -> list[str]:
    """Return sentences on the gains of a run; none where all gains are clear, and where no start was measured."""
    gains = list(_gains(evaluation))
    if all(gain.is_clear and not gain.is_rough for gain in gains):
        return []
    start = evaluation.start or UntrainedStart()
    unclear = [gain for gain in gains if not gain.is_clear]
    clear = [gain for gain in gains if gain.is_clear]
    sentences = [gain.sentence(start) for gain in (*unclear, *clear)]
    has_loss = any(gain.is_clear_loss for gain in gains)
    if not clear and not has_loss:
        sentences.insert(0, f"The {start.gain_of} changed little.")
    return sentences


def has_clear_loss(evaluation: RunEvaluation) -> bool:
    """Return whether the student is clearly below the untrained start by a figure."""
    return any(gain.is_clear_loss for gain in _gains(evaluation))


def is_no_better(evaluation: RunEvaluation) -> bool:
    """Return whether a figure of the student is that of the untrained start or below it, and none is clearly above."""
    gains = list(_gains(evaluation))
    if any(gain.is_clear for gain in gains):
        return False
    return any(gain.student <= gain.start for gain in gains)


def has_unclear_gain(evaluation: RunEvaluation) -> bool:
    """Return whether the student is not clearly above the untrained start by a figure."""
    return any(not gain.is_clear for gain in _gains(evaluation))


def _gains(evaluation: RunEvaluation) -> Iterator[Gain]:
    """Yield the gains of the figures that tell whether the training helped, as far as both students have them.

    They are the main scores on development rows, the agreement and the main score on rows that were held out from a
    task's training files, the MRR@10 of a retrieval, and the agreement of sentence vectors. If the MRR@10 is not
    clearly better or worse, other figures of the retrieval count that are below those of the start.
    """
    for gain in (
        *_gains_on_development_rows(evaluation),
        *_gains_on_held_out_rows(evaluation.task or TaskFigures()),
        *_gains_on_held_out_text(evaluation, evaluation.start or UntrainedStart()),
    ):
        if gain is not None:
            yield gain


def _gains_on_development_rows(evaluation: RunEvaluation) -> Iterator[Gain | None]:
    """Yield the gains of the main scores on development rows, and of others that are clearly better or worse."""
    for scores in evaluation.development:
        # Scores of a student that gives one answer to all rows mean nothing.
        if scores.only_answer:
            continue
        for metric, student in scores.student.items():
            name = f"{metric_of_rows(metric, scores)} on {rows_title(scores)}"
            gain = gain_of(name, student, scores.start.get(metric), scores.intervals.get(metric))
            if metric == scores.metric or _changed_clearly(gain):
                yield gain


def _changed_clearly(gain: Gain | None) -> bool:
    """Return whether a figure rose or fell by more than its interval."""
    if gain is None or gain.interval is None:
        return False
    return gain.is_clear or gain.is_clear_loss


def _adds_to(main: Gain | None, further: Gain | None) -> bool:
    """Return whether a further figure tells what the main one does not: that the student is below the start by it."""
    if further is None:
        return False
    if further.is_clear_loss:
        return True
    return main is not None and not main.is_clear and not main.is_clear_loss and further.student < further.start


def _gains_on_held_out_rows(task: TaskFigures) -> Iterator[Gain | None]:
    """Yield the gains of the main score and of the agreement on rows that were held out from the training files."""
    if task.only_answer:
        return
    # A run is judged by the labels, and by the agreement where there are none; see `limbeck.report.run_quality`.
    has_score = task.metric is not None and task.student is not None
    if task.metric is not None and task.student is not None:
        interval = interval_of_held_out_score(task.student, task.metric, task)
        name = f"{metric_name(task.metric)} on held-out rows"
        yield gain_of(name, task.student, task.start.get(task.metric), interval)
    if task.agreement is not None:
        interval = interval_of_agreement(task)
        yield gain_of(
            "agreement with the teacher on held-out rows",
            task.agreement,
            task.start_agreement,
            interval,
            is_second=has_score,
        )


def _gains_on_held_out_text(evaluation: RunEvaluation, start: UntrainedStart) -> Iterator[Gain | None]:
    """Yield the gains of the retrieval and of the agreement of sentence vectors."""
    retrieval = evaluation.student.retrieval or Retrieval()
    start_retrieval = start.retrieval or Retrieval()
    # Where a student without training is as good as the teacher, a training can lose and has nothing to gain.
    can_gain = not is_reached_untrained(evaluation.teacher.retrieval, start.untrained_retrieval)
    gain = gain_of("retrieval MRR@10", retrieval.mrr_at_10, start_retrieval.mrr_at_10, retrieval.interval)
    if can_gain or (gain is not None and gain.is_clear_loss):
        yield gain
    for metric in RETRIEVAL:
        further_gain = gain_of(
            f"retrieval {metric_name(metric)}",
            getattr(retrieval, metric),
            getattr(start_retrieval, metric),
            interval_of_retrieval(retrieval, metric),
        )
        if metric != "mrr_at_10" and can_gain and _adds_to(gain, further_gain):
            yield further_gain
    agreement = evaluation.agreement or Agreement()
    start_agreement = start.agreement or Agreement()
    yield gain_of(
        "agreement",
        agreement.spearman,
        start_agreement.spearman,
        agreement.interval,
        is_rough=agreement.interval is None,
    )
