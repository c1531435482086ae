"""The table of teacher and student of a run: for the terminal, Markdown, CSV and JSON.

Functions named `comparison_…` are those of the public interface, after `limbeck.evaluation.Comparison`.
A *figure* is a measured value, such as a latency or a score. *Agreement* is how closely the student follows the
teacher: the Spearman correlation of their similarities of sentence pairs, or the share of rows with the same answer. An
*asymmetric* retrieval finds, by the student's vectors of queries, documents that the teacher has encoded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown
from limbeck.core.blocks import BOXED, NOTHING, Block, Table, rounded, to_csv
from limbeck.core.console_blocks import console
from limbeck.core.intervals import Interval, ends_of
from limbeck.core.records import (
    Agreement,
    BatchLatency,
    CutVectors,
    DevelopmentFigures,
    MetricScores,
    Retrieval,
    RunEvaluation,
    TaskFigures,
    UntrainedStart,
    text_of,
)
from limbeck.core.records.run_evaluation import RETRIEVAL, TRAINED_START, UNTRAINED_START
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.report.chance import GUESSERS, guesser_of, with_article
from limbeck.report.names import at_start, metric_name, metric_of_rows
from limbeck.report.output_files import write_forms
from limbeck.report.quality_notes import Measured, comparison_notes, notes_blocks
from limbeck.report.reliable import (
    agreement_metric,
    caution_of_agreement,
    caution_of_cut_retrieval,
    caution_of_retrieval,
    caution_of_speedup,
    chance_of,
    has_share,
    interval_of_agreement,
    interval_of_held_out_score,
    interval_of_retrieval,
    reliable_figures,
    reliable_speedup,
    reliable_transformer_speedup,
    share_of_teacher,
)
from limbeck.report.scored_rows import TOO_GOOD, only_answer, rows_title

AGREEMENT = "Agreement on rows the teacher may have been trained on"
"""Label of the figure of rows that were held out from a task's training files; the student has not seen them."""
AGREEMENT_WITHOUT_LABELS = "Agreement with the teacher on held-out rows without labels"
"""Label of the same figure where the rows have no labels, so that the teacher was not trained on them for its task."""
STARTS = (UNTRAINED_START, TRAINED_START)
"""Labels of the figures of a start; see `limbeck.core.records.UntrainedStart`."""
_SHARE_OF_EQUAL_ANSWERS = "accuracy"
"""The metric of an agreement that needs no name: how many rows both models give the same answer."""
_PART_MARK = "  "
"""Indents the label of a part of the row above, in the terminal."""
PART_MARK_OF_TEXT = "↳ "
"""Stands before the label of a part in Markdown and on pages, which drop the spaces at the edges of a cell."""
_UNITS_OF_SIZE = ("count", "width", "megabytes")
_UNITS_IN_FILES = {"megabytes": "MB", "milliseconds": "ms"}
"""How a table of numbers names the units of rows."""
Unit: TypeAlias = Literal["count", "width", "megabytes", "milliseconds", "share", "alone", "meaningless"]
"""How values and change of a row are written.

The first four are the units of sizes and times. The others are of scores from 0 to 1: `share` gives the share of the
teacher's score, `alone` gives none, and `meaningless` is the score of a student that gives all rows one answer.
"""


class RowCells(NamedTuple):
    """The cells of a row as they are printed."""

    label: str
    teacher: str
    student: str
    change: str


