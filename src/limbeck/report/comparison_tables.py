"""The tables of `limbeck compare`, for the terminal, Markdown, CSV and JSON, from a comparison's record."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from limbeck.report.comparison_grid import ComparisonRow, ComparisonTable, overview_table, student_tables
from limbeck.report.cost_tables import cost_sections

STEM = "comparison_table"
_LABEL_WIDTH, _GAP = 32, 2
_STYLES = {"teacher": "dim", "method": "", "published": "cyan"}


def methods_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: all students at once, then each with all its columns, then notes."""
    parts: list[RenderableType] = []
    for table in _tables(record["summary"]):
        parts += [Text(table.title, style="bold"), _Blocks(table)]
    return Group(*parts, *(Text(note, style="dim") for note in _notes(record)))


def methods_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: the tables, what was left out, costs and notes."""
    summary = record["summary"]
    parts = [f"# {record['name']}", _setting(record)]
    parts += [f"## {table.title}\n\n{_markdown_table(table)}" for table in _tables(summary)]
    if record["impossible"]:
        lines = [f"- {_combination(entry)}: {entry['reason']}" for entry in record["impossible"]]
        parts.append("## Left out\n\n" + "\n".join(lines))
    if record["costs"] is not None:
        for heading, headings, body in cost_sections(record["costs"]):
            table = ComparisonTable("", tuple((name, "") for name in headings[1:]), tuple(_plain(row) for row in body))
            parts.append(f"## {heading}\n\n{_markdown_table(table)}")
    if notes := summary["notes"]:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def methods_csv(record: Mapping[str, Any]) -> str:
    """Return every figure on a line of its own, unrounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["student", "method", "mapping", "figure", "metric", "mean", "deviation", "runs", "retention", "rank"]
    )
    summary = record["summary"]
    teacher = {**summary["teacher"], "method": "teacher", "mapping": ""}
    writer.writerows(["", "teacher", "", *cells] for cells in _figures(summary, teacher))
    for block in summary["blocks"]:
        for row in block["rows"]:
            start = [block["student"], row["method"], row["mapping"]]
            writer.writerows([*start, *cells] for cells in _figures(summary, row))
        for name, value in _cost_figures(block["cost"]):
            writer.writerow([block["student"], "", "", name, "", value, "", "", "", ""])
    return buffer.getvalue()


