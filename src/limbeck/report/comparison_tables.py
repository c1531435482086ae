"""Tables of a comparison of methods: for reports, the terminal and files."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from limbeck.core import studies
from limbeck.core.blocks import AnyCell, Cell, Layout, Notes, Paragraph, Section, Table, console, mean, to_csv
from limbeck.core.markdown import markdown_file
from limbeck.report.evaluation_tables import ScoreColumns, cost_tables, csv_rows, numbers, write_tables

STEM = "comparison_table"
_LAYOUT = Layout(cut=30)
_IN_UNITS = {"highest": "held out, ↑", "lowest": "held out, ↓"}
_COLUMNS = ("student", "method", "mapping", "figure", "metric", "mean", "deviation", "runs", "retention", "rank")


def comparison_tables(summary: studies.ComparisonSummary) -> list[Table]:
    """Lay out all students at once where there are several, then each with all its columns."""
    several = len(summary.blocks) > 1 and summary.main is not None
    return [*([_overview(summary)] if several else []), *(_student_table(summary, block) for block in summary.blocks)]


def _overview(summary: studies.ComparisonSummary) -> Table:
    """Lay out the main figure as the comparative study's table 3: methods and mappings down, students across."""
    blocks = summary.blocks
    found: dict[str, dict[str, studies.ComparedRow]] = {}
    for block in blocks:
        for row in block.rows:
            found.setdefault(row.label, {})[block.student] = row
    teacher: tuple[AnyCell, ...] = (summary.teacher.title, *[_main(summary, summary.teacher)] * len(blocks))
    rows: Iterator[tuple[AnyCell, ...]] = (
        (label, *(_main(summary, by_student.get(block.student)) for block in blocks))
        for label, by_student in found.items()
    )
    headings = ("", *(f"{block.student}\n{_cost(block.cost, lengthy=False)}" for block in blocks))
    title = f"All students: {summary.main.title if summary.main else ''}"
    return Table(title, headings, (teacher, *rows), words=(0,), faint=(0,), layout=_LAYOUT)


def _student_table(summary: studies.ComparisonSummary, block: studies.StudentBlock) -> Table:
    """Lay out a student as the comparative study's table 5: every method and mapping, every task."""
    lines: list[studies.ComparedScores] = [summary.teacher, *block.rows]
    columns = ScoreColumns.of(summary.columns, lines)
    ranked = summary.main is not None
    retained = ranked and any(_kept(summary, row) is not None for row in block.rows)
    empty = [Cell(None)] * (ranked + retained)
    rows: list[tuple[AnyCell, ...]] = []
    strong = []
    for line in lines:
        own: list[Cell] = empty
        label: AnyCell = summary.teacher.title
        if isinstance(line, studies.ComparedRow):
            own = [Cell(line.rank)] * ranked + [Cell(_kept(summary, line), "{:.1f} %")] * retained
            label = _label(line)
            if line.rank == 1:
                strong.append(len(rows))
        measures = (mean(line.held_out.get(measure.key), measure.digits) for measure in summary.held_out)
        rows.append((label, *own, *columns.figures(line), *measures))
    published = tuple(range(len(rows), len(rows) + len(block.published)))
    for row in block.published:
        label, *cells = columns.published(row)
        rows.append((label, *empty, *cells, *[Cell(None)] * len(summary.held_out)))
    headings = [
        *(["rank\n"] if ranked else []),
        *([f"% of teacher\n{summary.main.title}"] if retained and summary.main else []),
        *columns.headings,
        *(f"{measure.title}\n{_IN_UNITS[measure.best]}" for measure in summary.held_out),
    ]
    cost = _cost(block.cost)
    title = f"{block.student} ({block.shape}){': ' + cost if cost else ''}"
    return Table(
        title,
        ("", *headings),
        tuple(rows),
        words=(0,),
        strong=tuple(strong),
        faint=(0,),
        published=published,
        layout=_LAYOUT,
    )


def _kept(summary: studies.ComparisonSummary, row: studies.ComparedScores) -> float | None:
    """Return the share that a row keeps of the teacher's main figure, in percent."""
    return row.retention.get(summary.main.key) if summary.main else None


def _main(summary: studies.ComparisonSummary, row: studies.ComparedScores | None) -> Cell:
    """Return the main figure of a row: bold for the best of all, italic for the best mapping."""
    main = summary.main
    if row is None or main is None:
        return Cell(None)
    cell = mean(row.main, main.digits if main.kind == "held_out" and main.digits is not None else 1)
    return replace(cell, mark=_mark(row))


def _mark(row: studies.ComparedScores) -> str:
    if not isinstance(row, studies.ComparedRow):
        return ""
    return "bold" if row.rank == 1 else "italic" if row.best_mapping else ""


def _label(row: studies.ComparedRow) -> Cell:
    seeds = "" if row.finished == row.wanted else f" ({row.finished} of {row.wanted} seeds)"
    return Cell(f"{row.label}{seeds}", mark=_mark(row))