@dataclass(frozen=True)
class Row:
    """One figure of the table.

    Attributes:
        label: Name of the figure, with its unit.
        teacher: The teacher's value; None where the figure compares both models, and where it is not known.
        student: The student's value; None where it is not known.
        unit: It decides how values and change are written; see `Unit`.
        speedup: For "milliseconds", the measured speedup: the median ratio of neighbouring passes, which differs
            slightly from the ratio of the two medians. None where it is not known or not reliable.
        interval: 95 % interval of the student's value, where there is one.
        is_part: Whether the row is a part of the last row above it that is not a part itself.
        caution: Why the figure says little, in a few words; empty where nothing speaks against it. A score with one is
            not fit for a card. See `limbeck.report.reliable`.
        share_of: For "share" in a row without a teacher's value: the teacher's score in the row above that the share is
            of.
        chose_step: Whether the rows or the text of the figure chose the step whose student was kept, so that the
            student's value is too good.
    """

    label: str
    teacher: float | None
    student: float | None
    unit: Unit
    speedup: float | None = None
    interval: Interval | None = None
    is_part: bool = False
    caution: str = ""
    share_of: float | None = None
    chose_step: bool = False

    @property
    def share(self) -> float | None:
        """The share of the teacher's score that the row gives, 0 to 1; None where it gives none."""
        if self.unit != "share":
            return None
        teacher = self.teacher if self.share_of is None else self.share_of
        return share_of_teacher(self.student, teacher)

    @property
    def is_score(self) -> bool:
        """Whether the figure is one of quality, and not of size or time."""
        return self.unit in ("share", "alone", "meaningless")

    def cells(self, part_mark: str = _PART_MARK) -> RowCells:
        """The cells of the row as they are printed.

        Args:
            part_mark: Stands before the label of a part of the row above.
        """
        label = f"{part_mark}{self.label}" if self.is_part else self.label
        return RowCells(label, self._value(self.teacher), self._value(self.student), self.change)

    def _value(self, value: float | None) -> str:
        """A value of a model as it is printed."""
        if value is None:
            return NOTHING
        if self.unit == "count":
            return format_count(value)
        if self.unit == "width":
            return f"{value:.0f}"
        if self.unit in ("megabytes", "milliseconds"):
            return f"{value:.1f}"
        return rounded(value, 3)

    @property
    def change(self) -> str:
        """The student compared with its teacher, in words: `1.50x smaller`, `97.1 % kept`; empty if unknown."""
        if self.unit == "meaningless":
            return "meaningless"
        if self.unit in ("share", "alone"):
            return self._share_and_interval()
        if self.unit == "milliseconds":
            return self._speedup_words()
        return self._ratio_words()

    @property
    def speed(self) -> str:
        """The speedup in words: `1.50x faster`; a dash where it is not known or not reliable."""
        return NOTHING if self.speedup is None else speed_words(self.speedup)

    def _speedup_words(self) -> str:
        """Write the speedup and its caution: `1.50x faster; busy machine`."""
        return f"{self.speed}; {self.caution}" if self.caution else self.speed

    def _ratio_words(self) -> str:
        """Compare two sizes: `1.50x smaller`, `1.50x larger`, `same`."""
        if not self.teacher or self.student is None:
            return ""
        # Values that are printed alike are the same to a reader.
        if self._value(self.student) == self._value(self.teacher):
            return "same"
        if self.student > self.teacher:
            return f"{self.student / self.teacher:.2f}x larger"
        # The teacher is infinitely larger than a student of 0, which is written as 0.
        if self.student == 0:
            return "0.00x smaller"
        return f"{self.teacher / self.student:.2f}x smaller"

    def _share_and_interval(self) -> str:
        """Write the caution, the share of the teacher's score that the student keeps, and the interval, where known."""
        parts = []
        if self.caution:
            parts.append(self.caution)
        share = self.share
        if share is not None and self.label in GUESSERS:
            # A guesser was made from no teacher, so it keeps nothing.
            parts.append(f"{100 * share:.1f} % of the teacher's")
        elif share is not None:
            parts.append(f"{100 * share:.1f} % kept")
        if self.interval is not None:
            low, high = self.interval
            # Beside a share, the ends could be taken for those of the share.
            if share is None:
                parts.append(f"95 %: {low:.3f} to {high:.3f}")
            else:
                parts.append(f"score {low:.3f} to {high:.3f} (95 %)")
        return "; ".join(parts)


def speed_words(speedup: float) -> str:
    """Write a speedup in words: `1.50x faster`, or `1.25x slower` below 1."""
    if speedup >= 1:
        return f"{speedup:.2f}x faster"
    return f"{1 / speedup:.2f}x slower"


def format_count(value: float) -> str:
    """Write a number of things, shortened from 10,000 on: `950`, `10.6 M`, `1.24 G`."""
    if value < 1e4:
        return f"{value:,.0f}"
    if value < 1e6:
        unit = "k"
        scale = 1e3
    elif value < 1e9:
        unit = "M"
        scale = 1e6
    else:
        unit = "G"
        scale = 1e9
    scaled = value / scale
    digits = 2 if scaled < 10 else 1
    return f"{scaled:.{digits}f} {unit}"


