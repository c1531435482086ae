"""Which figures of a run are reliable: fit to be compared with the teacher's, and to stand in a verdict and a card.

A score is *saturated* if the teacher's own is so high that poor students come near it. Records of earlier versions do
not name their measures; their figures are shown as they were.
"""

from limbeck.core import timing
from limbeck.core.intervals import ends_of, of_correlation, of_share
from limbeck.core.records import Agreement, BatchLatency, DevelopmentFigures, Retrieval
from limbeck.core.records.run_evaluation import SATURATED

_SHARES = ("accuracy", "exact_match")
"""Metrics that are a share of independent rows."""
_CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics that are a correlation over rows; Matthews' is that of two classes."""

FEWEST_QUERIES = 200
"""Fewest queries of a retrieval, or sentences of an agreement, whose figure counts for more than a rough one."""


def is_reliable_retrieval(teacher: Retrieval | None, metric: str) -> bool:
    """Return whether a figure of retrieval has enough queries and leaves the teacher room for errors.

    Args:
        teacher: The teacher's figures.
        metric: A field of `Retrieval`, such as `mrr_at_10`.
    """
    if teacher is None or teacher.measure is None:
        return True
    return has_enough_queries(teacher) and not is_saturated(teacher, metric)


def has_enough_queries(retrieval: Retrieval) -> bool:
    """Return whether a retrieval of this version has at least `FEWEST_QUERIES` queries."""
    return retrieval.measure is None or (retrieval.pool or 0) >= FEWEST_QUERIES


def is_saturated(teacher: Retrieval, metric: str) -> bool:
    """Return whether the teacher's figure of a retrieval of this version is above `SATURATED`."""
    value = getattr(teacher, metric)
    return teacher.measure is not None and value is not None and value > SATURATED


def is_reliable_agreement(agreement: Agreement) -> bool:
    """Return whether an agreement is over the pairs of at least `FEWEST_QUERIES` sentences."""
    return agreement.measure is None or (agreement.sentences or 0) >= FEWEST_QUERIES


def has_share(scores: DevelopmentFigures, metric: str) -> bool:
    """Return whether a score on development rows is fit to be given as a share of the teacher's.

    The student's score needs an interval. The teacher has to be above chance, and not clearly below the student: a
    teacher that cannot do the task is no measure of a student that can.

    Args:
        scores: The scores of both models.
        metric: The name of the metric.
    """
    teacher = scores.teacher.get(metric)
    interval = ends_of(scores.intervals.get(metric))
    if teacher is None or interval is None:
        return False
    lowest, _ = interval
    return not is_at_chance(scores, metric) and teacher >= lowest


def is_at_chance(scores: DevelopmentFigures, metric: str) -> bool:
    """Return whether the teacher's score on development rows is not above that of a model that does not read them."""
    teacher = scores.teacher.get(metric)
    return teacher is not None and _lowest_of_teacher(teacher, metric, scores) <= chance_of(scores, metric)


def _lowest_of_teacher(teacher: float, metric: str, scores: DevelopmentFigures) -> float:
    """Return the lower end of the interval of a teacher's score where it follows from the rows; else the score.

    Args:
        teacher: The teacher's score.
        metric: The name of the metric.
        scores: The scores of both models.
    """
    rows = int(scores.rows or 0)
    interval = None
    if metric in _SHARES and rows:
        interval = of_share(teacher, rows)
    elif metric in _CORRELATIONS:
        interval = of_correlation(teacher, rows, ranked=metric == "spearman")
    if interval is None:
        return teacher
    lowest, _ = interval
    return lowest


def chance_of(scores: DevelopmentFigures, metric: str) -> float:
    """Return the score of a model that does not read the rows.

    Older records lack it: theirs is the accuracy of the most frequent class, or 0 where there are no classes.
    """
    chance = scores.chance.get(metric)
    if chance is not None:
        return chance
    rows_of_classes = [sum(row) for row in scores.confusion]
    row_count = sum(rows_of_classes)
    if metric != "accuracy" or not row_count:
        return 0.0
    return max(rows_of_classes) / row_count


def reliable_speedup(batch: BatchLatency) -> float | None:
    """Return the speedup of whole models; None where it contradicts the medians, or has too few rounds."""
    if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, batch.speedup, batch.rounds):
        return None
    return batch.speedup


def reliable_transformer_speedup(batch: BatchLatency) -> float | None:
    """Return the speedup of the Transformer blocks; None as in `reliable_speedup`."""
    teacher_ms = batch.teacher_transformer.median_ms
    student_ms = batch.student_transformer.median_ms
    if timing.is_doubtful(teacher_ms, student_ms, batch.transformer_speedup, batch.rounds):
        return None
    return batch.transformer_speedup
