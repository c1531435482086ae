"""The teacher-beside-student table of a run: for the terminal, Markdown, CSV and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from limbeck.core import markdown
from limbeck.core.blocks import BOXED, NOTHING, Block, Notes, Table, to_csv
from limbeck.core.console_blocks import console
from limbeck.core.intervals import Interval, ends_of
from limbeck.core.records import BatchLatency, CutVectors, DevelopmentFigures, Retrieval, RunEvaluation, text_of
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.report.names import at_start, metric_name
from limbeck.report.output_files import write_forms
from limbeck.report.quality_notes import Measured, comparison_notes
from limbeck.report.scored_rows import only_answer, rows_title

AGREEMENT = "Agreement with the teacher on rows it may have seen in training"
"""The figure of held-out rows of a task's training files."""
RETRIEVAL = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")
"""Figures of `Retrieval` in the order of the table; the first stands for shorter vectors."""
_PART_MARK = "  "
"""Indents the label of a part of the row above, in the terminal and in files."""


@dataclass(frozen=True)
class Row:
    """One figure of the table.

    Attributes:
        label: Its name, with the unit.
        teacher: The teacher's value, or None where the figure is about both.
        student: The student's value.
        unit: How it reads: "count" (smaller is better), "megabytes", "milliseconds", "share" (of 1, larger is
            better), "agreement" (a correlation of the student with the teacher) or "meaningless" (the score of a
            student that gives all rows one answer).
        speedup: For "milliseconds", the measured speedup, which is not the ratio of the two medians.
        interval: 95 % interval of the student's value, where there is one.
        is_part: Whether it is a part of the last row above that is none.
    """

    label: str
    teacher: float | None
    student: float | None
    unit: str
    speedup: float | None = None
    interval: Interval | None = None
    is_part: bool = False

    def cells(self, part_mark: str = _PART_MARK) -> tuple[str, str, str, str]:
        """Return label, teacher, student and change as they are printed.

        Args:
            part_mark: Stands before the label of a part of the row above.
        """
        label = f"{part_mark}{self.label}" if self.is_part else self.label
        return label, self._value(self.teacher), self._value(self.student), self.change

    def _value(self, value: float | None) -> str:
        if value is None:
            return NOTHING
        if self.unit == "count":
            return format_count(value)
        if self.unit in ("megabytes", "milliseconds"):
            return f"{value:.1f}"
        return f"{value:.3f}"

    @property
    def change(self) -> str:
        """How the student compares with its teacher."""
        if self.unit == "meaningless":
            return "meaningless"
        if self.unit in ("share", "agreement"):
            return self._share_and_interval()
        if self.unit == "milliseconds" and self.speedup is not None:
            return speed_words(self.speedup)
        if not self.teacher or self.student is None:
            return ""
        # Values that are printed alike are the same to a reader.
        if self._value(self.student) == self._value(self.teacher):
            return "same"
        if self.student > self.teacher:
            return f"{self.student / self.teacher:.2f}x larger"
        # The ratio to nothing is infinite; it is written as 0.
        if self.student == 0:
            return "0.00x smaller"
        return f"{self.teacher / self.student:.2f}x smaller"

    def _share_and_interval(self) -> str:
        parts = []
        if self.unit == "share" and self.teacher and self.student is not None:
            # A share of a negative correlation says nothing.
            is_positive = self.teacher > 0 and self.student >= 0
            if is_positive:
                parts.append(f"{self.student / self.teacher:.1%} kept")
        if self.interval is not None:
            low, high = self.interval
            parts.append(f"95 %: {low:.3f} to {high:.3f}")
        return "; ".join(parts)


def speed_words(speedup: float) -> str:
    """Return a speedup in words: `1.50x faster`, or `1.25x slower` below 1."""
    if speedup >= 1:
        return f"{speedup:.2f}x faster"
    return f"{1 / speedup:.2f}x slower"


def format_count(value: float) -> str:
    """Return a number of things in three digits or so: `950`, `10.6 M`, `1.24 G`."""
    if value >= 1e9:
        scaled, unit = value / 1e9, "G"
    elif value >= 1e6:
        scaled, unit = value / 1e6, "M"
    elif value >= 1e4:
        scaled, unit = value / 1e3, "k"
    else:
        return f"{value:,.0f}"
    digits = 2 if scaled < 10 else 1
    return f"{scaled:.{digits}f} {unit}"


def quality_blocks(comparison: Measured) -> list[Block]:
    """Return the table and its notes as blocks."""
    return [quality_table(comparison), Notes(tuple(comparison_notes(comparison)))]


def comparison_table(comparison: Measured, *, title: str = "Teacher and student") -> RenderableType:
    """Return the table for the terminal; it fits 80 columns and wraps below that."""
    return console(quality_table(comparison, title), Notes(tuple(comparison_notes(comparison))))


def comparison_markdown(comparison: Measured, *, notes: bool = True) -> str:
    """Return the table in Markdown, its notes below it unless asked otherwise."""
    text = markdown.plain_table(quality_table(comparison)).replace("|  |", "| |", 1)
    lines = comparison_notes(comparison)
    if notes and lines:
        text += f"\n\n{markdown.notes_list(lines)}"
    return f"{text}\n"


def comparison_csv(comparison: Measured) -> str:
    """Return the rows as CSV with unrounded numbers: figure, teacher, student, speedup."""
    rows = []
    for label, row in labelled_rows(comparison):
        values = {"teacher": row.teacher, "student": row.student, "speedup": row.speedup}
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        rows.append({"figure": label, **numbers})
    return to_csv(("figure", "teacher", "student", "speedup"), rows)


