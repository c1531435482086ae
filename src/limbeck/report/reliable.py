"""Which figures of a run are reliable: fit to be compared with the teacher's, and to stand in a verdict and a card.

A score is *saturated* if the teacher's own is so high that poor students come near it. A score is *reached untrained*
if a student without training comes so near to the teacher that nothing is left for a training to gain. Records of
earlier versions do not name their measures; their figures are shown as they were.
"""

from collections.abc import Sequence

from limbeck.core import timing
from limbeck.core.intervals import Interval, ends_of, of_correlation, of_share
from limbeck.core.kinds import kind_of
from limbeck.core.records import (
    Agreement,
    BatchLatency,
    CutVectors,
    DevelopmentFigures,
    LanguageFigures,
    Retrieval,
    RunEvaluation,
    TaskFigures,
    UntrainedStart,
)
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS, FEWEST_QUERIES, RETRIEVAL, SATURATED

_SHARES = ("accuracy", "exact_match")
"""Metrics that are a share of independent rows, but for the accuracy of tagged words."""
_CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics that are a correlation over rows; Matthews' is that of two classes."""
_AS_GOOD_UNTRAINED = "as good untrained"
"""Caution of a retrieval in which a student without training comes as near to the teacher as it can."""
WEAK = 0.2
"""A teacher with less has a weak score, such as an F1 or a correlation."""


def is_reliable_retrieval(teacher: Retrieval | None, start: Retrieval | None, metric: str) -> bool:
    """Return whether a figure of retrieval has enough queries, and tells good students from poor ones.

    The arguments are those of `caution_of_retrieval`.
    """
    return not caution_of_retrieval(teacher, start, metric)


def caution_of_retrieval(teacher: Retrieval | None, start: Retrieval | None, metric: str) -> str:
    """Return why a figure of retrieval is not reliable, in a few words; empty where it is reliable.

    Args:
        teacher: The teacher's figures.
        start: Those of the untrained start; None where it was not measured.
        metric: A field of `Retrieval`, such as `mrr_at_10`.
    """
    if teacher is None or teacher.measure is None:
        return ""
    if not has_enough_queries(teacher):
        return "too few passages"
    if is_saturated(teacher, metric):
        return "too easy"
    return _AS_GOOD_UNTRAINED if is_reached_untrained(teacher, start) else ""


def caution_of_cut_retrieval(cut: CutVectors, evaluation: RunEvaluation, metric: str) -> str:
    """Return why a figure of retrieval by cut vectors is not reliable, in a few words; empty where it is reliable.

    The start's vectors are not cut. Where its whole vectors are as good as the teacher's whole ones, the text tells no
    students apart, whatever the width.

    Args:
        cut: The figures of the cut vectors.
        evaluation: The evaluation that they are from, which has the whole vectors.
        metric: A field of `Retrieval`, such as `mrr_at_10`.
    """
    caution = caution_of_retrieval(cut.teacher, None, metric)
    # Records of earlier versions have no measure, and no caution.
    if caution or cut.teacher is None or cut.teacher.measure is None:
        return caution
    start = evaluation.start or UntrainedStart()
    is_reached = is_reached_untrained(evaluation.teacher.retrieval, start.untrained_retrieval)
    return _AS_GOOD_UNTRAINED if is_reached else ""


def has_enough_queries(retrieval: Retrieval) -> bool:
    """Return whether a retrieval of this version has at least `FEWEST_QUERIES` queries."""
    return retrieval.measure is None or (retrieval.pool or 0) >= FEWEST_QUERIES


def is_saturated(teacher: Retrieval, metric: str) -> bool:
    """Return whether the teacher's figure of a retrieval of this version is above `SATURATED`."""
    value = getattr(teacher, metric)
    return teacher.measure is not None and value is not None and value > SATURATED


def interval_of_retrieval(retrieval: Retrieval | None, metric: str) -> Interval | None:
    """Return the 95 % interval of a figure of retrieval; None where it was not measured.

    Args:
        retrieval: The figures of a model.
        metric: A field of `Retrieval`, such as `mrr_at_10`.
    """
    if retrieval is None:
        return None
    # The record has the interval of MRR@10 in a field of its own, and those of other figures in `intervals`.
    if metric == "mrr_at_10":
        return ends_of(retrieval.interval)
    # Recall@1 is a share of the queries, so that their number gives its interval.
    if metric == "recall_at_1" and retrieval.recall_at_1 is not None and retrieval.pool:
        return of_share(retrieval.recall_at_1, int(retrieval.pool))
    return ends_of(retrieval.intervals.get(metric))