def _cost(cost: studies.ModelCost | None, *, lengthy: bool = True) -> str:
    """Return the parameters of a student, and its speed beside the teacher's."""
    if cost is None or cost.parameters is None:
        return ""
    millions = f"{cost.parameters / 1e6:.2f} M"
    if not lengthy:
        return ", ".join([millions, *(f"{found.speedup:.1f}x" for found in cost.speedups[:1])])
    speedups = [f"{s.speedup:.1f}x as fast at {s.batch} x {s.length} tokens" for s in cost.speedups]
    return ", ".join([f"{millions} parameters", *speedups])


# The forms of the tables: for the terminal, Markdown, CSV and JSON.


def methods_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: all students at once, then each with all its columns, then notes."""
    comparison = studies.Comparison.read(record)
    notes = [f"Left out: {combination(entry)}: {entry.reason}" for entry in comparison.impossible]
    return console(*comparison_tables(comparison.summary), Notes((*notes, *comparison.summary.notes)))


def methods_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: the tables, what was left out, costs and notes."""
    comparison = studies.Comparison.read(record)
    tables = [
        replace(table, headings=tuple(heading.replace("\n", ", ").removesuffix(", ") for heading in table.headings))
        for table in comparison_tables(comparison.summary)
    ]
    costs = list(cost_tables(comparison.costs)) if comparison.costs is not None else []
    left_out = tuple(f"{combination(entry)}: {entry.reason}" for entry in comparison.impossible)
    sections = [
        Section("", (Paragraph(" ".join(_setting(comparison))),)),
        *(Section(table.caption, (table,)) for table in tables),
        Section("Left out", (Notes(left_out),)),
        *(Section(table.caption, (table,)) for table in costs),
        Section("Notes", (Notes(tuple(comparison.summary.notes)),)),
    ]
    return markdown_file(str(comparison.name), sections)


def methods_csv(record: Mapping[str, Any]) -> str:
    """Return every figure on a separate line, unrounded."""
    return to_csv(_COLUMNS, _csv_rows(studies.Comparison.read(record).summary))


def _csv_rows(summary: studies.ComparisonSummary) -> Iterator[dict[str, Any]]:
    teacher = summary.teacher
    yield from ({"method": "teacher", **row} for row in (*_figures(summary, teacher), *_cost_figures(teacher.cost)))
    for block in summary.blocks:
        for line in block.rows:
            start = {"student": block.student, "method": line.method, "mapping": line.mapping}
            yield from ({**start, **row} for row in _figures(summary, line))
        yield from ({"student": block.student, **row} for row in _cost_figures(block.cost))


def write_comparison(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        record: Of the comparison.
        folder: An existing folder.

    Returns:
        The files.
    """
    whole = {**record["summary"], "impossible": record["impossible"], "costs": record["costs"]}
    return write_tables(folder, STEM, methods_markdown(record), methods_csv(record), whole)


def combination(entry: studies.Combination) -> str:
    """Name a method, a mapping and a student."""
    return f"{entry.label} on {entry.student}"


def _setting(comparison: studies.Comparison) -> Iterator[str]:
    """Say what was the same for all runs, and how the figures are to be read."""
    summary, plan = comparison.summary, comparison.plan
    yield (
        f"Teacher {summary.teacher.title} ({summary.teacher.shape}); {plan.budget.tokens:,} tokens a "
        f"run of a corpus of {comparison.corpus.tokens:,}; seeds {', '.join(map(str, plan.seeds))}."
    )
    if summary.preset is not None:
        yield f"Tasks by the preset '{summary.preset}', in percent."
    if summary.main is not None:
        yield f"Ranked by the {summary.main.title}; bold is the best, italic the best mapping of a method."
    rows = [row for block in summary.blocks for row in block.rows]
    if read := [tokens for row in rows if row.tokens is not None for tokens in row.tokens.runs if tokens]:
        least, most = min(read), max(read)
        yield f"Runs read {least:,.0f}" + (f" to {most:,.0f} tokens." if most > least else " tokens each.")
    yield "± is the sample deviation over seeds of the distillation; of one seed, over fine-tunings."


def _figures(summary: studies.ComparisonSummary, row: studies.ComparedScores) -> Iterator[dict[str, Any]]:
    """Go through a row's figures; the rank stands beside the figure that decides it."""
    held_out = ((measure.key, row.held_out.get(measure.key)) for measure in summary.held_out)
    measures = ({"key": key, **numbers(figure), "retention": None} for key, figure in held_out if figure is not None)
    for found in (*csv_rows(summary.columns, row), *measures):
        decides = summary.main is not None and found["key"] == summary.main.key and "retention" in found
        yield {**found, "figure": found["key"], "rank": getattr(row, "rank", None) if decides else None}
    for name, spent in (("tokens", row.tokens), ("seconds", row.seconds)):
        if spent is not None:
            yield {"figure": name, **numbers(spent)}


def _cost_figures(cost: studies.ModelCost | None) -> Iterator[dict[str, Any]]:
    if cost is not None:
        yield {"figure": "parameters", "mean": cost.parameters}
        for found in cost.speedups:
            yield {"figure": f"speedup at {found.batch} x {found.length} tokens", "mean": found.speedup}
