"""The figure that a run is judged by, and the highlights and facts that head its page.

A run may have several measurements of its student's quality. The one that is nearest to the student's use stands for
the run in tables of runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from limbeck.core import records, studies
from limbeck.core.blocks import NOTHING, counted, counted_rows, duration, interval, rounded
from limbeck.core.intervals import Interval, ends_of
from limbeck.core.paths import short_model_name
from limbeck.core.records.run_evaluation import UNTRAINED_START
from limbeck.report.chance import guesser_of, with_article
from limbeck.report.gains import gain_sentences
from limbeck.report.names import metric_name, metric_of_rows
from limbeck.report.quality import agreement_label, format_count
from limbeck.report.quality_notes import missing_figures, reasons_against
from limbeck.report.reliable import (
    caution_of_agreement,
    caution_of_retrieval,
    chance_of,
    has_share,
    interval_of_agreement,
    interval_of_held_out_score,
    is_reliable_agreement,
    is_reliable_retrieval,
    is_unsteady,
    reliable_speedup,
    share_of_teacher,
)
from limbeck.report.scored_rows import MEANINGLESS, TOO_GOOD, only_answer, rows_title
from limbeck.report.sections import Highlight, facts, highlights
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
        has_share: Whether the figure is fit to be given as a share of the teacher's.
        caution: Why the figure says little; empty where nothing speaks against it.
        chose_step: Whether the same rows or text chose the step whose student was kept, so that the student's value is
            too good.
        interval: 95 % interval of the student's value, if it is known.
        start: The value of the start, if it is known.
        start_name: Its name: `untrained start` or `trained start`.
        gain_of: What lies between the start and the student: `training` or `fit`.
        over: The sample of the interval in words, such as "872 rows".
        guesser: What stands beside the value: the name of a guesser and its score; empty where there is none.
        metric: Name of its metric alone, for a figure that has a share.
    """

    label: str
    student: float
    teacher: float | None = None
    is_agreement: bool = False
    interval: Interval | None = None
    over: str = ""
    start: float | None = None
    start_name: str = UNTRAINED_START
    gain_of: str = "training"
    has_share: bool = True
    guesser: str = ""
    caution: str = ""
    chose_step: bool = False
    metric: str = ""

    @property
    def share(self) -> float | None:
        """The student's value as a share of the teacher's; None where there is none, or where it is 0."""
        is_comparable = self.has_share and not self.is_agreement
        if not is_comparable or not self.student or not self.teacher:
            return None
        return share_of_teacher(self.student, self.teacher)

    @property
    def start_share(self) -> float | None:
        """The value of the start as a share of the teacher's; None where the student has no share."""
        return None if self.share is None else share_of_teacher(self.start, self.teacher)

    @property
    def start_words(self) -> str:
        """The value of the start, as a clause; empty where it is not known."""
        if self.start is None:
            return ""
        # A run begins with one trained model, and an untrained start is made to compare with.
        article = "an" if self.start_name == UNTRAINED_START else "the"
        return f"{article} {self.start_name} has {rounded(self.start, 3)}"

    @property
    def before_words(self) -> str:
        """A phrase for the share of the start, behind the share of the student."""
        return f"without the {self.gain_of}" if self.start_name == UNTRAINED_START else f"before this {self.gain_of}"

    @property
    def share_interval(self) -> Interval | None:
        """The ends of the value's 95 % interval as shares of the teacher's value; None where the value has no share."""
        if self.share is None or self.interval is None or not self.teacher:
            return None
        low, high = self.interval
        return low / self.teacher, high / self.teacher

    def __str__(self) -> str:
        return f"{self.label} {rounded(self.student, 3)}"