def quality_blocks(comparison: Measured) -> list[Block]:
    """The table and its notes as blocks."""
    return [quality_table(comparison), *notes_blocks(comparison)]


def comparison_table(comparison: Measured, *, title: str = "Teacher and student") -> RenderableType:
    """The table for the terminal; it fits 80 columns and wraps below that."""
    return console(quality_table(comparison, title), *notes_blocks(comparison))


def comparison_markdown(comparison: Measured, *, notes: bool = True, reliable_only: bool = False) -> str:
    """The table in Markdown.

    Args:
        comparison: Teacher and student.
        notes: Write the notes below the table.
        reliable_only: Leave out figures of measures that are too easy for the teacher or have too few queries, and the
            notes on them.
    """
    if reliable_only:
        comparison = reliable_figures(RunEvaluation.read(comparison))
    # The first heading is empty: it becomes one space, as in the cards that were written before.
    table = quality_table(comparison, part_mark=PART_MARK_OF_TEXT)
    text = markdown.plain_table(table).replace("|  |", "| |", 1)
    lines = comparison_notes(comparison)
    if notes and lines:
        text += f"\n\n{markdown.notes_list(lines)}"
    return f"{text}\n"


def comparison_csv(comparison: Measured, *, in_millions: bool = False, details: bool = False) -> str:
    """Write the rows as CSV with unrounded numbers: figure, teacher, student, speedup.

    Args:
        comparison: Teacher and student.
        in_millions: Give parameters in millions, as their labels then say. Without that a table of pandas, whose
            columns have one format, would show all numbers as powers of ten.
        details: Add the unit, the student's share of the teacher's value in percent, the ends of the student's 95 %
            interval, and a note where the figure says little, such as "too few passages", or is too good.
    """
    columns = ["figure", "teacher", "student", "speedup"]
    if details:
        columns += ["unit", "share, %", "low", "high", "note"]
    rows = []
    for label, row in labelled_rows(comparison):
        scale = 1.0
        figure = label
        unit = _UNITS_IN_FILES.get(row.unit, "")
        if in_millions and row.unit == "count":
            scale = 1e6
            unit = "million"
            figure = f"{label}, million"
        values = {"teacher": row.teacher, "student": row.student, "speedup": row.speedup}
        # A number that is not known has no key, and so an empty field.
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        for name in ("teacher", "student"):
            if name in numbers:
                numbers[name] /= scale
        if details:
            numbers |= _details_of(row)
        note = row.caution
        if row.unit == "meaningless":
            note = "meaningless"
        elif row.chose_step:
            note = f"{note}; {TOO_GOOD}" if note else TOO_GOOD
        rows.append({"figure": figure, "unit": unit, **numbers, "note": note})
    return to_csv(columns, rows)


def _details_of(row: Row) -> dict[str, float]:
    """Return the share and the ends of the interval of a row, as far as its cells show them."""
    details: dict[str, float] = {}
    share = row.share
    if row.unit in _UNITS_OF_SIZE and row.student is not None and row.teacher:
        share = row.student / row.teacher
    if share is not None:
        details["share, %"] = 100 * float(share)
    if row.interval is not None and row.unit != "meaningless":
        details["low"], details["high"] = map(float, row.interval)
    return details


def labelled_rows(comparison: Measured) -> Iterator[tuple[str, Row]]:
    """Yield the rows, each with a label that can be read alone: `Latency batch 1, ms, its Transformer part`."""
    # A part follows the row that it is a part of, whose label goes before its own.
    main_label = ""
    for row in comparison_rows(comparison):
        if row.is_part:
            yield f"{main_label}, {row.label}", row
        else:
            main_label = row.label
            yield main_label, row


def write_tables(
    comparison: Measured,
    folder: Path | str,
    *,
    stem: str = "evaluation",
    suffixes: Sequence[str] = (".md", ".csv"),
) -> list[Path]:
    """Write the comparison into a folder, one file a format.

    Args:
        comparison: As `Comparison.to_dict()` gives it.
        folder: An existing folder.
        stem: The files' name without suffix.
        suffixes: Any of `.md` (the table), `.csv` (its unrounded numbers) and `.json` (all that was
            measured).

    Returns:
        The files' paths.

    Raises:
        ValueError: if a suffix is none of these.
    """
    texts = {
        ".md": comparison_markdown(comparison),
        ".csv": comparison_csv(comparison),
        ".json": text_of(RunEvaluation.read(comparison).to_dict()),
    }
    unknown = set(suffixes) - set(texts)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not a format of tables; choose from {', '.join(texts)}")
    return write_forms(Path(folder), stem, {suffix: texts[suffix] for suffix in suffixes})


