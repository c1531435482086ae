"""The teacher-beside-student table, for the terminal, Markdown, CSV and JSON, from a comparison's dict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from limbeck.report.figures import comparison_notes, comparison_rows


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