def quality_of(run: RunFolder) -> Quality | None:
    """Return the figure that a run is judged by; None where nothing reliable was measured.

    It is the first of these that was measured: a score on development rows, a score on rows held out from a task's
    training files or the agreement with the teacher on them, retrieval, agreement of the sentence vectors. Of the last
    two, a figure that is not reliable is passed over; see `limbeck.report.reliable`.
    """
    evaluation = run.record.evaluation or records.RunEvaluation()
    start = evaluation.start or records.UntrainedStart()
    for scores in evaluation.development:
        value = scores.student.get(scores.metric)
        if value is not None:
            return _development_quality(scores, value, start)

    task = evaluation.task or records.TaskFigures()
    # The labels are nearer to the student's use than the answers of the teacher.
    if task.metric is not None and task.student is not None and task.labelled is not False:
        return _labelled_quality(task, task.metric, task.student, start)
    if task.metric is not None and task.agreement is not None:
        return _task_quality(task, task.agreement, start)

    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.mrr_at_10 is not None:
        teacher = evaluation.teacher.retrieval or records.Retrieval()
        if is_reliable_retrieval(teacher, start.untrained_retrieval, "mrr_at_10"):
            quality = _retrieval_quality(retrieval, retrieval.mrr_at_10, teacher, start)
            return replace(quality, chose_step=evaluation.chose_step)
    agreement = evaluation.agreement
    if agreement is not None and agreement.spearman is not None and is_reliable_agreement(agreement):
        quality = _agreement_quality(agreement, agreement.spearman, start)
        return replace(quality, chose_step=evaluation.chose_step)
    return None


def reason_without_quality(run: RunFolder) -> str:
    """Return why `quality_of` gives no figure of a run, in a few words."""
    if run.status.status == "running":
        return "quality is measured at the end"
    evaluation = run.record.evaluation or records.RunEvaluation()
    cautions = []
    if evaluation.student.retrieval is not None:
        start = evaluation.start or records.UntrainedStart()
        cautions.append(caution_of_retrieval(evaluation.teacher.retrieval, start.untrained_retrieval, "mrr_at_10"))
    if evaluation.agreement is not None:
        cautions.append(caution_of_agreement(evaluation.agreement))
    reasons = [caution for caution in cautions if caution]
    if not reasons:
        return "quality was not measured"
    return f"quality cannot be judged: {', '.join(reasons)}"


def _retrieval_quality(
    retrieval: records.Retrieval, value: float, teacher: records.Retrieval, start: records.UntrainedStart
) -> Quality:
    """Return the student's MRR@10 on held-out text.

    Args:
        retrieval: The student's retrieval.
        value: Its MRR@10.
        teacher: The teacher's retrieval.
        start: The start.
    """
    is_of_earlier_version = retrieval.measure is None
    label = "held-out retrieval MRR@10" if is_of_earlier_version else "held-out passage retrieval MRR@10"
    query = "summary" if is_of_earlier_version else "query"
    return Quality(
        label,
        value,
        teacher.mrr_at_10,
        interval=ends_of(retrieval.interval),
        over=counted(retrieval.pool or 0, query),
        metric=metric_name("mrr_at_10"),
        start=None if start.retrieval is None else start.retrieval.mrr_at_10,
        start_name=start.name,
        gain_of=start.gain_of,
    )


def _agreement_quality(agreement: records.Agreement, value: float, start: records.UntrainedStart) -> Quality:
    """Return the agreement of the student's sentence vectors with the teacher's.

    Args:
        agreement: The agreement.
        value: Spearman's correlation.
        start: The start.
    """
    label = "agreement with the teacher (Spearman)"
    if agreement.measure is not None:
        label = "agreement with the teacher, far to near (Spearman)"
    return Quality(
        label,
        value,
        teacher=1.0,
        is_agreement=True,
        interval=ends_of(agreement.interval),
        over=counted(agreement.documents or 0, "document"),
        start=None if start.agreement is None else start.agreement.spearman,
        start_name=start.name,
        gain_of=start.gain_of,
    )


def _development_quality(scores: records.DevelopmentFigures, value: float, start: records.UntrainedStart) -> Quality:
    """Return the student's score on development rows by the main metric of their task.

    Args:
        scores: The scores of both models.
        value: The student's score by the main metric, which the caller has found in `scores`.
        start: The start.
    """
    metric = metric_of_rows(scores.metric, scores)
    label = f"{metric} on {rows_title(scores)}"
    # The score of a student with one answer to all rows is meaningless, so it is not compared with the teacher's.
    if only_answer(scores) is not None:
        return Quality(label, value, caution=MEANINGLESS)
    return Quality(
        label,
        value,
        teacher=scores.teacher.get(scores.metric),
        interval=ends_of(scores.intervals.get(scores.metric)),
        start=scores.start.get(scores.metric),
        start_name=start.name,
        over=counted_rows(scores.rows or 0, scores.queries),
        has_share=has_share(scores, scores.metric),
        guesser=_guesser_words(scores.metric, scores.kind, chance_of(scores, scores.metric)),
        chose_step=scores.chose_step,
        metric=metric,
    )


