"""The rows and columns that every form of a comparison's tables has, from its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from limbeck.report.evaluation_grid import NOTHING, evaluation_grid, figure

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
