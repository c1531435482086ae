"""The teacher-beside-student table, for the terminal, Markdown, CSV and JSON, from a comparison's dict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, timing
from limbeck.core.blocks import BOXED, NOTHING, Notes, Table, console, counted, to_csv
from limbeck.core.records import (
    BatchLatency,
    CutVectors,
    DevelopmentFigures,
    Retrieval,
    RunEvaluation,
    TaskFigures,
    text_of,
)
from limbeck.evaluation.metrics import METRICS

Measured: TypeAlias = Mapping[str, Any] | RunEvaluation
"""A teacher beside its student: as a record has them, or as `limbeck.evaluation.Comparison.to_dict` gives them."""

_FEW_ROWS = 100
_UNSTEADY = 1.5  # 90th over 10th percentile; about 1.1 on an idle machine


@dataclass(frozen=True)
class Row:
    """One figure of the table.

    Attributes:
        label: Its name, with the unit.
        teacher: The teacher's value, or None where the figure is about both.
        student: The student's value.
        kind: How it reads: "count" (smaller is better), "megabytes", "milliseconds", "share" (of 1, larger is
            better), "agreement" (a correlation of the student with the teacher) or "meaningless" (the score of a
            student that gives all rows one answer).
        speedup: For "milliseconds", the measured speedup, which is not the ratio of the two medians.
        interval: 95 % interval of the student's value, where there is one.
    """

    label: str
    teacher: float | None
    student: float | None
    kind: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None

    def cells(self) -> tuple[str, str, str, str]:
        """Return label, teacher, student and change as they are printed."""
        return (self.label, self._value(self.teacher), self._value(self.student), self._change())

    def _value(self, value: float | None) -> str:
        if value is None:
            return NOTHING
        if self.kind == "count":
            return format_count(value)
        return f"{value:.1f}" if self.kind in ("megabytes", "milliseconds") else f"{value:.3f}"

    def _change(self) -> str:
        within = "" if self.interval is None else f"95 %: {self.interval[0]:.3f} to {self.interval[1]:.3f}"
        if self.kind == "meaningless":
            return self.kind
        if self.kind == "agreement":
            return within
        if self.kind == "milliseconds" and self.speedup is not None:
            return f"{self.speedup:.2f}x faster" if self.speedup >= 1 else f"{1 / self.speedup:.2f}x slower"
        if not self.teacher or self.student is None:
            return within
        if self.kind == "share" and (self.teacher <= 0 or self.student < 0):
            return within  # A share of a negative correlation says nothing.
        if self.kind == "share":
            return f"{self.student / self.teacher:.1%} kept{f'; {within}' if within else ''}"
        if self._value(self.student) == self._value(self.teacher):
            return "same"
        smaller = self.student < self.teacher
        ratio = self.teacher / self.student if smaller and self.student else self.student / self.teacher
        return f"{ratio:.2f}x {'smaller' if smaller else 'larger'}"


def format_count(value: float) -> str:
    """Return a number of things in three digits or so: `950`, `10.6 M`, `1.24 G`."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            scaled = value / (1e3 if unit == " k" else size)
            return f"{scaled:.2f}{unit}" if scaled < 10 else f"{scaled:.1f}{unit}"
    return f"{value:,.0f}"


def comparison_rows(comparison: Measured) -> list[Row]:
    """Return the rows of a table of teacher and student, without those whose figures are missing for both models.

    Args:
        comparison: Teacher and student; every part may be missing.
    """
    rows = _rows(RunEvaluation.read(comparison))
    return [row for row in rows if row.teacher is not None or row.student is not None]


