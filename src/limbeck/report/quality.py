"""The teacher-beside-student table, for the terminal, Markdown, CSV and JSON, from a comparison's dict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from limbeck.core.timing import FEWEST_ROUNDS

# Which measured ratios of times can be told: not those of few rounds, or of rounds that say different things.


_MOST_APART = 1.1
"""The median of the ratios over the ratio of the medians; on an idle machine they are within 2 percent."""


def is_doubtful(first: float | None, second: float | None, ratio: float | None, rounds: float | None) -> bool:
    """Return whether a speedup was measured on a machine too busy, or too few times, to be told as a figure.

    Args:
        first: Median time of the model that the other is compared with.
        second: Median time of the other.
        ratio: Median over rounds of the first's time by the second's.
        rounds: How many rounds there were.
    """
    if rounds is not None and rounds < FEWEST_ROUNDS:
        return True
    if not first or not second or not ratio:
        return False
    apart = ratio * second / first
    return not 1 / _MOST_APART <= apart <= _MOST_APART


# A comparison as rows of figures: what the teacher-beside-student table says, before it is drawn.
#
# Reads the layout of `limbeck.evaluation.Comparison.to_dict()`. Every part of it may be missing or None; a figure
# that is not there is left out of the rows, with its reason in the notes where the dict gives one.


MISSING = "–"
_FEW_ROWS = 100
_UNSTEADY = 1.5  # 90th over 10th percentile; about 1.1 on an idle machine


@dataclass(frozen=True)
class Row:
    """One figure of the table.

    Attributes:
        label: What it is, with its unit.
        teacher: The teacher's value, or None where the figure is about both.
        student: The student's value.
        kind: How it reads: "count" (smaller is better), "megabytes", "milliseconds", "share" (of 1, larger is
            better) or "agreement" (a correlation of the student with the teacher).
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
            return MISSING
        if self.kind == "count":
            return format_count(value)
        return f"{value:.1f}" if self.kind in ("megabytes", "milliseconds") else f"{value:.3f}"

    def _change(self) -> str:
        if self.kind == "agreement":
            return "" if self.interval is None else f"95 %: {self.interval[0]:.3f} to {self.interval[1]:.3f}"
        if self.kind == "milliseconds" and self.speedup is not None:
            return f"{self.speedup:.2f}x faster" if self.speedup >= 1 else f"{1 / self.speedup:.2f}x slower"
        if not self.teacher or self.student is None:
            return ""
        if self.kind == "share" and (self.teacher <= 0 or self.student < 0):
            return ""  # A share of a negative correlation says nothing.
        if self.kind == "share":
            return f"{self.student / self.teacher:.1%} kept"
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


def comparison_rows(comparison: Mapping[str, Any]) -> list[Row]:
    """Return the table's rows, without those whose figures are missing for both models."""

    def both(label: str, kind: str, *path: str | int) -> Row:
        return Row(label, _number(comparison, "teacher", *path), _number(comparison, "student", *path), kind)

    rows = [
        both("Transformer parameters", "count", "parameters", "transformer"),
        both("Embedding parameters", "count", "parameters", "embedding"),
        both("Weights, MB", "megabytes", "megabytes"),
    ]
    batches = _at(comparison, "latency", "batches")
    for batch in batches if isinstance(batches, Sequence) else ():
        of, size = f"batch {_at(batch, 'batch_size')}", "median_ms"
        rows.append(
            Row(
                f"Latency {of}, ms",
                _number(batch, "teacher", size),
                _number(batch, "student", size),
                "milliseconds",
                speedup=_number(batch, "speedup"),
            )
        )
        rows.append(
            Row(
                "  its Transformer part",
                _number(batch, "teacher_transformer", size),
                _number(batch, "student_transformer", size),
                "milliseconds",
                speedup=_number(batch, "transformer_speedup"),
            )
        )
    interval = _at(comparison, "agreement", "interval")
    rows.append(
        Row(
            "Agreement (Spearman)",
            None,
            _number(comparison, "agreement", "spearman"),
            "agreement",
            interval=_interval(interval),
        )
    )
    rows += _task_rows(_at(comparison, "task"))
    rows.append(both("Retrieval MRR@10", "share", "retrieval", "mrr_at_10"))
    rows.append(both("Retrieval recall@1", "share", "retrieval", "recall_at_1"))
    return [row for row in rows if row.teacher is not None or row.student is not None]


_METRICS = {"accuracy": "Accuracy", "spearman": "Spearman with the labels", "exact_span": "Exact answer windows"}


def _task_rows(task: Any) -> list[Row]:
    """The rows of a task-specific student: its score, and how often it says what the teacher says."""
    metric = _at(task, "metric")
    if not isinstance(metric, str):
        return []
    label = _METRICS.get(metric, metric)
    return [
        Row(f"{label} (held out)", _number(task, "teacher"), _number(task, "student"), "share"),
        Row("  with the teacher's answers as labels", None, _number(task, "agreement"), "agreement"),
    ]