def is_reached_untrained(teacher: Retrieval | None, start: Retrieval | None) -> bool:
    """Return whether the untrained start's MRR@10 is within the 95 % interval of the teacher's, or above it.

    All figures of a retrieval come from the same ranks, so the MRR@10 decides for all of them. Too few queries tell
    nothing of this, because the interval is wide.

    Args:
        teacher: The teacher's figures.
        start: Those of the untrained start; None where it was not measured.
    """
    if teacher is None or start is None or start.mrr_at_10 is None:
        return False
    interval = interval_of_retrieval(teacher, "mrr_at_10")
    if interval is None or not has_enough_queries(teacher):
        return False
    lowest, _ = interval
    return start.mrr_at_10 >= lowest


def is_reliable_agreement(agreement: Agreement) -> bool:
    """Return whether an agreement is over pairs of enough sentences, which are from enough documents."""
    return not caution_of_agreement(agreement)


def caution_of_agreement(agreement: Agreement) -> str:
    """Return why an agreement is not reliable, in a few words; empty where it is reliable."""
    if not has_enough_sentences(agreement):
        return "too few sentences"
    return "" if has_enough_documents(agreement) else "too few documents"


def has_enough_sentences(agreement: Agreement) -> bool:
    """Return whether an agreement of this version is over the pairs of at least `FEWEST_QUERIES` sentences."""
    return agreement.measure is None or (agreement.sentences or 0) >= FEWEST_QUERIES


def has_enough_documents(agreement: Agreement) -> bool:
    """Return whether an agreement of this version is over enough documents to have an interval.

    Sentences of one document are alike, so that many sentences of few documents are a small sample too.
    """
    return agreement.measure is None or (agreement.documents or 0) >= FEWEST_DOCUMENTS


def reliable_figures(evaluation: RunEvaluation) -> RunEvaluation:
    """Return the measurements of a run without the figures on held-out text that are not reliable."""
    agreement = _reliable_agreement(evaluation.agreement)

    # All retrievals of whole vectors are judged by the teacher's and by that of the untrained start.
    teacher_retrieval = evaluation.teacher.retrieval
    untrained_retrieval = None if evaluation.start is None else evaluation.start.untrained_retrieval

    def reliable(retrieval: Retrieval | None) -> Retrieval | None:
        return _reliable_retrieval(retrieval, teacher_retrieval, untrained_retrieval)

    teacher = evaluation.teacher.model_copy(update={"retrieval": reliable(teacher_retrieval)})
    student = evaluation.student.model_copy(update={"retrieval": reliable(evaluation.student.retrieval)})
    start = evaluation.start
    if start is not None:
        # The agreements of the start and of the student are over the same pairs, so both are reliable, or neither is.
        start_agreement = None if agreement is None else start.agreement
        start_figures = {"agreement": start_agreement, "retrieval": reliable(start.retrieval)}
        start = start.model_copy(update=start_figures)
    cuts = []
    for cut in evaluation.cut:
        reliable_cut = _reliable_cut(cut, evaluation)
        if reliable_cut is not None:
            cuts.append(reliable_cut)

    reliable_fields = {
        "teacher": teacher,
        "student": student,
        "agreement": agreement,
        "asymmetric": reliable(evaluation.asymmetric),
        "start": start,
        "cut": cuts,
        "languages": [_reliable_language(figures) for figures in evaluation.languages],
    }
    return evaluation.model_copy(update=reliable_fields)


def has_enough_texts(figures: LanguageFigures) -> bool:
    """Return whether the figures of a language are over at least `FEWEST_QUERIES` texts."""
    return (figures.texts or 0) >= FEWEST_QUERIES


def _reliable_language(figures: LanguageFigures) -> LanguageFigures:
    """Return the figures of a language; of too few texts their number alone."""
    if has_enough_texts(figures):
        return figures
    return LanguageFigures(language=figures.language, texts=figures.texts)


def _reliable_agreement(agreement: Agreement | None) -> Agreement | None:
    """Return an agreement if it is reliable."""
    return agreement if agreement is not None and is_reliable_agreement(agreement) else None


