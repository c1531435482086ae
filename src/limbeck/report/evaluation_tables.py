"""The tables of `limbeck evaluate`, for the terminal, Markdown, CSV and JSON, from an evaluation's summary."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from limbeck.report.cost_tables import cost_sections
from limbeck.report.evaluation_grid import NOTHING, EvaluationGrid, chosen_lines, detail_rows, evaluation_grid

_STYLES = {"model": "", "retention": "dim", "published": "cyan"}
_LABEL_WIDTH, _CELL_WIDTH = 30, 13
_MOST_PUBLISHED = 6
STEM = "evaluation_table"


def evaluation_table(summary: Mapping[str, Any]) -> RenderableType:
    """Return the main table for the terminal, in blocks of as many columns as fit, with its notes in short below.

    Of the published rows those with the most columns are shown; the files have them all, and every note.
    """
    notes = [Text(note, style="dim") for note in summary["notes_in_short"]]
    if len(notes) < len(summary["notes"]):
        notes.append(Text(f"All {len(summary['notes'])} notes are in the files.", style="dim"))
    return Group(Text(_title(summary), style="bold"), _Blocks(evaluation_grid(summary)), *notes)


class _Blocks:
    """The grid, cut to the width of the console."""

    def __init__(self, grid: EvaluationGrid) -> None:
        self._grid = grid
        published = [row for row in grid.rows if row.kind == "published"]
        fullest = sorted(published, key=lambda row: sum(cell == NOTHING for cell in row.cells))[:_MOST_PUBLISHED]
        self._rows = [row for row in grid.rows if row.kind != "published" or row in fullest]
        self._hidden = len(published) - len(fullest)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        at_once = max(1, (options.max_width - _LABEL_WIDTH) // _CELL_WIDTH)
        for start in range(0, len(self._grid.headings), at_once):
            yield self._block(slice(start, start + at_once))
        if self._hidden:
            yield Text(f"{self._hidden} more published rows are in the files.", style="dim")

    def _block(self, columns: slice) -> Table:
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        table.add_column("", overflow="fold", width=_LABEL_WIDTH)
        for title, metric in self._grid.headings[columns]:
            table.add_column(f"{title}\n{metric}", justify="right", min_width=_CELL_WIDTH - 2)
        previous = ""
        for row in self._rows:
            cells = row.cells[columns]
            if row.kind == "published" and all(cell == NOTHING for cell in cells):
                continue
            if row.kind == "published" and previous != "published":
                table.add_section()
            label = f"  {row.label}" if row.kind == "retention" else row.label
            table.add_row(Text(label), *(Text(cell) for cell in cells), style=_STYLES[row.kind])
            previous = row.kind
        return table


def evaluation_markdown(summary: Mapping[str, Any], costs: Mapping[str, Any] | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.experiments.plan.measure_costs` gives them.
    """
    parts: list[str] = []
    if summary["columns"]:
        grid = evaluation_grid(summary)
        headings = ["", *(f"{title} ({metric})" for title, metric in grid.headings)]
        body = [[_emphasised(row.label, row.kind), *row.cells] for row in grid.rows]
        names = [model["name"] for model in summary["models"]]
        details = [[title, metric, *figures] for title, metric, figures in detail_rows(summary)]
        parts += [f"# {_title(summary)}", _markdown_table(headings, body)]
        parts += ["## All metrics", _markdown_table(["", "Metric", *names], details)]
        parts += ["## Grid points", "\n".join(f"- {line}" for line in chosen_lines(summary))]
    if costs is not None:
        for heading, headings, body in cost_sections(costs):
            parts += [f"## {heading}", _markdown_table(headings, body)]
    if summary["notes"]:
        parts += ["## Notes", "\n".join(f"- {note}" for note in summary["notes"])]
    return "\n\n".join(parts) + "\n"


def evaluation_csv(summary: Mapping[str, Any]) -> str:
    """Return every figure on a line of its own, unrounded: source, model, column, metric, mean, deviation, runs, and
    what share of the first model's score it is."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["source", "model", "column", "metric", "mean", "deviation", "runs", "retention"])
    for model in summary["models"]:
        for column in summary["columns"]:
            cell = model["columns"].get(column["key"])
            for metric, figures in (cell["metrics"] if cell else {}).items():
                kept = model["retention"].get(column["key"]) if metric == column["metric"] else None
                writer.writerow(["measured", model["name"], column["key"], metric, *_numbers(figures), _text(kept)])
        for name, figures in model["averages"].items():
            if figures is not None:
                kept = model["retention"].get(name)
                writer.writerow(["measured", model["name"], name, "", *_numbers(figures), _text(kept)])
    metrics = {column["key"]: column["metric"] for column in summary["columns"]}
    for row in summary["published"]:
        source = f"{row['paper']} table {row['table']}"
        for key, value in row["columns"].items():
            writer.writerow([source, f"{row['model']} {row['shape']}", key, metrics[key], value, "", "", ""])
    return buffer.getvalue()


def write_evaluation(summary: Mapping[str, Any], folder: Path, costs: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: What the models cost, where it was measured.

    Returns:
        The files.
    """
    whole = {**summary, **({"costs": costs} if costs is not None else {})}
    texts = {
        ".md": evaluation_markdown(summary, costs),
        ".csv": evaluation_csv(summary),
        ".json": json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    paths = [folder / f"{STEM}{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def _title(summary: Mapping[str, Any]) -> str:
    return f"Evaluation by the preset '{summary['preset']}', in percent"


def _emphasised(label: str, kind: str) -> str:
    return {"model": f"**{label}**", "retention": f"*{label}*"}.get(kind, label)


def _markdown_table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [_markdown_row(headings), "|" + "---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *(_markdown_row(row) for row in body)])


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _numbers(figures: Mapping[str, Any]) -> list[str | float]:
    return [figures["mean"], _text(figures["deviation"]), len(figures["runs"])]


def _text(value: float | None) -> str | float:
    return "" if value is None else value
