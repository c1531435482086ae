"""The teacher-beside-student table of a run, with its notes: for the terminal, Markdown, CSV and JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, timing
from limbeck.core.blocks import BOXED, NOTHING, Block, Notes, Table, console, counted, to_csv
from limbeck.core.records import (
    BatchLatency,
    CutVectors,
    DevelopmentFigures,
    Retrieval,
    RunEvaluation,
    TaskFigures,
    text_of,
)
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.report.names import at_start, metric_name

Measured: TypeAlias = Mapping[str, Any] | RunEvaluation
"""A teacher beside its student: as a record has them, or as `limbeck.evaluation.Comparison.to_dict` gives them."""
DEVELOPMENT = "development"
"""Name of the task of development rows that a recipe gives by their file."""
AGREEMENT = "Agreement with the teacher on rows it may have seen in training"
"""What held-out rows of a task's training files give."""
RETRIEVAL = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")
"""Figures of `Retrieval` in the order of the table; the first stands for shorter vectors."""
_ASYMMETRIC = "in the teacher's documents"
_HELD_OUT = "held out from the training files"
_FEW_ROWS = 100
"""Below this number of rows, scores are called rough."""
_UNSTEADY = 1.5
"""Ratio of the 90th to the 10th percentile of times above which a machine counts as busy; about 1.1 if idle."""


@dataclass(frozen=True)
class Row:
    """One figure of the table.

    Attributes:
        label: Its name, with the unit; a space before it where it is a part of the row above.
        teacher: The teacher's value, or None where the figure is about both.
        student: The student's value.
        unit: How it reads: "count" (smaller is better), "megabytes", "milliseconds", "share" (of 1, larger is
            better), "agreement" (a correlation of the student with the teacher) or "meaningless" (the score of a
            student that gives all rows one answer).
        speedup: For "milliseconds", the measured speedup, which is not the ratio of the two medians.
        interval: 95 % interval of the student's value, where there is one.
    """

    label: str
    teacher: float | None
    student: float | None
    unit: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None

    def cells(self) -> tuple[str, str, str, str]:
        """Return label, teacher, student and change as they are printed."""
        return self.label, self._value(self.teacher), self._value(self.student), self.change

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


def comparison_rows(comparison: Measured) -> list[Row]:
    """Return the rows of a table of teacher and student, without those whose figures are missing for both models.

    Args:
        comparison: Teacher and student; every part may be missing.
    """
    rows = _rows(RunEvaluation.read(comparison))
    return [row for row in rows if row.teacher is not None or row.student is not None]


def _rows(evaluation: RunEvaluation) -> Iterator[Row]:
    teacher = evaluation.teacher
    student = evaluation.student
    yield Row("Transformer parameters", teacher.parameters.transformer, student.parameters.transformer, "count")
    yield Row("Embedding parameters", teacher.parameters.embedding, student.parameters.embedding, "count")
    yield Row("Weights, MB", teacher.megabytes, student.megabytes, "megabytes")
    for batch in evaluation.batches:
        yield from _latency_rows(batch)
    if evaluation.agreement is not None:
        agreement = evaluation.agreement
        ends = ends_of(agreement.interval)
        yield Row("Agreement (Spearman)", None, agreement.spearman, "agreement", interval=ends)
    for scores in evaluation.development:
        yield from _development_rows(scores)
    if evaluation.task is not None and evaluation.task.metric is not None:
        yield from _task_rows(evaluation.task, metric_name(evaluation.task.metric))
    yield from _retrieval_rows(evaluation)
    for cut in evaluation.cut:
        yield from _rows_of_cut(cut)