def _reliable_retrieval(
    retrieval: Retrieval | None, teacher: Retrieval | None, start: Retrieval | None = None
) -> Retrieval | None:
    """Return a retrieval with its reliable figures alone; None where there are none.

    Args:
        retrieval: The figures of a model.
        teacher: The teacher's figures.
        start: Those of the untrained start; None where it was not measured.
    """
    return _without(retrieval, [metric for metric in RETRIEVAL if not is_reliable_retrieval(teacher, start, metric)])


def _without(retrieval: Retrieval | None, metrics: Sequence[str]) -> Retrieval | None:
    """Return a retrieval without some of its figures; None where none is left."""
    if retrieval is None or len(metrics) == len(RETRIEVAL):
        return None
    return retrieval.model_copy(update=dict.fromkeys(metrics))


def _reliable_cut(cut: CutVectors, evaluation: RunEvaluation) -> CutVectors | None:
    """Return the reliable figures of vectors that were cut; None where there are none.

    Args:
        cut: The figures of the cut vectors.
        evaluation: The evaluation that they are from.
    """
    unreliable = [metric for metric in RETRIEVAL if caution_of_cut_retrieval(cut, evaluation, metric)]
    agreement = _reliable_agreement(cut.agreement)
    student = _without(cut.student, unreliable)
    asymmetric = _without(cut.asymmetric, unreliable)
    if agreement is None and student is None and asymmetric is None:
        return None
    teacher = _without(cut.teacher, unreliable)
    return cut.model_copy(
        update={"agreement": agreement, "teacher": teacher, "student": student, "asymmetric": asymmetric}
    )


def share_of_teacher(student: float | None, teacher: float | None) -> float | None:
    """Return the share of the teacher's score that a student keeps, 0 to 1; None where it keeps none.

    A student that is better than its teacher has a score of its own, and keeps nothing. Scores that are correlations
    may be negative, and a share of a negative number says nothing.
    """
    if student is None or teacher is None or teacher <= 0:
        return None
    if not 0 <= student <= teacher:
        return None
    return student / teacher


def has_share(scores: DevelopmentFigures, metric: str) -> bool:
    """Return whether a score on development rows is fit to be given as a share of the teacher's.

    The student's score needs an interval. The teacher has to be above chance, not weak, and not clearly below the
    student: a teacher that cannot do the task is no measure of a student that can. The student has to be above chance
    too, since a guesser would keep as large a share.

    Args:
        scores: The scores of both models.
        metric: The name of the metric.
    """
    teacher = scores.teacher.get(metric)
    interval = ends_of(scores.intervals.get(metric))
    if teacher is None or interval is None:
        return False
    lowest, _ = interval
    if is_student_at_chance(scores, metric) or is_student_at_chance(scores, scores.metric):
        return False
    return not is_weak(teacher) and not is_at_chance(scores, metric) and teacher >= lowest


def is_student_at_chance(scores: DevelopmentFigures, metric: str) -> bool:
    """Return whether the student's score on development rows is not clearly above that of a guesser.

    Args:
        scores: The scores of both models.
        metric: The name of the metric. Of one whose guesser has 0, or is not known, nothing is said.
    """
    student = scores.student.get(metric)
    if student is None:
        return False
    return is_guessed(student, ends_of(scores.intervals.get(metric)), chance_of(scores, metric))


def is_guessed(score: float, interval: Interval | None, chance: float | None) -> bool:
    """Return whether a score is not clearly above that of a guesser.

    Args:
        score: The score.
        interval: Its 95 % interval, where there is one.
        chance: The score of the guesser; 0 or None where there is no guesser to compare with.
    """
    if not chance:
        return False
    lowest, _ = interval or (score, score)
    return lowest <= chance


def is_at_chance(scores: DevelopmentFigures, metric: str) -> bool:
    """Return whether the teacher's score on development rows is not above that of a model that does not read them."""
    teacher = scores.teacher.get(metric)
    return teacher is not None and lowest_of_teacher(teacher, metric, scores) <= chance_of(scores, metric)


def is_weak(score: float | None) -> bool:
    """Return whether a teacher's own score is so low, below `WEAK`, that there is little for a student to learn."""
    return score is not None and score < WEAK


def lowest_of_teacher(teacher: float, metric: str, scores: DevelopmentFigures) -> float:
    """Return the lower end of the interval of a teacher's score where there is one; else the score.

    Args:
        teacher: The teacher's score.
        metric: The name of the metric.
        scores: The scores of both models.
    """
    interval = ends_of(scores.teacher_intervals.get(metric))
    if interval is not None:
        lowest, _ = interval
        return lowest
    # Older records have the interval of the student alone.
    return _lowest_by_rows(teacher, metric, scores.kind, scores.rows)


