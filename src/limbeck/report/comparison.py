"""Comparisons of methods: tables for the terminal, Markdown, CSV and JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, records
from limbeck.core.blocks import (
    AnyCell,
    Block,
    Cell,
    Layout,
    Notes,
    Paragraph,
    Section,
    Table,
    console,
    interval,
    mean,
    to_csv,
)
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
from limbeck.report.costs import cost_tables
from limbeck.report.quality import write_forms
from limbeck.report.scores import (
    csv_rows,
    numbers,
    one_answer_lines,
    published_cells,
    score_cells,
    score_headings,
    share_kept,
)

ComparisonRecord: TypeAlias = Mapping[str, Any] | Comparison
"""The record of a comparison, typed or as plain values."""
STEM = "comparison_table"
ONE_SEED = "One seed: differences between rows may be due to chance, so nothing is ranked."
_LAYOUT = Layout(cut=30)
_DIRECTIONS = {"highest": "held out, ↑", "lowest": "held out, ↓"}
_CSV_COLUMNS = (
    *("student", "method", "mapping", "figure", "metric", "mean", "deviation", "runs", "low", "high", "retention"),
    "rank",
)


def comparison_tables(summary: ComparisonSummary) -> list[Table]:
    """Lay out all students at once where there are several, then each with all its columns."""
    tables = []
    if len(summary.blocks) > 1 and summary.main is not None:
        tables.append(_overview_table(summary, summary.main))
    tables += [_student_table(summary, block) for block in summary.blocks]
    return tables


def _overview_table(summary: ComparisonSummary, main: MainFigure) -> Table:
    """Lay out the main figure as the comparative study's table 3: methods and mappings down, students across."""
    # Rows have the order in which methods and mappings appear first, whatever their student.
    headings = [""]
    rows_by_label: dict[str, dict[str, ComparedRow]] = {}
    for block in summary.blocks:
        headings.append(f"{block.student}\n{_cost_in_short(block.cost)}")
        for row in block.rows:
            rows_by_label.setdefault(row.label, {})[block.student] = row

    teacher = _main_cell(main, summary.teacher)
    rows: list[tuple[AnyCell, ...]] = [(summary.teacher.title, *[teacher] * len(summary.blocks))]
    for label, row_by_student in rows_by_label.items():
        cells = [_main_cell(main, row_by_student.get(block.student)) for block in summary.blocks]
        rows.append((label, *cells))
    caption = f"All students: {main.title}{_seeds_note(summary)}"
    return Table(caption, tuple(headings), tuple(rows), words=(0,), faint=(0,), layout=_LAYOUT)


def _main_cell(main: MainFigure, row: ComparedScores | None) -> Cell:
    """Return the cell of a row's main figure; empty where a student has no run of this row."""
    if row is None:
        return Cell(None)
    return replace(mean(row.main, digits_of(main)), mark=_mark(row))


def _student_table(summary: ComparisonSummary, block: StudentBlock) -> Table:
    """Lay out a student as the comparative study's table 5: every method and mapping, every task."""
    # The columns: ranks, tasks and averages, then measures on held-out text; the teacher has no rank.
    headings = score_headings(summary.columns, [summary.teacher, *block.rows])
    rank_columns = _rank_columns(summary, block.rows)
    teacher = (*score_cells(headings, summary.teacher), *_held_out_cells(summary, summary.teacher))
    rows: list[tuple[AnyCell, ...]] = []
    rows.append((short_model_name(summary.teacher.title), *[Cell(None)] * len(rank_columns), *teacher))
    for index, row in enumerate(block.rows):
        ranks = [column[index] for column in rank_columns.values()]
        rows.append((_label_cell(row), *ranks, *score_cells(headings, row), *_held_out_cells(summary, row)))

    # Papers have no ranks and no measures on our held-out text.
    published = tuple(range(len(rows), len(rows) + len(block.published)))
    for paper in block.published:
        label, *cells = published_cells(headings, paper)
        rows.append((label, *[Cell(None)] * len(rank_columns), *cells, *[Cell(None)] * len(summary.held_out)))
    measures = [f"{measure.title}\n{_DIRECTIONS[measure.best]}" for measure in summary.held_out]
    cost = _cost_in_words(block.cost)
    caption = f"{block.student} ({block.shape})"
    if cost:
        caption += f": {cost}"
    return Table(
        caption=f"{caption}{_seeds_note(summary)}",
        headings=("", *rank_columns, *headings.values(), *measures),
        rows=tuple(rows),
        words=(0,),
        strong=tuple(index for index, row in enumerate(block.rows, start=1) if row.place == 1),
        faint=(0,),
        published=published,
        layout=_LAYOUT,
    )