def _latency_rows(batch: BatchLatency) -> Iterator[Row]:
    yield Row(
        f"Latency batch {batch.batch_size}, ms",
        batch.teacher.median_ms,
        batch.student.median_ms,
        "milliseconds",
        speedup=batch.speedup,
    )
    yield Row(
        "  its Transformer part",
        batch.teacher_transformer.median_ms,
        batch.student_transformer.median_ms,
        "milliseconds",
        speedup=batch.transformer_speedup,
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
            yield Row(label, teacher, value, "meaningless")
        else:
            yield Row(label, teacher, value, "share", interval=ends_of(scores.intervals.get(metric)))


def _task_rows(task: TaskFigures, metric: str) -> Iterator[Row]:
    """Rows of held-out training rows, without a share of the teacher's score: it may have been trained on these."""
    if task.agreement is None:
        yield Row(f"{at_start(metric)} on rows {_HELD_OUT}", None, task.student, "agreement")
        return
    yield Row(AGREEMENT, None, task.agreement, "agreement")
    yield Row(f"  {metric} with their labels", task.teacher, task.student, "agreement")


def _retrieval_rows(evaluation: RunEvaluation) -> Iterator[Row]:
    teacher = evaluation.teacher.retrieval or Retrieval()
    student = evaluation.student.retrieval or Retrieval()
    asymmetric = evaluation.asymmetric or Retrieval()
    for metric in RETRIEVAL:
        interval = student.interval if metric == "mrr_at_10" else student.intervals.get(metric)
        teacher_value = getattr(teacher, metric)
        student_value = getattr(student, metric)
        label = f"Retrieval {metric_name(metric)}"
        yield Row(label, teacher_value, student_value, "share", interval=ends_of(interval))
        asymmetric_value = getattr(asymmetric, metric)
        if asymmetric_value is not None:
            yield Row(f"  {_ASYMMETRIC}", teacher_value, asymmetric_value, "share")


def _rows_of_cut(cut: CutVectors) -> Iterator[Row]:
    """Rows of shorter vectors: agreement, and the first figure of retrieval."""
    width = f"{cut.width} components"
    metric = RETRIEVAL[0]
    if cut.agreement is not None:
        ends = ends_of(cut.agreement.interval)
        yield Row(f"Agreement, {width}", None, cut.agreement.spearman, "agreement", interval=ends)
    teacher_value = getattr(cut.teacher or Retrieval(), metric)
    student_value = getattr(cut.student or Retrieval(), metric)
    asymmetric_value = getattr(cut.asymmetric or Retrieval(), metric)
    if student_value is not None:
        yield Row(f"Retrieval {metric_name(metric)}, {width}", teacher_value, student_value, "share")
    if asymmetric_value is not None:
        yield Row(f"  {_ASYMMETRIC}", teacher_value, asymmetric_value, "share")


def ends_of(interval: Sequence[float | None] | None) -> tuple[float, float] | None:
    """Return the ends of a recorded interval; None where one of them is not known."""
    if interval is None or len(interval) != 2:
        return None
    low, high = interval
    if low is None or high is None:
        return None
    return low, high


def rows_title(scores: DevelopmentFigures) -> str:
    """Name the rows that a run's models are scored on: their file, or a task and its split."""
    if scores.task == DEVELOPMENT:
        return scores.split or "development rows"
    return f"{scores.task}, {scores.split}" if scores.split else scores.task


def only_answer(scores: DevelopmentFigures) -> str | None:
    """Return the one answer that a student gives to all rows; None where it gives several."""
    if scores.only_answer is not None:
        return scores.only_answer
    # With fewer than two classes, a student has no other answer to give.
    if len(scores.labels) < 2:
        return None
    # Older records have no `only_answer`. In their matrix, a column counts the rows that the student gives a class.
    predicted_classes = set()
    for class_counts in scores.confusion:
        for class_index, count in enumerate(class_counts):
            if count:
                predicted_classes.add(class_index)
    if len(predicted_classes) == 1:
        return scores.labels[predicted_classes.pop()]
    return None


def one_answer_line(scores: DevelopmentFigures) -> str | None:
    """Return the warning that a student's scores are meaningless since it gives all rows one answer, if it does."""
    answer = only_answer(scores)
    if answer is None:
        return None
    row_phrase = f"row of {rows_title(scores)}"
    if scores.task == DEVELOPMENT:
        row_phrase = "development row"
    return f"The student predicts '{answer}' for every {row_phrase}, so its scores are meaningless."


def comparison_notes(comparison: Measured) -> list[str]:
    """Return the lines that belong below the table: how it was measured, and why figures are missing."""
    evaluation = RunEvaluation.read(comparison)
    return [
        *_latency_notes(evaluation),
        *_text_notes(evaluation),
        *_interval_notes(evaluation),
        *_vector_notes(evaluation),
        *_development_notes(evaluation),
        *_missing_notes(evaluation),
    ]


def _latency_notes(evaluation: RunEvaluation) -> Iterator[str]:
    latency = evaluation.latency
    if latency is None:
        return
    conditions = f"{latency.length} tokens, {latency.dtype}, {latency.device}"
    if latency.threads is not None:
        conditions += f", {counted(latency.threads, 'thread')}"
    yield f"Latency: {conditions}, models measured alternately."
    if any(_is_unsteady(batch) for batch in latency.batches):
        yield "The machine was busy: speedups compare neighbouring passes and are more reliable than the times."


def _is_unsteady(batch: BatchLatency) -> bool:
    """Return whether a latency was disturbed: its times spread widely, or its speedup is doubtful."""
    for times in (batch.teacher, batch.student):
        if times.p10_ms is not None and times.p90_ms is not None and times.p90_ms > _UNSTEADY * times.p10_ms:
            return True
    if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, batch.speedup, batch.rounds):
        return True
    teacher_ms = batch.teacher_transformer.median_ms
    student_ms = batch.student_transformer.median_ms
    return timing.is_doubtful(teacher_ms, student_ms, batch.transformer_speedup, batch.rounds)