def write_comparison(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        record: Of the comparison.
        folder: An existing folder.

    Returns:
        The files.
    """
    summary = {**record["summary"], "impossible": record["impossible"], "costs": record["costs"]}
    texts = {
        ".md": methods_markdown(record),
        ".csv": methods_csv(record),
        ".json": json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    paths = [folder / f"{STEM}{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


class _Blocks:
    """A table, cut to the width of the console."""

    def __init__(self, table: ComparisonTable) -> None:
        self._table = table
        columns = zip(*(row.cells for row in table.rows), strict=True)
        self._widths = [
            max(len(text.strip("*")) for text in (*heading, *cells))
            for heading, cells in zip(table.headings, columns, strict=True)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        start, room = 0, options.max_width - _LABEL_WIDTH
        while start < len(self._widths):
            end, used = start + 1, self._widths[start] + _GAP
            while end < len(self._widths) and used + self._widths[end] + _GAP <= room:
                used += self._widths[end] + _GAP
                end += 1
            yield self._block(slice(start, end))
            start = end

    def _block(self, columns: slice) -> Table:
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        table.add_column("", overflow="fold", width=_LABEL_WIDTH - _GAP)
        for title, below in self._table.headings[columns]:
            table.add_column(f"{title}\n{below}", justify="right")
        for row in self._table.rows:
            style = "bold" if row.first else _STYLES[row.kind]
            table.add_row(Text(row.label), *(_marked(cell) for cell in row.cells[columns]), style=style)
        return table


def _tables(summary: Mapping[str, Any]) -> list[ComparisonTable]:
    """All students at once where there are several, then each."""
    overview = overview_table(summary) if len(summary["blocks"]) > 1 else None
    return [*([overview] if overview is not None else []), *student_tables(summary)]


def _setting(record: Mapping[str, Any]) -> str:
    """Say what was the same for all runs, and what the figures are."""
    summary, plan = record["summary"], record["plan"]
    lines = [
        f"Teacher {summary['teacher']['title']} ({summary['teacher']['shape']}); {plan['budget']['tokens']:,} tokens a "
        f"run of a corpus of {record['corpus']['tokens']:,}; seeds {', '.join(map(str, plan['seeds']))}."
    ]
    if summary["preset"] is not None:
        lines.append(f"Tasks by the preset '{summary['preset']}', in percent.")
    if summary["main"] is not None:
        lines.append(
            f"Ranked by the {summary['main']['title']}; bold is the best, italic the best mapping of a method."
        )
    if read := [tokens for block in summary["blocks"] for row in block["rows"] for tokens in _read(row)]:
        least, most = min(read), max(read)
        lines.append(f"Runs read {least:,.0f}" + (f" to {most:,.0f} tokens." if most > least else " tokens each."))
    lines.append("± is the sample deviation over seeds of the distillation; of one seed, over fine-tunings.")
    return " ".join(lines)


def _read(row: Mapping[str, Any]) -> list[float]:
    """Tokens that the runs of a row read; nothing for a start that is not trained."""
    return [tokens for tokens in (row["tokens"] or {"runs": []})["runs"] if tokens]


def _notes(record: Mapping[str, Any]) -> list[str]:
    left_out = [f"Left out: {_combination(entry)}: {entry['reason']}" for entry in record["impossible"]]
    return [*left_out, *record["summary"]["notes"]]


def _combination(entry: Mapping[str, str]) -> str:
    return f"{', '.join(filter(None, (entry['method'], entry['mapping'])))} on {entry['student']}"


def _marked(cell: str) -> Text:
    """Show Markdown's marks as styles."""
    if cell.startswith("**"):
        return Text(cell.strip("*"), style="bold")
    return Text(cell.strip("*"), style="italic" if cell.startswith("*") else "")


def _markdown_table(table: ComparisonTable) -> str:
    headings = [f"{title}, {below}" if below else title for title, below in table.headings]
    lines = [_markdown_row(["", *headings]), "|" + "---|" + "---:|" * len(headings)]
    return "\n".join([*lines, *(_markdown_row([_emphasised(row), *row.cells]) for row in table.rows)])


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _emphasised(row: ComparisonRow) -> str:
    if row.first:
        return f"**{row.label}**"
    return f"*{row.label}*" if row.best_mapping else row.label


def _plain(cells: Sequence[str]) -> ComparisonRow:
    return ComparisonRow("method", cells[0], tuple(cells[1:]))


def _figures(summary: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Go through a row's figures: figure, metric, mean, deviation, runs, retention, rank."""
    main = summary["main"]["key"] if summary["main"] is not None else None
    for column in summary["columns"]:
        cell = row["columns"].get(column["key"])
        for metric, found in (cell["metrics"] if cell else {}).items():
            key = column["key"] if metric == column["metric"] else None
            yield [column["key"], metric, *_numbers(found), *_standing(row, key, main)]
    for name, found in row["averages"].items():
        if found is not None:
            yield [name, "", *_numbers(found), *_standing(row, name, main)]
    for measure in summary["held_out"]:
        if measure["key"] in row["held_out"]:
            yield [
                measure["key"],
                "",
                *_numbers(row["held_out"][measure["key"]]),
                *_standing(row, measure["key"], main),
            ]
    for name in ("tokens", "seconds"):
        if row.get(name) is not None:
            yield [name, "", *_numbers(row[name]), "", ""]
    if "cost" in row:
        for name, value in _cost_figures(row["cost"]):
            yield [name, "", value, "", "", "", ""]


def _numbers(found: Mapping[str, Any]) -> list[Any]:
    return [found["mean"], "" if found["deviation"] is None else found["deviation"], len(found["runs"])]


def _standing(row: Mapping[str, Any], key: str | None, main: str | None) -> list[Any]:
    """What is kept of the teacher's figure, and the rank where the figure decides it."""
    rank = row.get("rank") if key is not None and key == main else None
    return [row["retention"].get(key, ""), "" if rank is None else rank]


def _cost_figures(cost: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    if cost is not None:
        yield "parameters", cost["parameters"]
        for found in cost["speedups"]:
            yield f"speedup at {found['batch']} x {found['length']} tokens", found["speedup"]
