"""Comparisons of methods: tables for the terminal, Markdown, CSV and JSON.

A comparison trains each *student* (a shape) by each *method* with each *mapping* of layers, with several seeds. A
*block* of its summary is a student, with a *row* for each method and mapping. The *main figure* is the score or measure
that decides the *rank* of a row, its *place*. *Measures* are losses and agreements on held-out text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, records
from limbeck.core.blocks import AnyCell, Block, Cell, Layout, Notes, Paragraph, Section, Table, interval, mean, to_csv
from limbeck.core.console_blocks import console
from limbeck.core.paths import short_model_name
from limbeck.core.studies import (
    ComparedRow,
    ComparedScores,
    Comparison,
    ComparisonSummary,
    MainFigure,
    ModelCost,
    StudentBlock,
)
from limbeck.report.costs import cost_notes, cost_tables
from limbeck.report.methods_notes import has_one_seed, main_digits, methods_notes, setting_lines
from limbeck.report.output_files import write_forms
from limbeck.report.scores import (
    csv_rows,
    guesser_cells,
    numbers,
    published_cells,
    score_cells,
    score_headings,
    share_kept,
)

ComparisonRecord: TypeAlias = Mapping[str, Any] | Comparison
"""The record of a comparison, typed or as plain values."""
STEM = "comparison_table"
_LAYOUT = Layout(cut=True, label_width=30)
_DIRECTIONS = {"highest": "held out, ↑", "lowest": "held out, ↓"}
"""Second lines of the headings of measures, by the values that are best: the highest or the lowest."""
_CSV_COLUMNS = (
    *("student", "method", "mapping", "figure", "metric", "positive"),
    *("mean", "deviation", "runs", "low", "high", "retention", "rank"),
)


def methods_blocks(record: ComparisonRecord) -> list[Block]:
    """Return the tables of a comparison and its notes as blocks."""
    comparison = Comparison.read(record)
    return [*methods_tables(comparison.summary), Notes(tuple(methods_notes(comparison)))]


def methods_table(record: ComparisonRecord) -> RenderableType:
    """Return the tables and notes of `methods_blocks` as one output for the terminal."""
    return console(*methods_blocks(record))


def methods_tables(summary: ComparisonSummary) -> list[Table]:
    """Return a table for each student, after one with the main figure of all students where there are several."""
    tables = []
    if len(summary.blocks) > 1 and summary.main is not None:
        tables.append(_overview_table(summary, summary.main))
    tables += [_student_table(summary, block) for block in summary.blocks]
    return tables


def _overview_table(summary: ComparisonSummary, main: MainFigure) -> Table:
    """Lay out the main figure of all students: a row for each method and mapping, a column for each student.

    The layout is that of table 3 of the comparative study (`PAPERS`). Cells of rank 1 are in bold.
    """
    digits = main_digits(main)
    students = [block.student for block in summary.blocks]
    # The cells of each row by the student of their column. The teacher has the same figure beside all students.
    teacher_label = short_model_name(summary.teacher.title)
    teacher_cell = mean(summary.teacher.main, digits)
    cells_by_label: dict[str, dict[str, Cell]] = {teacher_label: dict.fromkeys(students, teacher_cell)}
    for block in summary.blocks:
        for row in block.rows:
            cell = mean(row.main, digits)
            if row.place == 1:
                cell = replace(cell, mark="bold")
            cell_by_student = cells_by_label.setdefault(row.label, {})
            cell_by_student[block.student] = cell

    # A student may have no run of a method: its cell is blank.
    rows: list[tuple[AnyCell, ...]] = []
    for label, cell_by_student in cells_by_label.items():
        cells = [cell_by_student.get(student, Cell(None)) for student in students]
        rows.append((label, *cells))
    # All students are scored on the same rows, so a guesser has the same score beside all of them.
    faint = [0]
    for guesser_label, score in guesser_cells([main.key], summary.columns, _all_models(summary)):
        faint.append(len(rows))
        rows.append((guesser_label, *[score] * len(students)))
    caption = f"All students: {main.title}{_seeds_note(summary)}"
    return Table(caption, ("", *students), tuple(rows), words=(0,), faint=tuple(faint), layout=_LAYOUT)


def _all_models(summary: ComparisonSummary) -> list[ComparedScores]:
    """Return the scores of the teacher, then those of the rows of all students."""
    models: list[ComparedScores] = [summary.teacher]
    for block in summary.blocks:
        models += block.rows
    return models


def _student_table(summary: ComparisonSummary, block: StudentBlock) -> Table:
    """Lay out a student: a row for the teacher, for each method and mapping, each guesser, and each published model.

    Behind the label of a row stand its ranks, its scores on tasks with their averages, then its measures on held-out
    text. The layout is that of table 5 of the comparative study.
    """
    teacher = summary.teacher
    rank_columns = _rank_columns(summary, block.rows)
    score_titles = score_headings(summary.columns, [teacher, *block.rows])
    measure_titles = [f"{measure.title}\n{_DIRECTIONS[measure.best]}" for measure in summary.held_out]
    # The teacher, guessers and published models have no rank. The last two have no measures on held-out text either.
    blank_ranks = [Cell(None)] * len(rank_columns)
    blank_measures = [Cell(None)] * len(measure_titles)

    teacher_label = short_model_name(teacher.title)
    rows: list[tuple[AnyCell, ...]] = []
    rows.append((teacher_label, *blank_ranks, *score_cells(score_titles, teacher), *_held_out(summary, teacher)))
    # Indices of the table's rows of rank 1; `len(rows)` is the index of the next row.
    strong = []
    for index, row in enumerate(block.rows):
        if row.place == 1:
            strong.append(len(rows))
        ranks = [cells[index] for cells in rank_columns.values()]
        rows.append((_label_cell(row), *ranks, *score_cells(score_titles, row), *_held_out(summary, row)))
    # The guessers stand below the scores that are read beside them.
    faint = [0]
    for guesser_label, *chances in guesser_cells(score_titles, summary.columns, [teacher, *block.rows]):
        faint.append(len(rows))
        rows.append((guesser_label, *blank_ranks, *chances, *blank_measures))
    first_published = len(rows)
    for paper in block.published:
        paper_label, *scores = published_cells(score_titles, paper)
        rows.append((paper_label, *blank_ranks, *scores, *blank_measures))

    caption = f"{block.student} ({block.shape})"
    cost = _cost_in_words(block.cost)
    if cost:
        caption += f": {cost}"
    return Table(
        caption=f"{caption}{_seeds_note(summary)}",
        headings=("", *rank_columns, *score_titles.values(), *measure_titles),
        rows=tuple(rows),
        words=(0,),
        strong=tuple(strong),
        faint=tuple(faint),
        published=tuple(range(first_published, len(rows))),
        layout=_LAYOUT,
    )


def _label_cell(row: ComparedRow) -> Cell:
    """Return the label of a method and mapping, in bold for rank 1, with the number of seeds if some are missing."""
    label = row.label
    if row.finished != row.wanted:
        label += f" ({row.finished} of {row.wanted} seeds)"
    return Cell(label, mark="bold" if row.place == 1 else "")


def _rank_columns(summary: ComparisonSummary, rows: Sequence[ComparedRow]) -> dict[str, list[Cell]]:
    """Return the columns on the main figure: the rank by it, its interval over seeds, and its share of the teacher's.

    Returns:
        For each heading the cells of all rows. A column without any value is left out.
    """
    main = summary.main
    if main is None:
        return {}
    ranks = []
    intervals = []
    shares = []
    for row in rows:
        ranks.append(Cell(row.place))
        intervals.append(interval(row.over_seeds, main_digits(main)))
        shares.append(Cell(share_kept(main.key, row, summary.teacher), "{:.1f} %"))
    columns = {
        "rank\n": ranks,
        f"95 % over seeds\n{main.title}": intervals,
        f"% of teacher\n{main.title}": shares,
    }
    return {heading: cells for heading, cells in columns.items() if _has_value(cells)}


def _has_value(cells: Iterable[Cell]) -> bool:
    """Return whether a column has any value."""
    return any(cell.value is not None for cell in cells)


def _held_out(summary: ComparisonSummary, row: ComparedScores) -> list[Cell]:
    """Return the cells of a row's measures on held-out text."""
    return [mean(row.held_out.get(measure.key), measure.digits) for measure in summary.held_out]