def lowest_of_held_out_teacher(teacher: float, metric: str, task: TaskFigures) -> float:
    """Return the lower end of the interval of a teacher's score on rows held out from the training files.

    The record has no interval of it, so that it follows from the number of rows; else the score is returned.

    Args:
        teacher: The teacher's score.
        metric: The name of the metric.
        task: The figures on these rows.
    """
    return _lowest_by_rows(teacher, metric, task.task, task.rows)


def _lowest_by_rows(score: float, metric: str, kind: str | None, rows: float | None) -> float:
    """Return the lower end of the interval that follows from the number of rows; the score where none does.

    Args:
        score: The score.
        metric: The name of its metric.
        kind: The kind of the task.
        rows: The number of rows; None where it is not known.
    """
    interval = interval_of_share(score, metric, kind, rows)
    if metric in _CORRELATIONS:
        interval = of_correlation(score, int(rows or 0), ranked=metric == "spearman")
    if interval is None:
        return score
    lowest, _ = interval
    return lowest


def interval_of_share(value: float, metric: str | None, kind: str | None, rows: float | None) -> Interval | None:
    """Return the interval of a share of rows, which follows from their number; None for any other score.

    Args:
        value: The score.
        metric: The name of its metric.
        kind: The kind of the task.
        rows: The number of rows; None where it is not known.
    """
    # The accuracy of tags is a share of words, and the words of one row are not independent.
    is_of_words = kind_of(kind).label == "token"
    if metric not in _SHARES or is_of_words or not rows:
        return None
    return of_share(value, int(rows))


def agreement_metric(task: TaskFigures) -> str | None:
    """Return the metric of an agreement on held-out rows of a task, which may differ from that of the scores."""
    return task.agreement_metric or task.metric


def interval_of_agreement(task: TaskFigures) -> Interval | None:
    """Return the 95 % interval of the agreement on held-out rows; None where it is not known."""
    if task.agreement is None:
        return None
    of_share = interval_of_share(task.agreement, agreement_metric(task), task.task, task.rows)
    return of_share or ends_of(task.agreement_interval)


def interval_of_held_out_score(value: float | None, metric: str | None, task: TaskFigures) -> Interval | None:
    """Return the 95 % interval of the student's score by a metric on held-out rows; None where it is not known."""
    if value is None or metric is None:
        return None
    of_share = interval_of_share(value, metric, task.task, task.rows)
    return of_share or ends_of(task.intervals.get(metric))


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
    """Return the speedup of whole models; None where the times of the batch are doubtful, see `has_doubtful_times`."""
    return None if has_doubtful_times(batch) else batch.speedup


def reliable_transformer_speedup(batch: BatchLatency) -> float | None:
    """Return the speedup of the Transformer blocks; None as in `reliable_speedup`."""
    return None if has_doubtful_times(batch) else batch.transformer_speedup


def has_doubtful_times(batch: BatchLatency) -> bool:
    """Return whether a speedup of a batch contradicts the medians or the shapes, or has too few rounds.

    Whole models and their Transformer blocks were timed in the same passes: where one of the two is doubtful, neither
    is given. A model is no faster than its blocks make it, so the shapes of the blocks bound both.
    """
    whole = (batch.teacher.median_ms, batch.student.median_ms, batch.speedup)
    blocks = (batch.teacher_transformer.median_ms, batch.student_transformer.median_ms, batch.transformer_speedup)
    for teacher_ms, student_ms, speedup in (whole, blocks):
        # Models whose blocks were not timed have no speedup of them.
        if speedup is None:
            continue
        is_doubtful = timing.is_doubtful(
            teacher_ms, student_ms, speedup, batch.rounds, batch.shape_ratio, is_busy=is_unsteady(batch)
        )
        if is_doubtful:
            return True
    return False


def is_unsteady(batch: BatchLatency) -> bool:
    """Return whether the machine was busy while a batch was timed; see `timing.is_unsteady`."""
    for times in (batch.teacher, batch.student):
        if timing.is_unsteady(times.p10_ms, times.p90_ms, load=batch.load, demand=batch.demand):
            return True
    return False


def caution_of_speedup(batch: BatchLatency) -> str:
    """Return a caution for the times of a batch, in a few words; "" where nothing speaks against them."""
    if is_unsteady(batch):
        return "busy machine"
    return "doubtful times" if has_doubtful_times(batch) else ""
