"""The figure that a run is judged by, and the facts that head its page."""

from collections.abc import Iterator
from dataclasses import dataclass

from limbeck.core import records, timing
from limbeck.core.blocks import counted, interval
from limbeck.core.intervals import Interval, ends_of, of_share
from limbeck.core.paths import short_model_name
from limbeck.report.names import metric_name
from limbeck.report.quality import AGREEMENT
from limbeck.report.scored_rows import only_answer, rows_title
from limbeck.report.sections import facts
from limbeck.report.subjects import RunFolder


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: Its name.
        student: The student's value.
        teacher: The teacher's value, where it has one.
        is_agreement: Whether it is how far the student agrees with the teacher, of which there is no share.
        interval: Of the student's value, where there is one.
        over: The sample of the interval, such as "872 rows".
    """

    label: str
    student: float
    teacher: float | None = None
    is_agreement: bool = False
    interval: Interval | None = None
    over: str = ""

    @property
    def share(self) -> float | None:
        """The share of the teacher's value that the student has."""
        if self.is_agreement or not self.student or not self.teacher:
            return None
        return self.student / self.teacher

    def __str__(self) -> str:
        return f"{self.label} {self.student:.3f}"


def quality_of(run: RunFolder) -> Quality | None:
    """Return the figure that a run is judged by, the nearest to its use that was measured.

    In this order: a score on development rows, agreement on held-out task rows, retrieval, agreement of vectors.
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
    label = f"{metric_name(scores.metric)} on {rows_title(scores)}"
    # A student with one answer has no share of its teacher's score: its own says nothing.
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
    # The interval is that of a share of rows, which only the accuracy of a classification is.
    ends = None
    if task.metric == "accuracy" and task.task == "classification" and task.rows:
        ends = of_share(agreement, int(task.rows))
    over = counted(task.rows or 0, "row")
    return Quality(AGREEMENT.lower(), agreement, teacher=1.0, is_agreement=True, interval=ends, over=over)


@facts(RunFolder)
def run_facts(run: RunFolder) -> Iterator[str]:
    """Yield how the student was made, how good it is and how fast, in a sentence each."""
    quality = quality_of(run)
    teacher = short_model_name(run.record.teacher.name_or_path)
    # `6x384` of `bert 6x384, 12 heads, …`.
    shape = run.record.student.shape.partition(",")[0].rpartition(" ")[2]
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