def _text_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Notes on figures of held-out text and held-out rows."""
    if evaluation.agreement is not None:
        pairs = counted(evaluation.agreement.pairs or 0, "pair")
        yield f"Agreement: with the teacher's similarities on {pairs} of held-out sentences."
    task = evaluation.task
    if task is not None and task.rows is not None:
        note = f"Task: {counted(task.rows, 'row')} {_HELD_OUT} of stage '{task.stage}'"
        if task.rows < _FEW_ROWS:
            note += ": few, so the scores are rough"
        # A teacher without a score on these rows is not what the student is compared with.
        if task.teacher_name and task.teacher is not None:
            note += f"; the teacher is '{task.teacher_name}'"
        yield f"{note}. To score the task, give development rows (corpus.development)."
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.pool is not None:
        yield f"Retrieval: each held-out summary is used to find its body among {retrieval.pool:.0f}."


def _interval_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """A note on the samples behind the 95 % intervals."""
    samples = []
    if evaluation.agreement is not None and evaluation.agreement.interval:
        samples.append(f"agreement over {counted(evaluation.agreement.documents or 0, 'document')}")
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.interval:
        samples.append(f"retrieval over {retrieval.pool or 0:,.0f} summaries")
    if any(scores.intervals for scores in evaluation.development):
        samples.append("scores over development rows")
    if samples:
        yield f"95 % intervals of the student's figures: {', '.join(samples)}; one training run, one seed."


def _vector_notes(evaluation: RunEvaluation) -> Iterator[str]:
    if evaluation.asymmetric is not None:
        yield "In the teacher's documents: summaries are encoded by the student, bodies by the teacher."
    if evaluation.cut:
        yield "Components: the first ones of both models' vectors; agreement is with the teacher's full vectors."
    for role, model in (("teacher", evaluation.teacher), ("student", evaluation.student)):
        if model.megabytes_of == "tensors":
            yield f"Weights: the {role}'s size is measured in memory, not on disk."


def _development_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Notes on each task: its rows or the reason for their absence, and a warning of a student with one answer."""
    for scores in evaluation.development:
        if scores.unavailable is not None:
            yield f"No scores on {scores.task}: {scores.unavailable}"
        elif scores.rows is not None:
            yield _scored_rows_note(scores, row_count=scores.rows)
        warning = one_answer_line(scores)
        if warning is not None:
            yield warning


def _scored_rows_note(scores: DevelopmentFigures, row_count: float) -> str:
    """Return the note on the number and the source of the rows of a task, and its teacher."""
    # Older records have development rows without the file that they are from.
    has_source = scores.task != DEVELOPMENT or scores.split
    if has_source:
        rows_phrase = f"the {counted(row_count, 'row')} of {rows_title(scores)}"
    else:
        rows_phrase = counted(row_count, "development row")
    note = f"Scored on {rows_phrase}, without fine-tuning"
    if row_count < _FEW_ROWS:
        note += " (few, so the scores are rough)"
    if scores.teacher_name:
        note += f"; teacher: {scores.teacher_name}"
    return f"{note}."


def _missing_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Notes on figures that are meaningless or missing."""
    task = evaluation.task or TaskFigures()
    if task.only_answer:
        yield f"The student gives every row of stage '{task.stage}' the same answer, so its agreement is meaningless."
    if task.unavailable is not None:
        yield f"No task scores: {task.unavailable}"
    for figure, reason in evaluation.unavailable.items():
        yield f"No {figure}: {_after_colon(reason)}"


def _after_colon(sentence: str) -> str:
    """Return a sentence with a small first letter, unless its first word is an abbreviation or a name like `GPU`."""
    first_word = sentence.partition(" ")[0]
    if not first_word[1:].islower():
        return sentence
    return sentence[:1].lower() + sentence[1:]


def evaluation_blocks(comparison: Measured) -> list[Block]:
    """Return the table and its notes as blocks."""
    return [quality_table(comparison), Notes(tuple(comparison_notes(comparison)))]


def quality_table(comparison: Measured, caption: str = "Teacher and student") -> Table:
    """Lay out the figures of teacher and student as a table."""
    rows = tuple(row.cells() for row in comparison_rows(comparison))
    return Table(caption, ("", "Teacher", "Student", "Student vs teacher"), rows, words=(0, 3), layout=BOXED)


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
    # A label with a space before it is a part of the last row without one.
    whole_label = ""
    for row in comparison_rows(comparison):
        if row.label.startswith(" "):
            yield f"{whole_label}, {row.label.strip()}", row
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


def write_forms(folder: Path, stem: str, texts: Mapping[str, str]) -> list[Path]:
    """Write texts, by the suffixes of their files; return the files."""
    files = []
    for suffix, text in texts.items():
        path = folder / f"{stem}{suffix}"
        path.write_text(text, encoding="utf-8")
        files.append(path)
    return files