def quality_table(
    comparison: Measured,
    caption: str = "Teacher and student",
    *,
    part_mark: str = _PART_MARK,
) -> Table:
    """Lay out the figures of teacher and student as a table.

    Args:
        comparison: Teacher and student.
        caption: Caption of the table.
        part_mark: Stands before a part of the row above.
    """
    headings = ("", "Teacher", "Student", "Student vs teacher")
    cells = tuple(row.cells(part_mark) for row in comparison_rows(comparison))
    return Table(caption, headings, cells, layout=BOXED).with_words("", "Student vs teacher")


def comparison_rows(comparison: Measured) -> list[Row]:
    """The rows of the table of teacher and student; rows without a value for either model are left out.

    Args:
        comparison: Teacher and student; any part of it may be missing, since not everything is measured in every run.
    """
    evaluation = RunEvaluation.read(comparison)
    rows = list(_size_rows(evaluation))
    for batch in evaluation.batches:
        rows += _latency_rows(batch)
    rows += _agreement_rows(evaluation)
    for scores in evaluation.development:
        rows += _development_rows(scores, evaluation.start or UntrainedStart())
    rows += _task_rows(evaluation)
    rows += _retrieval_rows(evaluation)
    for vectors in evaluation.cut:
        rows += _rows_of_cut_vectors(vectors, evaluation)
    return [row for row in rows if row.teacher is not None or row.student is not None]


def _agreement_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield the agreement of the sentence vectors, followed by that of the start."""
    agreement = evaluation.agreement
    if agreement is None:
        return
    yield Row(
        f"{agreement_name(agreement)} (Spearman)",
        teacher=None,
        student=agreement.spearman,
        unit="alone",
        interval=ends_of(agreement.interval),
        caution=caution_of_agreement(agreement),
        chose_step=evaluation.chose_step,
    )
    if evaluation.start is not None and evaluation.start.agreement is not None:
        yield _start_row(evaluation.start, evaluation.start.agreement.spearman)


def agreement_name(agreement: Agreement) -> str:
    """The name of an agreement of sentence vectors; figures of earlier versions have another one, since they differ."""
    return "Agreement" if agreement.measure is None else "Agreement, far to near"


def retrieval_name(retrieval: Retrieval | None) -> str:
    """The name of a retrieval; figures of earlier versions have another one, since they differ."""
    is_of_earlier_version = retrieval is None or retrieval.measure is None
    return "Retrieval" if is_of_earlier_version else "Passage retrieval"


def _start_row(start: UntrainedStart, value: float | None, student: Row | None = None) -> Row:
    """Return the row of the start, below the student's figure, which has the caution of both.

    Args:
        start: The start, which is untrained or trained.
        value: Its figure.
        student: The student's row, where it may have a share of the teacher's score.
    """
    return _row_beside(start.name, value, student)


def _row_beside(label: str, value: float | None, student: Row | None) -> Row:
    """Return the row of a figure that stands below the student's, to be compared with it.

    It has a share of the teacher's score where the student has one: alone, a share seems to be earned by training.

    Args:
        label: Name of the model, or of a guesser.
        value: Its figure.
        student: The student's row; None where it has no share.
    """
    if student is None or student.share is None:
        return Row(label, teacher=None, student=value, unit="alone", is_part=True)
    return Row(label, teacher=None, student=value, unit="share", is_part=True, share_of=student.teacher)


def _size_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield the rows of the sizes of both models."""
    teacher = evaluation.teacher
    student = evaluation.student
    yield Row(
        "Transformer parameters",
        teacher=teacher.parameters.transformer,
        student=student.parameters.transformer,
        unit="count",
    )
    yield Row(
        "Embedding parameters",
        teacher=teacher.parameters.embedding,
        student=student.parameters.embedding,
        unit="count",
    )
    yield Row("Weights, MB", teacher=teacher.megabytes, student=student.megabytes, unit="megabytes")
    yield Row("Vector width", teacher=teacher.vector_width, student=student.vector_width, unit="width")


