"""The figure that a run is judged by, and the facts that head its page.

A run may have several measurements of its student's quality. The one that is nearest to the student's use stands for
the run in tables of runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from limbeck.core import records, timing
from limbeck.core.blocks import counted, interval
from limbeck.core.intervals import Interval, ends_of, of_share
from limbeck.core.paths import short_model_name
from limbeck.report.names import metric_of_rows
from limbeck.report.quality import AGREEMENT, AGREEMENT_WITHOUT_LABELS
from limbeck.report.scored_rows import only_answer, rows_title
from limbeck.report.sections import facts
from limbeck.report.subjects import RunFolder


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: Name of the figure.
        student: The student's value.
        teacher: The teacher's value, if it is known; 1 for an agreement, since the teacher agrees with itself.
        is_agreement: Whether the figure is the student's agreement with the teacher. It has no share of the teacher's
            value.
        interval: 95 % interval of the student's value, if it is known.
        over: The sample of the interval in words, such as "872 rows".
    """

    label: str
    student: float
    teacher: float | None = None
    is_agreement: bool = False
    interval: Interval | None = None
    over: str = ""

    @property
    def share(self) -> float | None:
        """The student's value as a share of the teacher's; None where there is none, or where either is 0."""
        if self.is_agreement or not self.student or not self.teacher:
            return None
        return self.student / self.teacher

    def __str__(self) -> str:
        return f"{self.label} {self.student:.3f}"


def quality_of(run: RunFolder) -> Quality | None:
    """Return the figure that a run is judged by; None where nothing was measured.

    It is the first of these that was measured: a score on development rows, agreement with the teacher on rows held out
    from a task's training files, retrieval, agreement of the sentence vectors.
    """
    evaluation = run.record.evaluation or records.RunEvaluation()
    for scores in evaluation.development:
        value = scores.student.get(scores.metric)
        if value is not None:
            return _development_quality(scores, value)
    task = evaluation.task
    if task is not None and task.metric and task.agreement is not None:
        return _task_quality(task, task.agreement)
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.mrr_at_10 is not None:
        teacher = evaluation.teacher.retrieval or records.Retrieval()
        return Quality(
            "held-out retrieval MRR@10",
            retrieval.mrr_at_10,
            teacher.mrr_at_10,
            interval=ends_of(retrieval.interval),
            over=counted(retrieval.pool or 0, "summary"),
        )
    agreement = evaluation.agreement
    if agreement is not None and agreement.spearman is not None:
        return Quality(
            "agreement with the teacher (Spearman)",
            agreement.spearman,
            teacher=1.0,
            is_agreement=True,
            interval=ends_of(agreement.interval),
            over=counted(agreement.documents or 0, "document"),
        )
    return None


def _development_quality(scores: records.DevelopmentFigures, value: float) -> Quality:
    """Return the student's score on development rows by the main metric of their task.

    Args:
        scores: The scores of both models.
        value: The student's score.
    """
    label = f"{metric_of_rows(scores.metric, scores)} on {rows_title(scores)}"
    # The score of a student with one answer to all rows is meaningless, so it is not compared with the teacher's.
    if only_answer(scores) is not None:
        return Quality(label, value)
    return Quality(
        label,
        value,
        scores.teacher.get(scores.metric),
        interval=ends_of(scores.intervals.get(scores.metric)),
        over=counted(scores.rows or 0, "row"),
    )


def _task_quality(task: records.TaskFigures, agreement: float) -> Quality:
    """Return the student's agreement with the teacher on rows held out from the training files.

    Args:
        task: The figures on these rows.
        agreement: The student's score with the teacher's answers as labels.
    """
    # An accuracy is a share of independent rows, whose interval follows from their number. F1, for example, is not.
    ends = None
    if task.metric == "accuracy" and task.task == "classification" and task.rows:
        ends = of_share(agreement, int(task.rows))
    over = counted(task.rows or 0, "row")
    label = AGREEMENT_WITHOUT_LABELS if task.labelled is False else AGREEMENT
    return Quality(label.lower(), agreement, teacher=1.0, is_agreement=True, interval=ends, over=over)


@facts(RunFolder)
def run_facts(run: RunFolder) -> Iterator[str]:
    """Yield sentences on the making of the student, its quality and its speed."""
    quality = quality_of(run)
    teacher = short_model_name(run.record.teacher.name_or_path)
    # The record has the shape as text, such as `bert 6x384, 12 heads, FFN 1536`: the size stands before the comma.
    type_and_size, _, _ = run.record.student.shape.partition(",")
    _, _, shape = type_and_size.rpartition(" ")
    # The record of a run that failed early may lack either.
    is_described = bool(shape and teacher)
    if is_described:
        methods = ", ".join(dict.fromkeys(stage.method for stage in run.stages))
        training_phrase = f"taught by {methods}" if methods else "as initialised, without training"
        yield f"A {shape} student of {teacher}, {training_phrase}."

    if quality is not None:
        yield _quality_sentence(quality)
    elif is_described and run.status.status == "running":
        yield "Its quality is measured at the end."
    elif is_described:
        yield "Its quality was not measured."

    evaluation = run.record.evaluation or records.RunEvaluation()
    batch = evaluation.first_batch
    if batch.speedup:
        yield f"Speed: {batch.speedup:.1f} times as fast at batch size {batch.batch_size}."
        if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, batch.speedup, batch.rounds):
            yield "The machine was busy while speed was measured."


def _quality_sentence(quality: Quality) -> str:
    """Return the figure of a run, its interval and its share of the teacher's in a sentence."""
    line = f"Quality: {quality}"
    if quality.interval is not None:
        line += f" (95 %: {interval(quality.interval, 3)}, over {quality.over})"
    if quality.share is not None:
        line += f", {quality.share:.1%} of the teacher's"
    return f"{line}."