def _rows(found: RunEvaluation) -> Iterator[Row]:
    teacher, student = found.teacher, found.student
    yield Row("Transformer parameters", teacher.parameters.transformer, student.parameters.transformer, "count")
    yield Row("Embedding parameters", teacher.parameters.embedding, student.parameters.embedding, "count")
    yield Row("Weights, MB", teacher.megabytes, student.megabytes, "megabytes")
    for batch in found.batches:
        whole, part = (
            (batch.teacher.median_ms, batch.student.median_ms),
            (batch.teacher_transformer.median_ms, batch.student_transformer.median_ms),
        )
        yield Row(f"Latency batch {batch.batch_size}, ms", *whole, "milliseconds", speedup=batch.speedup)
        yield Row("  its Transformer part", *part, "milliseconds", speedup=batch.transformer_speedup)
    if (agreement := found.agreement) is not None:
        yield Row("Agreement (Spearman)", None, agreement.spearman, "agreement", interval=ends_of(agreement.interval))
    for scores in found.development:
        title = rows_title(scores)
        for metric, value in scores.student.items():
            if metric in METRICS:  # Others are parts of these, and thresholds.
                label, within = f"{at_start(metric_name(metric))} on {title}", ends_of(scores.intervals.get(metric))
                kind, within = ("share", within) if only_answer(scores) is None else ("meaningless", None)
                yield Row(label, scores.teacher.get(metric), value, kind, interval=within)
    if (task := found.task) is not None and task.metric is not None:
        # No score of the task: the teacher may have been trained on these rows, so no share of its score is told.
        metric = metric_name(task.metric)
        if task.agreement is None:
            yield Row(f"{at_start(metric)} on rows {_HELD_OUT}", None, task.student, "agreement")
        else:
            yield Row(AGREEMENT, None, task.agreement, "agreement")
            yield Row(f"  {metric} with their labels", task.teacher, task.student, "agreement")
    theirs, own = teacher.retrieval or Retrieval(), student.retrieval or Retrieval()
    mixed = found.asymmetric or Retrieval()
    for metric in RETRIEVAL:
        whole = getattr(theirs, metric)
        within = ends_of(own.interval if metric == "mrr_at_10" else own.intervals.get(metric))
        yield Row(f"Retrieval {metric_name(metric)}", whole, getattr(own, metric), "share", interval=within)
        if (value := getattr(mixed, metric)) is not None:
            yield Row(f"  {_ASYMMETRIC}", whole, value, "share")
    for cut in found.cut:
        yield from _rows_of_cut(cut)


def _rows_of_cut(cut: CutVectors) -> Iterator[Row]:
    """Rows of shorter vectors: agreement and the first figure of retrieval."""
    width, metric = f"{cut.width} components", RETRIEVAL[0]
    if cut.agreement is not None:
        yield Row(
            f"Agreement, {width}", None, cut.agreement.spearman, "agreement", interval=ends_of(cut.agreement.interval)
        )
    theirs, own, mixed = (getattr(one or Retrieval(), metric) for one in (cut.teacher, cut.student, cut.asymmetric))
    if own is not None:
        yield Row(f"Retrieval {metric_name(metric)}, {width}", theirs, own, "share")
    if mixed is not None:
        yield Row(f"  {_ASYMMETRIC}", theirs, mixed, "share")


def ends_of(interval: Sequence[float | None] | None) -> tuple[float, float] | None:
    """Return the ends of a recorded interval; None where one of them is not known."""
    ends = tuple(end for end in interval or () if end is not None)
    return (ends[0], ends[1]) if len(ends) == 2 else None


RETRIEVAL = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")
"""Figures of `Retrieval` in the order of the table; the first stands for shorter vectors."""
_ASYMMETRIC = "in the teacher's documents"


_METRICS = {
    "f1": "F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "f1_answer": "F1",
    "f1_entity": "entity F1",
    "precision_entity": "entity precision",
    "recall_entity": "entity recall",
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "recall_at_1": "recall@1",
    "recall_at_10": "recall@10",
    "recall_at_100": "recall@100",
    "exact_span": "exact answer windows",
}
_HELD_OUT = "held out from the training files"
AGREEMENT = "Agreement with the teacher on rows it may have seen in training"
"""What held-out rows of a task's training files give."""


def metric_name(metric: str) -> str:
    """Return a metric as tables head it."""
    return _METRICS.get(metric, metric.replace("_", " "))


def at_start(name: str) -> str:
    """Write a name with a capital letter, unless its first word has one."""
    return name[:1].upper() + name[1:] if "".join(name.split()[:1]).islower() else name


DEVELOPMENT = "development"
"""Name of the task of development rows that a recipe gives by their file."""


def rows_title(scores: DevelopmentFigures) -> str:
    """Name the rows that a run's models are scored on: their file, or a task and its split."""
    if scores.task == DEVELOPMENT:
        return scores.split or "development rows"
    return f"{scores.task}, {scores.split}" if scores.split else scores.task


