"""The rows and columns that every form of a comparison's tables has, from its record."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from limbeck.report.evaluation_tables import NOTHING, cost_sections, evaluation_grid, figure

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonRow:
    """A row of a table.

    Attributes:
        kind: The teacher, a method with a mapping, or a row that a paper printed.
        label: What it is of.
        cells: One a heading.
        first: Whether it ranks first.
        best_mapping: Whether it is the best mapping of its method.
    """

    kind: str
    label: str
    cells: tuple[str, ...]
    first: bool = False
    best_mapping: bool = False


@dataclass(frozen=True)
class ComparisonTable:
    """A table.

    Attributes:
        title: Its heading.
        headings: (title, what it is in) of every column.
        rows: Its rows.
    """

    title: str
    headings: tuple[tuple[str, str], ...]
    rows: tuple[ComparisonRow, ...]


def overview_table(summary: Entry) -> ComparisonTable | None:
    """Lay out what ranks the rows as the comparative study's table 3: methods and mappings down, students across.

    Args:
        summary: As `limbeck.comparison.summary.summarise_comparison` gives it.

    Returns:
        None where nothing was measured.
    """
    if summary["main"] is None:
        return None
    blocks = summary["blocks"]
    found: dict[tuple[str, str], dict[str, Entry]] = {}
    for block in blocks:
        for row in block["rows"]:
            found.setdefault((row["method"], row["mapping"]), {})[block["student"]] = row
    rows = []
    for (method, mapping), by_student in found.items():
        own = [by_student.get(block["student"]) for block in blocks]
        rows.append(
            ComparisonRow(
                "method", _title(method, mapping), tuple(_main(summary, row) if row else NOTHING for row in own)
            )
        )
    teacher = ComparisonRow("teacher", summary["teacher"]["title"], (_main(summary, summary["teacher"]),) * len(blocks))
    headings = tuple((block["student"], _cost(block["cost"], lengthy=False)) for block in blocks)
    return ComparisonTable(f"All students: {summary['main']['title']}", headings, (teacher, *rows))


def student_tables(summary: Entry) -> list[ComparisonTable]:
    """Lay out a table for each student, as the comparative study's table 5: every method and mapping, every task."""
    return [_student_table(summary, block) for block in summary["blocks"]]


def _student_table(summary: Entry, block: Entry) -> ComparisonTable:
    lines: list[Entry] = [summary["teacher"], *block["rows"]]
    models = [{**line, "name": "", "retention": {}} for line in lines]
    scores = evaluation_grid({"columns": summary["columns"], "models": models, "published": block["published"]})
    measures = summary["held_out"]
    ranked = [("rank", "")] if summary["main"] is not None else []
    retained = [("% of teacher", summary["main"]["title"])] if any(_kept(summary, row) for row in block["rows"]) else []
    rows = []
    for index, grid_row in enumerate(scores.rows):
        line = lines[index] if index < len(lines) else None
        own = [_rank(line)] if ranked else []
        own += [_kept_text(summary, line)] if retained else []
        held_out = [_measured(line, measure) for measure in measures]
        kind = "published" if line is None else "teacher" if index == 0 else "method"
        label = grid_row.label if line is None else line["title"] if index == 0 else _label(line)
        rows.append(
            ComparisonRow(
                kind,
                label,
                (*own, *grid_row.cells, *held_out),
                first=line is not None and line.get("rank") == 1,
                best_mapping=line is not None and bool(line.get("best_mapping")),
            )
        )
    in_units = {"highest": "held out, ↑", "lowest": "held out, ↓"}
    headings = (*ranked, *retained, *scores.headings, *((m["title"], in_units[m["best"]]) for m in measures))
    cost = _cost(block["cost"])
    return ComparisonTable(f"{block['student']} ({block['shape']}){': ' + cost if cost else ''}", headings, tuple(rows))


def _kept(summary: Entry, row: Entry) -> float | None:
    """What a row keeps of the teacher's main figure, in percent."""
    found: float | None = row["retention"].get(summary["main"]["key"]) if summary["main"] else None
    return found


def _kept_text(summary: Entry, line: Entry | None) -> str:
    kept = None if line is None else _kept(summary, line)
    return NOTHING if kept is None else f"{kept:.1f} %"


def _rank(line: Entry | None) -> str:
    return NOTHING if line is None or line.get("rank") is None else str(line["rank"])


def _measured(line: Entry | None, measure: Entry) -> str:
    found = line["held_out"].get(measure["key"]) if line is not None else None
    return _decimal(found, measure["digits"])


def _main(summary: Entry, row: Entry) -> str:
    """What ranks a row, with marks as the study has them: bold for the best of all, underlined for the best mapping."""
    main = summary["main"]
    text = _decimal(row["main"], main["digits"]) if main["kind"] == "held_out" else figure(row["main"])
    if row.get("rank") == 1:
        return f"**{text}**"
    return f"*{text}*" if row.get("best_mapping") else text


def _decimal(found: Entry | None, digits: int) -> str:
    if found is None:
        return NOTHING
    mean = f"{found['mean']:.{digits}f}"
    return mean if found["deviation"] is None else f"{mean} ± {found['deviation']:.{digits}f}"


def _title(method: str, mapping: str) -> str:
    return f"{method}, {mapping}" if mapping else method


def _label(row: Entry) -> str:
    title = _title(row["method"], row["mapping"])
    return title if row["finished"] == row["wanted"] else f"{title} ({row['finished']} of {row['wanted']} seeds)"


def _cost(cost: Entry | None, *, lengthy: bool = True) -> str:
    """Say what a student costs: its parameters, and its speed beside the teacher's."""
    if cost is None:
        return ""
    millions = f"{cost['parameters'] / 1e6:.2f} M"
    if not lengthy:
        return ", ".join([millions, *(f"{found['speedup']:.1f}x" for found in cost["speedups"][:1])])
    speedups = [f"{s['speedup']:.1f}x as fast at {s['batch']} x {s['length']} tokens" for s in cost["speedups"]]
    return ", ".join([f"{millions} parameters", *speedups])


# The tables of `limbeck compare`, for the terminal, Markdown, CSV and JSON, from a comparison's record.


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