def _rank_columns(summary: ComparisonSummary, rows: Sequence[ComparedRow]) -> dict[str, list[Cell]]:
    """Return rank, interval over seeds and share of the teacher's main figure of all rows, as far as any row has them.

    Returns:
        A cell for each row, by the column's heading.
    """
    main = summary.main
    if main is None:
        return {}
    columns = {
        "rank\n": [Cell(row.place) for row in rows],
        f"95 % over seeds\n{main.title}": [interval(row.over_seeds, digits_of(main)) for row in rows],
        f"% of teacher\n{main.title}": [Cell(share_kept(main.key, row, summary.teacher), "{:.1f} %") for row in rows],
    }
    return {heading: cells for heading, cells in columns.items() if any(cell.value is not None for cell in cells)}


def _held_out_cells(summary: ComparisonSummary, row: ComparedScores) -> list[Cell]:
    return [mean(row.held_out.get(measure.key), measure.digits) for measure in summary.held_out]


def _seeds_note(summary: ComparisonSummary) -> str:
    """Return the end of a caption: a warning where nothing is ranked for want of seeds, else empty."""
    return "; one seed, so nothing is ranked" if has_one_seed(summary) else ""


def has_one_seed(summary: ComparisonSummary) -> bool:
    """Return whether the row with the most finished seeds has one; False where no run has finished."""
    return max((row.finished for block in summary.blocks for row in block.rows), default=0) == 1


def baseline_lines(summary: ComparisonSummary, main: MainFigure) -> Iterator[str]:
    """Yield a line for each untrained row of a student: its score, and its place among the trained rows."""
    # A student that was not trained is the baseline that every method has to beat.
    for block in summary.blocks:
        trained_scores: list[float] = []
        baselines: list[tuple[str, float]] = []
        for row in block.rows:
            if row.main is None:
                continue
            if trains_nothing(row):
                baselines.append((row.label, row.main.mean))
            else:
                trained_scores.append(row.main.mean)
        if not trained_scores:
            continue
        on_student = f"On {block.student}, " if len(summary.blocks) > 1 else ""
        for label, value in baselines:
            score_phrase = f"`{label}`, which trains nothing, scored {value:.{digits_of(main)}f}"
            yield f"{on_student}{score_phrase}: {_place_among(value, trained_scores)} in this one seed."


def _place_among(value: float, trained_scores: Sequence[float]) -> str:
    """Return the place of a score among those of trained methods in words: `above 2 of 5 trained methods`."""
    count = len(trained_scores)
    if count == 1:
        all_methods = "the trained method"
    elif count == 2:
        all_methods = "both trained methods"
    else:
        all_methods = f"all {count} trained methods"
    beaten = sum(value > score for score in trained_scores)
    if beaten == count:
        return f"above {all_methods}"
    # A score equal to the lowest is above none, but not below all.
    if value < min(trained_scores):
        return f"below {all_methods}"
    return f"above {beaten} of {count} trained methods"


def trains_nothing(row: ComparedRow) -> bool:
    """Return whether the students of a row are as initialised: its finished runs read no tokens."""
    return row.tokens is not None and bool(row.tokens.runs) and not any(row.tokens.runs)


def digits_of(main: MainFigure) -> int:
    """Return how many digits the main figure is printed with."""
    if main.kind == "held_out" and main.digits is not None:
        return main.digits
    return 1