def comparison_notes(comparison: Mapping[str, Any]) -> list[str]:
    """Return the lines that belong below the table: how it was measured, and why figures are missing."""
    notes: list[str] = []
    latency, agreement = _at(comparison, "latency"), _at(comparison, "agreement")
    if isinstance(latency, Mapping):
        notes.append(
            f"Latency: {latency.get('length')} tokens, {latency.get('dtype')}, {latency.get('device')}, "
            f"{latency.get('threads')} thread{'' if latency.get('threads') == 1 else 's'}, models in turns."
        )
        if _is_unsteady(latency):
            notes.append("The machine was busy: trust the speedups (of neighbouring passes) more than the times.")
    if isinstance(agreement, Mapping):
        pairs = agreement.get("pairs")
        notes.append(f"Agreement: with the teacher's similarities of {pairs} pairs of held-out sentences.")
    rows = _number(comparison, "task", "rows")
    if rows is not None:
        of = _at(comparison, "task", "teacher_name")
        named = f"; the teacher is '{of}'" if isinstance(of, str) and _number(comparison, "task", "teacher") else ""
        few = ": few, so the scores are rough" if rows < _FEW_ROWS else ""
        notes.append(f"Task: {rows:.0f} held-out rows of stage '{_at(comparison, 'task', 'stage')}'{few}{named}.")
    pool = _number(comparison, "student", "retrieval", "pool")
    if pool is not None:
        notes.append(f"Retrieval: a held-out summary finds its body among {pool:.0f}.")
    in_memory = [role for role in ("teacher", "student") if _at(comparison, role, "megabytes_of") == "tensors"]
    notes.extend(f"Weights: the {role}'s as in memory, not on disk." for role in in_memory)
    if isinstance(reason := _at(comparison, "task", "unavailable"), str):
        notes.append(f"No task scores: {reason}")
    unavailable = _at(comparison, "unavailable")
    if isinstance(unavailable, Mapping):
        notes.extend(f"No {name}: {reason}" for name, reason in unavailable.items())
    return notes


def _is_unsteady(latency: Mapping[str, Any]) -> bool:
    """Return whether passes of one model differ widely, were few, or have other ratios than their medians."""
    batches = latency.get("batches")
    for batch in batches if isinstance(batches, Sequence) else ():
        for role in ("teacher", "student"):
            low, high = _number(batch, role, "p10_ms"), _number(batch, role, "p90_ms")
            if low is not None and high is not None and high > _UNSTEADY * low:
                return True
        rounds = _number(batch, "rounds")
        for part, ratio in (("", "speedup"), ("_transformer", "transformer_speedup")):
            medians = [_number(batch, f"{role}{part}", "median_ms") for role in ("teacher", "student")]
            if is_doubtful(medians[0], medians[1], _number(batch, ratio), rounds):
                return True
    return False


def _at(value: Any, *path: str | int) -> Any:
    """Follow keys into nested mappings; None as soon as one is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(value: Any, *path: str | int) -> float | None:
    """Follow keys to a number; None for anything else."""
    found = _at(value, *path)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _interval(value: Any) -> tuple[float, float] | None:
    """Return a pair of numbers, or None for anything else."""
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(end, (int, float)) for end in value):
        return (float(value[0]), float(value[1]))
    return None


def comparison_table(comparison: Mapping[str, Any], *, title: str = "Teacher beside student") -> RenderableType:
    """Return the table for the terminal; it fits 80 columns and wraps below that."""
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("")
    for heading in ("Teacher", "Student"):
        table.add_column(heading, justify="right")
    table.add_column("Student vs teacher")
    for row in comparison_rows(comparison):
        table.add_row(*(Text(cell) for cell in row.cells()))
    return Group(table, *(Text(note, style="dim") for note in comparison_notes(comparison)))


def comparison_markdown(comparison: Mapping[str, Any], *, notes: bool = True) -> str:
    """Return the table in Markdown, its notes below it unless asked otherwise."""
    lines = ["| | Teacher | Student | Student vs teacher |", "|---|---:|---:|---|"]
    lines += [
        "| " + " | ".join(cell.strip().replace("|", r"\|") for cell in row.cells()) + " |"
        for row in comparison_rows(comparison)
    ]
    if notes and (found := comparison_notes(comparison)):
        lines += ["", *(f"- {' '.join(note.split())}" for note in found)]
    return "\n".join(lines) + "\n"


def comparison_csv(comparison: Mapping[str, Any]) -> str:
    """Return the rows as CSV with unrounded numbers: figure, teacher, student, speedup."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["figure", "teacher", "student", "speedup"])
    part = ""
    for row in comparison_rows(comparison):
        label = f"{part}, {row.label.strip()}" if row.label.startswith(" ") else row.label
        part = part if row.label.startswith(" ") else row.label
        values = (row.teacher, row.student, row.speedup)
        writer.writerow([label, *("" if value is None else value for value in values)])
    return buffer.getvalue()


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
    writers: dict[str, Callable[[], str]] = {
        ".md": lambda: comparison_markdown(comparison),
        ".csv": lambda: comparison_csv(comparison),
        ".json": lambda: json.dumps(comparison, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    if unknown := set(suffixes) - set(writers):
        raise ValueError(f"no table format {', '.join(sorted(unknown))}; known: {', '.join(writers)}")
    paths = [Path(folder) / f"{stem}{suffix}" for suffix in suffixes]
    for path in paths:
        path.write_text(writers[path.suffix](), encoding="utf-8")
    return paths