def labelled_rows(comparison: Measured) -> Iterator[tuple[str, Row]]:
    """Yield the rows with labels that stand alone: `Latency batch 1, ms, its Transformer part`."""
    whole_label = ""
    for row in comparison_rows(comparison):
        if row.is_part:
            yield f"{whole_label}, {row.label}", row
        else:
            whole_label = row.label
            yield whole_label, row


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
        raise ValueError(f"no table format {', '.join(sorted(unknown))}; known: {', '.join(texts)}")
    return write_forms(Path(folder), stem, {suffix: texts[suffix] for suffix in suffixes})


def quality_table(comparison: Measured, caption: str = "Teacher and student", *, part_mark: str = _PART_MARK) -> Table:
    """Lay out the figures of teacher and student as a table; `part_mark` stands before a part of the row above."""
    rows = tuple(row.cells(part_mark) for row in comparison_rows(comparison))
    return Table(caption, ("", "Teacher", "Student", "Student vs teacher"), rows, words=(0, 3), layout=BOXED)


def comparison_rows(comparison: Measured) -> list[Row]:
    """Return the rows of a table of teacher and student, without those whose figures are missing for both models.

    Args:
        comparison: Teacher and student; every part may be missing.
    """
    evaluation = RunEvaluation.read(comparison)
    rows = [*_size_rows(evaluation)]
    for batch in evaluation.batches:
        rows += _latency_rows(batch)
    agreement = evaluation.agreement
    if agreement is not None:
        ends = ends_of(agreement.interval)
        rows.append(
            Row("Agreement (Spearman)", teacher=None, student=agreement.spearman, unit="agreement", interval=ends)
        )
    for scores in evaluation.development:
        rows += _development_rows(scores)
    rows += _task_rows(evaluation)
    rows += _retrieval_rows(evaluation)
    for cut in evaluation.cut:
        rows += _rows_of_cut(cut)
    return [row for row in rows if row.teacher is not None or row.student is not None]


def _size_rows(evaluation: RunEvaluation) -> Iterator[Row]:
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


def _latency_rows(batch: BatchLatency) -> Iterator[Row]:
    yield Row(
        f"Latency batch {batch.batch_size}, ms",
        teacher=batch.teacher.median_ms,
        student=batch.student.median_ms,
        unit="milliseconds",
        speedup=batch.speedup,
    )
    yield Row(
        "its Transformer part",
        teacher=batch.teacher_transformer.median_ms,
        student=batch.student_transformer.median_ms,
        unit="milliseconds",
        speedup=batch.transformer_speedup,
        is_part=True,
    )


def _development_rows(scores: DevelopmentFigures) -> Iterator[Row]:
    title = rows_title(scores)
    is_meaningless = only_answer(scores) is not None
    for metric, value in scores.student.items():
        if metric not in METRIC_NAMES:  # A part of a metric, or a threshold.
            continue
        label = f"{at_start(metric_name(metric))} on {title}"
        teacher = scores.teacher.get(metric)
        if is_meaningless:
            yield Row(label, teacher=teacher, student=value, unit="meaningless")
        else:
            ends = ends_of(scores.intervals.get(metric))
            yield Row(label, teacher=teacher, student=value, unit="share", interval=ends)


def _task_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    """Yield rows of held-out training rows, without a share of the teacher's score: it may have seen them."""
    task = evaluation.task
    if task is None or task.metric is None:
        return
    metric = metric_name(task.metric)
    if task.agreement is None:
        label = f"{at_start(metric)} on rows held out from the training files"
        yield Row(label, teacher=None, student=task.student, unit="agreement")
        return
    yield Row(AGREEMENT, teacher=None, student=task.agreement, unit="agreement")
    label = f"{metric} with their labels"
    yield Row(label, teacher=task.teacher, student=task.student, unit="agreement", is_part=True)


def _retrieval_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    teacher = evaluation.teacher.retrieval
    student = evaluation.student.retrieval
    for metric in RETRIEVAL:
        interval = None
        if student is not None:
            # The interval of the reciprocal rank has a field of its own.
            interval = student.interval if metric == "mrr_at_10" else student.intervals.get(metric)
        yield Row(
            f"Retrieval {metric_name(metric)}",
            teacher=_figure(teacher, metric),
            student=_figure(student, metric),
            unit="share",
            interval=ends_of(interval),
        )
        yield from _asymmetric_row(teacher, evaluation.asymmetric, metric)


def _rows_of_cut(cut: CutVectors) -> Iterator[Row]:
    """Yield rows of shorter vectors: agreement, and the first figure of retrieval."""
    width = f"{cut.width} components"
    if cut.agreement is not None:
        ends = ends_of(cut.agreement.interval)
        yield Row(f"Agreement, {width}", teacher=None, student=cut.agreement.spearman, unit="agreement", interval=ends)
    metric = RETRIEVAL[0]
    student = _figure(cut.student, metric)
    if student is not None:
        label = f"Retrieval {metric_name(metric)}, {width}"
        yield Row(label, teacher=_figure(cut.teacher, metric), student=student, unit="share")
    yield from _asymmetric_row(cut.teacher, cut.asymmetric, metric)


def _asymmetric_row(teacher: Retrieval | None, asymmetric: Retrieval | None, metric: str) -> Iterator[Row]:
    """Yield the row of retrieval by the student's queries among the teacher's documents, if it was measured."""
    value = _figure(asymmetric, metric)
    if value is not None:
        yield Row(
            "in the teacher's documents",
            teacher=_figure(teacher, metric),
            student=value,
            unit="share",
            is_part=True,
        )


def _figure(retrieval: Retrieval | None, metric: str) -> float | None:
    value: float | None = getattr(retrieval, metric, None)
    return value