def _mark(row: ComparedScores) -> str:
    """Return "bold" for rank 1, "italic" for the best mapping of a method below it, else ""."""
    # The teacher and rows with too few seeds have no rank.
    if not isinstance(row, ComparedRow) or row.place is None:
        return ""
    if row.place == 1:
        return "bold"
    return "italic" if row.best_mapping else ""


def _label_cell(row: ComparedRow) -> Cell:
    label = row.label
    if row.finished != row.wanted:
        label += f" ({row.finished} of {row.wanted} seeds)"
    return Cell(label, mark=_mark(row))


def _cost_in_short(cost: ModelCost | None) -> str:
    """Return the parameters of a student in millions, and its first speedup over the teacher."""
    if cost is None or cost.parameters is None:
        return ""
    millions = f"{cost.parameters / 1e6:.2f} M"
    if not cost.speedups:
        return millions
    return f"{millions}, {cost.speedups[0].speedup:.1f}x"


def _cost_in_words(cost: ModelCost | None) -> str:
    """Return the parameters of a student, and its speed beside the teacher's."""
    if cost is None or cost.parameters is None:
        return ""
    parts = [f"{cost.parameters / 1e6:.2f} M parameters"]
    parts += [
        f"{speedup.speedup:.1f}x as fast at {speedup.batch} x {speedup.length} tokens" for speedup in cost.speedups
    ]
    return ", ".join(parts)


def comparison_blocks(record: ComparisonRecord) -> list[Block]:
    """Return the tables of a comparison and its notes as blocks."""
    comparison = Comparison.read(record)
    return [*comparison_tables(comparison.summary), Notes(tuple(comparison_notes(comparison)))]


def methods_table(record: ComparisonRecord) -> RenderableType:
    """Return the tables for the terminal: all students at once, then each with all its columns, then notes."""
    return console(*comparison_blocks(record))


def methods_markdown(record: ComparisonRecord) -> str:
    """Return everything as Markdown: the tables, combinations left out, costs and notes."""
    comparison = Comparison.read(record)
    summary = comparison.summary
    sections = [Section("", (Paragraph(" ".join(_setting(comparison))),))]
    for table in comparison_tables(summary):
        headings = tuple(heading.replace("\n", ", ").removesuffix(", ") for heading in table.headings)
        sections.append(Section(table.caption, (replace(table, headings=headings),)))
    sections.append(Section("Left out", (Notes(tuple(_left_out(comparison))),)))
    if comparison.costs is not None:
        sections += [Section(table.caption, (table,)) for table in cost_tables(comparison.costs)]
    sections.append(Section("Notes", (Notes((*_one_answer_lines(summary), *summary.notes)),)))
    return markdown.markdown_file(str(comparison.name), sections)


def methods_csv(record: ComparisonRecord) -> str:
    """Return every figure on a separate line, unrounded."""
    summary = Comparison.read(record).summary
    teacher = summary.teacher
    # The teacher belongs to no student; costs belong to no method.
    teacher_rows = [*_figure_rows(summary, teacher), *_cost_rows(teacher.cost)]
    rows = [{"method": "teacher", **row} for row in teacher_rows]
    for block in summary.blocks:
        for line in block.rows:
            names = {"student": block.student, "method": line.method, "mapping": line.mapping}
            rows += [{**names, **row} for row in _figure_rows(summary, line)]
        rows += [{"student": block.student, **row} for row in _cost_rows(block.cost)]
    return to_csv(_CSV_COLUMNS, rows)


def _figure_rows(summary: ComparisonSummary, row: ComparedScores) -> Iterator[dict[str, Any]]:
    """Yield a row's figures; the rank stands beside the figure that decides it."""
    # The teacher has no rank. It has a number of finished runs in some older records only; otherwise it was run once.
    rank = row.place if isinstance(row, ComparedRow) else None
    has_several_seeds = getattr(row, "finished", 1) > 1
    for figure in _scores_and_measures(summary, row):
        is_main = summary.main is not None and figure["key"] == summary.main.key
        if is_main and "retention" in figure:
            figure["rank"] = rank
        # Intervals in this file are over seeds; with one seed they would be over fine-tuning runs.
        if not has_several_seeds:
            figure["low"] = None
            figure["high"] = None
        yield {**figure, "figure": figure["key"]}
    if row.tokens is not None:
        yield {"figure": "tokens", **numbers(row.tokens)}
    if row.seconds is not None:
        yield {"figure": "seconds", **numbers(row.seconds)}