def one_answer_line(scores: DevelopmentFigures) -> str | None:
    """Say that a student's scores are meaningless since it gives all rows one answer; None where it gives several."""
    if (only := only_answer(scores)) is None:
        return None
    row = "development row" if scores.task == DEVELOPMENT else f"row of {rows_title(scores)}"
    return f"The student predicts '{only}' for every {row}, so its scores are meaningless."


def only_answer(found: DevelopmentFigures) -> str | None:
    """Return the one answer that a student gives to all rows; of older records the one class that it gives."""
    given = {place for row in found.confusion for place, count in enumerate(row) if count}
    if found.only_answer is None and len(given) == 1 and len(found.labels) > 1:
        return found.labels[given.pop()]
    return found.only_answer


def _after_colon(sentence: str) -> str:
    """Begin a sentence with a small letter, unless its first word is a name with others in capitals."""
    return sentence[:1].lower() + sentence[1:] if sentence.partition(" ")[0][1:].islower() else sentence


def _notes_on_intervals(found: RunEvaluation) -> Iterator[str]:
    """Say what the 95 % intervals are over."""
    over = []
    if found.agreement is not None and found.agreement.interval:
        over.append(f"agreement over {counted(found.agreement.documents or 0, 'document')}")
    if found.student.retrieval is not None and found.student.retrieval.interval:
        over.append(f"retrieval over {found.student.retrieval.pool or 0:,.0f} summaries")
    if any(scores.intervals for scores in found.development):
        over.append("scores over development rows")
    if over:
        yield f"95 % intervals of the student's figures: {', '.join(over)}; one training run, one seed."


def comparison_notes(comparison: Measured) -> list[str]:
    """Return the lines that belong below the table: how it was measured, and why figures are missing."""
    return list(_notes(RunEvaluation.read(comparison)))


def _notes(found: RunEvaluation) -> Iterator[str]:
    if (latency := found.latency) is not None:
        threads = "" if latency.threads is None else f", {counted(latency.threads, 'thread')}"
        where = f"{latency.dtype}, {latency.device}{threads}"
        yield f"Latency: {latency.length} tokens, {where}, models measured alternately."
        if any(map(_is_unsteady, latency.batches)):
            yield "The machine was busy: speedups compare neighbouring passes and are more reliable than the times."
    if found.agreement is not None:
        pairs = counted(found.agreement.pairs or 0, "pair")
        yield f"Agreement: with the teacher's similarities on {pairs} of held-out sentences."
    task = found.task or TaskFigures()
    if task.rows is not None:
        named = f"; the teacher is '{task.teacher_name}'" if task.teacher_name and task.teacher is not None else ""
        few = ": few, so the scores are rough" if task.rows < _FEW_ROWS else ""
        yield (
            f"Task: {counted(task.rows, 'row')} {_HELD_OUT} of stage '{task.stage}'{few}{named}. To score the task, "
            "give development rows (corpus.development)."
        )
    if found.student.retrieval is not None and found.student.retrieval.pool is not None:
        yield f"Retrieval: each held-out summary is used to find its body among {found.student.retrieval.pool:.0f}."
    if found.settings.reduced:
        keys = ", ".join(f"evaluation.{key}" for key in found.settings.reduced)
        yield (
            f"Evaluation reduced to take {found.settings.budget_seconds:,.0f} s (a tenth of the training time, but at "
            f"least 30 s); to measure more, set {keys} in the recipe."
        )
    rows_took = found.seconds.get("development")
    if found.settings.budget_seconds is not None and rows_took is not None:
        yield (
            f"Scoring the development rows took {rows_took:,.0f} s, beside the {found.settings.budget_seconds:,.0f} s "
            "for all else: they are always scored whole."
        )
    yield from _notes_on_intervals(found)
    if found.asymmetric is not None:
        yield "In the teacher's documents: summaries are encoded by the student, bodies by the teacher."
    if found.cut:
        yield "Components: the first ones of both models' vectors; agreement is with the teacher's full vectors."
    for role, model in (("teacher", found.teacher), ("student", found.student)):
        if model.megabytes_of == "tensors":
            yield f"Weights: the {role}'s size is measured in memory, not on disk."
    for scores in found.development:
        if scores.unavailable is not None:
            yield f"No scores on {scores.task}: {scores.unavailable}"
        elif scores.rows is not None:
            few = " (few, so the scores are rough)" if scores.rows < _FEW_ROWS else ""
            named = f"; teacher: {scores.teacher_name}" if scores.teacher_name else ""
            of = counted(scores.rows, "development row")
            if scores.split or scores.task != DEVELOPMENT:
                of = f"the {counted(scores.rows, 'row')} of {rows_title(scores)}"
            yield f"Scored on {of}, without fine-tuning{few}{named}."
        if (line := one_answer_line(scores)) is not None:
            yield line
    if task.only_answer:
        yield (f"The student gives every row of stage '{task.stage}' the same answer, so its agreement is meaningless.")
    if task.unavailable is not None:
        yield f"No task scores: {task.unavailable}"
    yield from (f"No {name}: {_after_colon(reason)}" for name, reason in found.unavailable.items())