def _seeds_note(summary: ComparisonSummary) -> str:
    """Return the end of a caption: a warning where nothing is ranked for want of seeds, else empty."""
    return "; one seed, so nothing is ranked" if has_one_seed(summary) else ""


def _cost_in_words(cost: ModelCost | None) -> str:
    """Return the parameters of a student, and its speed beside the teacher's."""
    if cost is None or cost.parameters is None:
        return ""
    parts = [f"{cost.parameters / 1e6:.2f} M parameters"]
    for speedup in cost.speedups:
        words = f"{speedup.speedup:.1f}x as fast at {speedup.batch} x {speedup.length} tokens"
        parts.append(f"{words} (busy machine)" if speedup.note else words)
    return ", ".join(parts)


def write_comparison(record: ComparisonRecord, folder: Path) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        record: The record of the comparison.
        folder: An existing folder.

    Returns:
        Paths of the files.
    """
    comparison = Comparison.read(record)
    values = comparison.summary.to_dict()
    values["impossible"] = records.plain(comparison.impossible)
    values["costs"] = records.plain(comparison.costs)
    texts = {
        ".md": methods_markdown(comparison),
        ".csv": methods_csv(comparison),
        ".json": records.text_of(values),
    }
    return write_forms(folder, STEM, texts)


def methods_markdown(record: ComparisonRecord) -> str:
    """Return everything as Markdown: settings, tables, costs and notes."""
    comparison = Comparison.read(record)
    sections = [Section("", (Paragraph(" ".join(setting_lines(comparison))),))]
    tables = methods_tables(comparison.summary)
    notes = methods_notes(comparison)
    if comparison.costs is not None:
        tables += cost_tables(comparison.costs)
        notes += cost_notes(comparison.costs)
    sections += [Section(table.caption, (table,)) for table in tables]
    sections.append(Section("Notes", (Notes(tuple(notes)),)))
    return markdown.markdown_file(comparison.name or "Comparison of methods", sections)


def methods_csv(record: ComparisonRecord) -> str:
    """Return the figures as CSV, unrounded, each on a line of its own."""
    summary = Comparison.read(record).summary
    teacher = summary.teacher
    # Lines of the teacher have no student, and lines of costs have no method.
    teacher_lines = [*_figure_lines(summary, teacher), *_cost_lines(teacher.cost)]
    lines = [{"method": "teacher", **line} for line in teacher_lines]
    for block in summary.blocks:
        for row in block.rows:
            names = {"student": block.student, "method": row.method, "mapping": row.mapping}
            lines += [{**names, **line} for line in _figure_lines(summary, row)]
        lines += [{"student": block.student, **line} for line in _cost_lines(block.cost)]
    return to_csv(_CSV_COLUMNS, lines)


def _figure_lines(summary: ComparisonSummary, row: ComparedScores) -> Iterator[dict[str, Any]]:
    """Yield the CSV lines of a row's scores, measures, tokens and seconds.

    Args:
        summary: The comparison.
        row: A method and mapping with a student, or the teacher.
    """
    # The teacher has no rank. Only some older records have its number of finished runs; otherwise there is one.
    rank = None
    if isinstance(row, ComparedRow):
        rank = row.place
    finished_runs = getattr(row, "finished", 1)
    main_key = None
    if summary.main is not None:
        main_key = summary.main.key

    for line in _scores_and_measures(summary, row):
        line["figure"] = line["key"]
        # Rows are ranked by the main figure of the comparison. Where that is a task with several metrics, several
        # lines have its key. Its main metric decides the rank, which is the one whose line has `retention`.
        is_ranked_by = line["key"] == main_key and "retention" in line
        if is_ranked_by:
            line["rank"] = rank
        # Intervals in this file are over seeds of distillation. With one seed, the line has one over fine-tuning runs,
        # which is left out.
        if finished_runs <= 1:
            line["low"] = None
            line["high"] = None
        yield line
    if row.tokens is not None:
        yield {"figure": "tokens", **numbers(row.tokens)}
    if row.seconds is not None:
        yield {"figure": "seconds", **numbers(row.seconds)}


def _scores_and_measures(summary: ComparisonSummary, row: ComparedScores) -> Iterator[dict[str, Any]]:
    """Yield the CSV lines of a row's scores on tasks, then of its measures on held-out text, as `csv_rows` does.

    A measure has no share of the teacher's, but it has the key `retention`, as every figure that may rank the rows.
    """
    yield from csv_rows(summary.columns, row, summary.teacher)
    for measure in summary.held_out:
        figure = row.held_out.get(measure.key)
        if figure is not None:
            yield {"key": measure.key, **numbers(figure), "retention": None}


def _cost_lines(cost: ModelCost | None) -> Iterator[dict[str, Any]]:
    """Yield the CSV lines of a model's parameters, and of its speedup at each batch size and length."""
    if cost is not None:
        yield {"figure": "parameters", "mean": cost.parameters}
        for speedup in cost.speedups:
            yield {"figure": f"speedup at {speedup.batch} x {speedup.length} tokens", "mean": speedup.speedup}