def _scores_and_measures(summary: ComparisonSummary, row: ComparedScores) -> Iterator[dict[str, Any]]:
    yield from csv_rows(summary.columns, row)
    for measure in summary.held_out:
        figure = row.held_out.get(measure.key)
        if figure is not None:
            yield {"key": measure.key, **numbers(figure), "retention": None}


def _cost_rows(cost: ModelCost | None) -> Iterator[dict[str, Any]]:
    if cost is not None:
        yield {"figure": "parameters", "mean": cost.parameters}
        for speedup in cost.speedups:
            yield {"figure": f"speedup at {speedup.batch} x {speedup.length} tokens", "mean": speedup.speedup}


def write_comparison(record: ComparisonRecord, folder: Path) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        record: Of the comparison.
        folder: An existing folder.

    Returns:
        The files.
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


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return the notes on ranks, meaningless scores and combinations left out, then those of the record."""
    summary = comparison.summary
    notes = []
    if summary.main is not None:
        notes.append(_ranking_note(summary, summary.main))
    notes += _one_answer_lines(summary)
    notes += [f"Left out: {line}" for line in _left_out(comparison)]
    return notes + summary.notes


def _left_out(comparison: Comparison) -> list[str]:
    return [
        f"{combination.label} on {combination.student}: {combination.reason}" for combination in comparison.impossible
    ]


def _one_answer_lines(summary: ComparisonSummary) -> list[str]:
    rows = [(row.label, row) for block in summary.blocks for row in block.rows]
    return one_answer_lines(summary.columns, rows)


def _setting(comparison: Comparison) -> Iterator[str]:
    """Yield the settings of all runs, and explain the figures."""
    summary = comparison.summary
    plan = comparison.plan
    yield (
        f"Teacher {summary.teacher.title} ({summary.teacher.shape}); {plan.budget.tokens:,} tokens "
        f"per run from a corpus of {comparison.corpus.tokens:,}; seeds {', '.join(map(str, plan.seeds))}."
    )
    if summary.preset is not None:
        yield f"Task scores with the preset '{summary.preset}', in percent."
    if summary.main is not None:
        yield _ranking_note(summary, summary.main)

    # Methods may stop at different steps of the same budget. Runs without training read no tokens.
    rows = [row for block in summary.blocks for row in block.rows]
    token_counts: list[float] = []
    has_several_runs = False
    for row in rows:
        if row.tokens is not None:
            token_counts += [count for count in row.tokens.runs if count]
        for figure in row.figures.values():
            if figure is not None and len(figure.runs) > 1:
                has_several_runs = True
    if token_counts:
        fewest = min(token_counts)
        most = max(token_counts)
        if most > fewest:
            yield f"Runs read {fewest:,.0f} to {most:,.0f} tokens."
        else:
            yield f"Runs read {fewest:,.0f} tokens each."
    if has_several_runs:
        repetitions = "fine-tuning runs" if has_one_seed(summary) else "distillation seeds"
        yield f"± is the sample standard deviation over {repetitions}."


def _ranking_note(summary: ComparisonSummary, main: MainFigure) -> str:
    """Return the note on the rule of the ranks, or on the reason for their absence."""
    # Ranks compare differences between seeds, so each of two rows needs several.
    if has_one_seed(summary):
        advice = f"Give the plan three or more `seeds` to rank the rows by {main.title}."
        return " ".join([ONE_SEED, *baseline_lines(summary, main), advice])
    if all(row.place is None for block in summary.blocks for row in block.rows):
        return "Fewer than two rows have several seeds, so nothing is ranked."
    return (
        f"Ranked by {main.title}: a rank is one more than the number of rows that are better beyond chance, by the "
        "95 % interval of the differences per seed (Student's t). Rows of rank 1, in bold, cannot be told apart from "
        "the best; italics mark the best mapping of a method."
    )