def _is_unsteady(batch: BatchLatency) -> bool:
    """Return whether passes of one model differ widely, were few, or have other ratios than their medians."""
    for times in (batch.teacher, batch.student):
        if times.p10_ms is not None and times.p90_ms is not None and times.p90_ms > _UNSTEADY * times.p10_ms:
            return True
    whole = (batch.teacher.median_ms, batch.student.median_ms, batch.speedup)
    part = (batch.teacher_transformer.median_ms, batch.student_transformer.median_ms, batch.transformer_speedup)
    return timing.is_doubtful(*whole, batch.rounds) or timing.is_doubtful(*part, batch.rounds)


def quality_table(comparison: Measured, caption: str = "Teacher and student") -> Table:
    """Lay out the rows; a label with a space before it is of the row above."""
    rows = tuple(row.cells() for row in comparison_rows(comparison))
    return Table(caption, ("", "Teacher", "Student", "Student vs teacher"), rows, words=(0, 3), layout=BOXED)


def comparison_table(comparison: Measured, *, title: str = "Teacher and student") -> RenderableType:
    """Return the table for the terminal; it fits 80 columns and wraps below that."""
    return console(quality_table(comparison, title), Notes(tuple(comparison_notes(comparison))))


def comparison_markdown(comparison: Measured, *, notes: bool = True) -> str:
    """Return the table in Markdown, its notes below it unless asked otherwise."""
    lines = [markdown.plain_table(quality_table(comparison)).replace("|  |", "| |", 1)]
    if notes and (found := comparison_notes(comparison)):
        lines += ["", markdown.notes_list(found)]
    return "\n".join(lines) + "\n"


def comparison_csv(comparison: Measured) -> str:
    """Return the rows as CSV with unrounded numbers: figure, teacher, student, speedup."""
    names = ("teacher", "student", "speedup")
    rows = []
    for label, row in labelled_rows(comparison):
        values = {name: getattr(row, name) for name in names}
        rows.append({"figure": label, **{n: None if v is None else float(v) for n, v in values.items()}})
    return to_csv(("figure", *names), rows)


def labelled_rows(comparison: Measured) -> Iterator[tuple[str, Row]]:
    """Return the rows with their whole labels: a part's begins with that of the row above."""
    whole = ""
    for row in comparison_rows(comparison):
        is_part = row.label.startswith(" ")
        whole = whole if is_part else row.label
        yield f"{whole}, {row.label.strip()}" if is_part else row.label, row


def write_tables(
    comparison: Mapping[str, Any],
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
    texts = {".md": comparison_markdown(comparison), ".csv": comparison_csv(comparison), ".json": text_of(comparison)}
    if unknown := set(suffixes) - set(texts):
        raise ValueError(f"no table format {', '.join(sorted(unknown))}; known: {', '.join(texts)}")
    return write_forms(Path(folder), stem, {suffix: texts[suffix] for suffix in suffixes})


def write_forms(folder: Path, stem: str, texts: Mapping[str, str]) -> list[Path]:
    """Write texts, by the suffixes of their files; return the files."""
    files = {folder / f"{stem}{suffix}": text for suffix, text in texts.items()}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)