def _guesser_words(metric: str, kind: str | None, chance: float | None) -> str:
    """Return the guesser beside a student's main score with its own score; empty where there is none.

    Args:
        metric: The main metric.
        kind: The kind of the task.
        chance: The score of the guesser; None where it is not known.
    """
    guesser = guesser_of(metric, kind)
    if guesser is None or chance is None or chance <= 0:
        return ""
    return f"{with_article(guesser)} has {rounded(chance, 3)}"


def _labelled_quality(task: records.TaskFigures, metric: str, value: float, start: records.UntrainedStart) -> Quality:
    """Return the student's main score by the labels of rows held out from the training files.

    The teacher may have been trained on these rows, so there is no share of its score. Without an agreement there is no
    teacher for the task.

    Args:
        task: The figures on these rows.
        metric: Their main metric.
        value: The student's score by it.
        start: The start.
    """
    label = f"{metric_name(metric)} on held-out rows"
    if task.agreement is not None:
        label += " (the teacher may have been trained on them)"
    if task.only_answer:
        return Quality(label, value, caution=MEANINGLESS)
    return Quality(
        label,
        value,
        teacher=task.teacher,
        interval=interval_of_held_out_score(value, metric, task),
        over=counted_rows(task.rows or 0, task.queries),
        start=task.start.get(metric),
        start_name=start.name,
        has_share=False,
        guesser=_guesser_words(metric, task.task, task.chance.get(metric)),
        chose_step=task.chose_step,
    )


def _task_quality(task: records.TaskFigures, agreement: float, start: records.UntrainedStart) -> Quality:
    """Return the student's agreement with the teacher on rows held out from the training files.

    Args:
        task: The figures on these rows.
        agreement: The student's score with the teacher's answers as labels.
        start: The start.
    """
    # The label of a table begins with a capital letter, and that of a figure with a small one.
    table_label = agreement_label(task)
    label = f"{table_label[:1].lower()}{table_label[1:]}"
    if task.only_answer:
        return Quality(label, agreement, is_agreement=True, caution=MEANINGLESS)
    ends = interval_of_agreement(task)
    over = counted_rows(task.rows or 0, task.queries)
    return Quality(
        label,
        agreement,
        teacher=1.0,
        is_agreement=True,
        interval=ends,
        over=over,
        start=task.start_agreement,
        start_name=start.name,
        chose_step=task.chose_step,
    )


@highlights(RunFolder)
def run_highlights(run: RunFolder) -> Iterator[Highlight]:
    """Yield the quality of the student, its share of the teacher's, size and speed, and the time of its training."""
    quality = quality_of(run)
    if quality is not None:
        yield _quality_highlight(quality)
    if quality is not None and quality.share is not None and quality.teacher is not None:
        label = f"of the teacher's {quality.metric}"
        if quality.start_share is not None:
            label += f", {100 * quality.start_share:.1f} % {quality.before_words}"
        elif quality.start is not None and quality.start > quality.teacher:
            label += f", and more than all of it {quality.before_words}"
        detail = f"the teacher has {rounded(quality.teacher, 3)}"
        if quality.share_interval is not None:
            low, high = quality.share_interval
            detail = f"95 %: {interval((100 * low, 100 * high))} %; {detail}"
        yield Highlight(f"{100 * quality.share:.1f} %", label, detail)

    # Size and speed are large figures only where the student is smaller, and the speedup reliable.
    evaluation = run.record.evaluation or records.RunEvaluation()
    yield from _size_highlight(run.record)
    batch = evaluation.first_batch
    speedup = reliable_speedup(batch)
    if speedup:
        detail = f"at batch size {batch.batch_size}"
        if is_unsteady(batch):
            detail += "; the machine was busy"
        yield Highlight(f"{speedup:.1f}x", "as fast as the teacher", detail)

    # Stages that have just begun have next to no time.
    seconds = sum(stage.seconds or 0 for stage in run.stages)
    tokens = sum(stage.tokens or 0 for stage in run.stages if not stage.trains_assistant)
    if seconds >= 1:
        is_finished = run.status.status == "finished"
        label = "of training" if is_finished else "of training so far"
        if run.has_assistants:
            label += ", with the assistants"
        read = f"{format_count(tokens)} tokens read by the student" if tokens else ""
        yield Highlight(duration(seconds), label, read)