def _latency_rows(batch: BatchLatency) -> Iterator[Row]:
    """Yield the latency of whole models at one batch size, and the part of it that their Transformer blocks take."""
    yield Row(
        f"Latency batch {batch.batch_size}, ms",
        teacher=batch.teacher.median_ms,
        student=batch.student.median_ms,
        unit="milliseconds",
        speedup=reliable_speedup(batch),
        caution=caution_of_speedup(batch),
    )
    yield Row(
        "its Transformer part",
        teacher=batch.teacher_transformer.median_ms,
        student=batch.student_transformer.median_ms,
        unit="milliseconds",
        speedup=reliable_transformer_speedup(batch),
        is_part=True,
        caution=caution_of_speedup(batch),
    )


def _development_rows(scores: DevelopmentFigures, start: UntrainedStart) -> Iterator[Row]:
    """Yield a row for each metric on the development rows of a task, then the start's and a guesser's."""
    title = rows_title(scores)
    is_meaningless = only_answer(scores) is not None
    for metric, value in scores.student.items():
        # Beside the metrics the record has the values that they are made of, and thresholds; these are no scores.
        if metric not in METRIC_NAMES:
            continue
        unit: Unit = "alone"
        interval = ends_of(scores.intervals.get(metric))
        if is_meaningless:
            unit = "meaningless"
            interval = None
        elif has_share(scores, metric):
            unit = "share"
        label = f"{at_start(metric_of_rows(metric, scores))} on {title}"
        student_row = Row(
            label,
            teacher=scores.teacher.get(metric),
            student=value,
            unit=unit,
            interval=interval,
            chose_step=scores.chose_step,
        )
        yield student_row
        if metric in scores.start:
            yield _start_row(start, scores.start[metric], student_row)
        guesser = guesser_of(metric, scores.kind)
        chance = chance_of(scores, metric)
        if guesser is not None and chance > 0:
            yield _row_beside(guesser, chance, student_row)


def _task_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield the figures on rows that were held out from a task's training files.

    The teacher may have seen these rows, which makes its scores too high: so there is no share of the teacher's score.
    """
    task = evaluation.task
    start = evaluation.start or UntrainedStart()
    if task is None or task.metric is None:
        return
    unit: Unit = "meaningless" if task.only_answer else "alone"
    if task.labelled is False:
        yield _row_of_agreement(task, unit)
        yield _start_row(start, task.start_agreement)
        return
    main_scores = MetricScores(metric=task.metric, teacher=task.teacher, student=task.student)
    scores_by_metric = [main_scores, *task.further]
    # Without a teacher for the task, the student has scores and no agreement.
    if task.agreement is None:
        for scores in scores_by_metric:
            label = f"{at_start(metric_name(scores.metric))} on rows held out from the training files"
            interval = interval_of_held_out_score(scores.student, scores.metric, task)
            yield Row(
                label, teacher=None, student=scores.student, unit=unit, interval=interval, chose_step=task.chose_step
            )
            yield _start_row(start, task.start.get(scores.metric))
            yield from _guesser_row(task, scores.metric)
        return
    # With one, the scores by the rows' labels are parts of the row of the agreement.
    yield _row_of_agreement(task, unit)
    yield _start_row(start, task.start_agreement)
    for scores in scores_by_metric:
        yield Row(
            f"{metric_name(scores.metric)} by the labels",
            teacher=scores.teacher,
            student=scores.student,
            unit=unit,
            interval=interval_of_held_out_score(scores.student, scores.metric, task),
            is_part=True,
            chose_step=task.chose_step,
        )
        # The row may stand below other parts, so that it names its metric.
        label_of_start = f"{metric_name(scores.metric)} of the {start.name}"
        yield Row(label_of_start, teacher=None, student=task.start.get(scores.metric), unit="alone", is_part=True)
        yield from _guesser_row(task, scores.metric)


def _row_of_agreement(task: TaskFigures, unit: Unit) -> Row:
    """The row of the agreement on rows that were held out from a task's training files."""
    interval = interval_of_agreement(task)
    return Row(
        agreement_label(task),
        teacher=None,
        student=task.agreement,
        unit=unit,
        interval=interval,
        chose_step=task.chose_step,
    )