def has_uncounted_parameters(run: records.Run) -> bool:
    """Return whether the student has a pooler or a head that the comparison of sizes leaves out."""
    compared = (run.evaluation or records.RunEvaluation()).student.parameters.total
    return compared is not None and run.student.parameters is not None and run.student.parameters > compared


def _size_highlight(run: records.Run) -> Iterator[Highlight]:
    """Yield how much smaller the whole student is, embeddings included, and its Transformer part in small print."""
    evaluation = run.evaluation or records.RunEvaluation()
    teacher = evaluation.teacher.parameters
    student = evaluation.student.parameters
    times = _times_smaller(teacher.total, student.total)
    if not times:
        return
    detail = f"{format_count(student.total or 0)} parameters of {format_count(teacher.total or 0)}"
    if has_uncounted_parameters(run):
        detail += ", without pooler and head"
    times_of_transformer = _times_smaller(teacher.transformer, student.transformer)
    if times_of_transformer:
        detail += f"; its Transformer part is {times_of_transformer} smaller"
    yield Highlight(times, "smaller", detail)


def _times_smaller(teacher: float | None, student: float | None) -> str:
    """Return how many times smaller the student's size is: `2.0x`; "" where it is not, and where it is not known."""
    if not teacher or not student:
        return ""
    ratio = round(teacher / student, 1)
    return f"{ratio:.1f}x" if ratio > 1 else ""


def _quality_highlight(quality: Quality) -> Highlight:
    """Return the figure of a run with its interval, beside that of its start."""
    if quality.caution:
        # A figure that says nothing is not set large.
        return Highlight(NOTHING, quality.label, f"{rounded(quality.student, 3)} is {quality.caution}")
    details = []
    if quality.interval is not None:
        details.append(f"95 %: {interval(quality.interval, digits=3)}, over {quality.over}")
    # Behind a share, the teacher's value has a figure of its own; see `run_highlights`.
    if quality.share is None and quality.teacher is not None and not quality.is_agreement:
        details.append(f"the teacher has {rounded(quality.teacher, 3)}")
    if quality.start_words:
        details.append(quality.start_words)
    if quality.guesser:
        details.append(quality.guesser)
    if quality.chose_step:
        details.append(TOO_GOOD)
    return Highlight(rounded(quality.student, 3), quality.label, "; ".join(details))


@facts(RunFolder)
def run_facts(run: RunFolder) -> Iterator[str]:
    """Yield sentences on the making of the student, on unclear gains, and on its quality where it has no figure."""
    teacher = short_model_name(run.record.teacher.name_or_path)
    size = studies.size_of_shape(run.record.student.shape)
    # The record of a run that failed early may lack either.
    if not size or not teacher:
        return
    methods = ", ".join(dict.fromkeys(stage.method for stage in run.stages))
    training_phrase = f"taught by {methods}" if methods else "as initialised, without training"
    start = run.record.student.initialisation
    if not methods and isinstance(start, records.Initialisation) and start.trained_model is not None:
        training_phrase = "as it began, without further training"
    yield f"A {size} student of {teacher}, {training_phrase}."

    evaluation = run.record.evaluation or records.RunEvaluation()
    # The figure that stands for the run may be clearly gained, and another one not.
    gains = gain_sentences(evaluation)
    if gains:
        yield " ".join(gains)
    if quality_of(run) is not None:
        return
    if run.status.status == "running":
        yield "Its quality is measured at the end."
        return
    reasons = reasons_against(evaluation)
    if reasons:
        # Vectors were measured, but on too few texts, or on texts that any model tells apart.
        missing = missing_figures(evaluation, "agreement", "retrieval")
        yield " ".join(["Its quality cannot be judged yet.", *reasons, *missing])
    else:
        yield "Its quality was not measured."