def _guesser_row(task: TaskFigures, metric: str | None) -> Iterator[Row]:
    """Yield the score of a guesser on rows that were held out from a task's training files, if it is known."""
    chance = None if metric is None else task.chance.get(metric)
    guesser = None if metric is None else guesser_of(metric, task.task)
    if metric is not None and guesser is not None and chance:
        # The row may stand below other parts, so that it names its metric.
        label = f"{metric_name(metric)} of {with_article(guesser)}"
        yield Row(label, teacher=None, student=chance, unit="alone", is_part=True)


def agreement_label(task: TaskFigures) -> str:
    """The name of an agreement on held-out rows of a task, with its measure where that is not the share of equal rows.

    Args:
        task: The figures on these rows.
    """
    name = AGREEMENT_WITHOUT_LABELS if task.labelled is False else AGREEMENT
    metric = agreement_metric(task)
    if metric is None or metric == _SHARE_OF_EQUAL_ANSWERS:
        return name
    return f"{name} ({metric_name(metric)})"


def _retrieval_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield the figures of retrieval.

    Each is followed by that of the student's queries in the teacher's documents, and that of the start.
    """
    teacher = evaluation.teacher.retrieval
    student = evaluation.student.retrieval
    start = evaluation.start or UntrainedStart()
    for metric in RETRIEVAL:
        caution = caution_of_retrieval(teacher, start.untrained_retrieval, metric)
        student_row = Row(
            f"{retrieval_name(student)} {metric_name(metric)}",
            teacher=_figure(teacher, metric),
            student=_figure(student, metric),
            unit=_unit_of_retrieval(caution),
            interval=interval_of_retrieval(student, metric),
            caution=caution,
            chose_step=evaluation.chose_step,
        )
        yield student_row
        yield from _asymmetric_row(teacher, evaluation.asymmetric, metric, caution, chose_step=evaluation.chose_step)
        start_value = _figure(start.retrieval, metric)
        if start_value is not None:
            yield _start_row(start, start_value, student_row)


def _unit_of_retrieval(caution: str) -> Unit:
    """The unit of a figure of retrieval, which has a share of the teacher's only where nothing speaks against it."""
    return "alone" if caution else "share"


def _rows_of_cut_vectors(cut: CutVectors, evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield the figures of vectors that were cut to their first components: agreement, and one figure of retrieval.

    Args:
        cut: The figures of the cut vectors.
        evaluation: The evaluation that they are from.
    """
    width = f"{cut.width} components"
    if cut.agreement is not None:
        yield Row(
            f"{agreement_name(cut.agreement)}, {width}",
            teacher=None,
            student=cut.agreement.spearman,
            unit="alone",
            interval=ends_of(cut.agreement.interval),
            caution=caution_of_agreement(cut.agreement),
            chose_step=evaluation.chose_step,
        )
    # Four figures of retrieval for each width would be a long table, so it has only the first.
    metric = RETRIEVAL[0]
    student = _figure(cut.student, metric)
    caution = caution_of_cut_retrieval(cut, evaluation, metric)
    if student is not None:
        yield Row(
            f"{retrieval_name(cut.student)} {metric_name(metric)}, {width}",
            teacher=_figure(cut.teacher, metric),
            student=student,
            unit=_unit_of_retrieval(caution),
            interval=interval_of_retrieval(cut.student, metric),
            caution=caution,
            chose_step=evaluation.chose_step,
        )
    yield from _asymmetric_row(cut.teacher, cut.asymmetric, metric, caution, chose_step=evaluation.chose_step)


def _asymmetric_row(
    teacher: Retrieval | None, asymmetric: Retrieval | None, metric: str, caution: str, *, chose_step: bool
) -> Iterator[Row]:
    """Yield the row of retrieval by the student's queries among the teacher's documents, if it was measured."""
    value = _figure(asymmetric, metric)
    if value is not None:
        yield Row(
            "in the teacher's documents",
            teacher=_figure(teacher, metric),
            student=value,
            unit=_unit_of_retrieval(caution),
            interval=interval_of_retrieval(asymmetric, metric),
            is_part=True,
            caution=caution,
            chose_step=chose_step,
        )


def _figure(retrieval: Retrieval | None, metric: str) -> float | None:
    """A figure of retrieval by the name of its field; None where retrieval was not measured."""
    value: float | None = getattr(retrieval, metric, None)
    return value
