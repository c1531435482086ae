"""Sections of a comparison: tables, quality against latency, costs, layers, training, runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import yaml

from limbeck.core.blocks import (
    NOTHING,
    AnyCell,
    Block,
    Cell,
    Code,
    Facts,
    Notes,
    Table,
    counted,
    duration,
    interval,
    number,
    rounded,
)
from limbeck.core.paths import short_model_name
from limbeck.core.studies import Column, ComparedRow, ComparisonSummary, Costs, Figure, MainFigure, StudentBlock
from limbeck.report.chance import GUESSERS, with_article
from limbeck.report.comparison import methods_tables
from limbeck.report.costs import conditions_of, cost_blocks
from limbeck.report.curves import course_figures
from limbeck.report.figures import MeasuredModel, quality_against_latency, quality_rows
from limbeck.report.layers import layers_table
from limbeck.report.methods_notes import (
    early_end_lines,
    has_one_seed,
    main_digits,
    methods_notes,
    one_seed_lines,
    range_words,
)
from limbeck.report.names import without_path
from limbeck.report.provenance import comparison_provenance
from limbeck.report.quality import format_count
from limbeck.report.scores import chance_by, is_meaningless, meaningless_words
from limbeck.report.sections import (
    MOST_HIGHLIGHTS,
    Highlight,
    Summary,
    facts,
    highlights,
    highlights_of,
    section,
    summary,
)
from limbeck.report.statuses import run_statuses
from limbeck.report.subjects import ComparisonFolder
from limbeck.report.warning_notes import first_warnings


@summary(ComparisonFolder)
def comparison_summary(comparison: ComparisonFolder) -> Summary:
    """Describe a comparison in short: by the figures that are set large, or by the number of runs where it has none."""
    record = comparison.record
    shown = [highlight for highlight in highlights_of(comparison) if highlight.value != NOTHING]
    figures = [f"{highlight.label} {highlight.value}" for highlight in shown]
    result = "; ".join(figures) or counted(len(record.cells), "run")
    return Summary("comparison", record.status or "–", result)


@highlights(ComparisonFolder)
def comparison_highlights(comparison: ComparisonFolder) -> Iterator[Highlight]:
    """Yield the main figure of the teacher, then of each student that of its best row."""
    record = comparison.record.summary
    main = record.main
    if main is None:
        return
    label = f"{main.title} of the teacher"
    if is_meaningless(main.key, record.teacher):
        yield Highlight(NOTHING, label, meaningless_words(main.key, [record.teacher]))
    elif record.teacher.main is not None:
        value = rounded(record.teacher.main.mean, main_digits(main))
        yield Highlight(value, label, short_model_name(record.teacher.title))
    for block in record.blocks:
        highlight = _highlight_of_student(block, main, record.columns)
        if highlight is not None:
            yield highlight


def _highlight_of_student(block: StudentBlock, main: MainFigure, columns: Sequence[Column]) -> Highlight | None:
    """Return the figure of the best row of a student, or the range of all rows if one seed leaves them unranked.

    A guesser's score stands behind it.
    """
    digits = main_digits(main)
    label = f"{main.title} of {block.student}"
    figures = _main_figures(block, main)
    if not figures:
        measured_rows = [row for row in block.rows if row.main is not None]
        if not measured_rows:
            return None
        return Highlight(NOTHING, label, meaningless_words(main.key, measured_rows))
    # `place` is the rank of a row. With one seed no row has a rank.
    best = [(row, figure) for row, figure in figures if row.place == 1]
    guesser = _guesser_words(block, main, columns)
    if not best:
        values = [figure.mean for _, figure in figures]
        detail = f"{counted(len(values), 'combination')}, not ranked{guesser}"
        return Highlight(range_words(values, digits), label, detail)

    # Rows of rank 1 cannot be told apart: the first stands for all of them, which are named.
    first_row, first_figure = best[0]
    names = "; ".join(row.label for row, _ in best)
    detail = f"rank 1 of {len(figures)}: {names}"
    if first_row.over_seeds is not None:
        detail = f"95 %: {interval(first_row.over_seeds, digits)}, over {counted(first_row.finished, 'seed')}; {detail}"
    return Highlight(rounded(first_figure.mean, digits), label, f"{detail}{guesser}")


def _guesser_words(block: StudentBlock, main: MainFigure, columns: Sequence[Column]) -> str:
    """Return the guesser beside the main figure of a student, as the end of a detail; empty where there is none."""
    for guesser in GUESSERS:
        chance = chance_by(guesser, main.key, columns, block.rows)
        if chance is not None:
            return f"; {with_article(guesser)} has {rounded(chance, 1)}"
    return ""


def _main_figures(block: StudentBlock, main: MainFigure) -> list[tuple[ComparedRow, Figure]]:
    """Return the rows of a student, each with its main figure; rows without one, or a meaningless one, are left out."""
    return [(row, row.main) for row in block.rows if row.main is not None and not is_meaningless(main.key, row)]


@facts(ComparisonFolder)
def comparison_facts(comparison: ComparisonFolder) -> Iterator[str]:
    """Yield the caution of a single seed, and the number of students that have no highlight."""
    record = comparison.record.summary
    if record.main is None:
        return
    if has_one_seed(record):
        yield from one_seed_lines(record, record.main)
    # A page shows the first highlights only. That of the teacher is the first, so those left out are of students.
    left_out = len(list(comparison_highlights(comparison))) - MOST_HIGHLIGHTS
    if left_out > 0:
        yield f"{counted(left_out, 'more student')} in the tables."


@section(ComparisonFolder, "Overview")
def overview(comparison: ComparisonFolder) -> Iterator[Block]:
    """Show teacher, students, methods and budget, warnings, and the state of unfinished runs."""
    record = comparison.record
    budget = "not recorded"
    if record.plan.budget.tokens is not None:
        budget = f"{format_count(record.plan.budget.tokens)} tokens per run"
    if record.corpus.tokens is not None:
        budget += f" from a corpus of {format_count(record.corpus.tokens)}"
    # Each of the seeds, students and methods is named once, in the order of the runs: a dictionary keeps that order.
    seeds = dict.fromkeys(str(cell.seed) for cell in record.cells if cell.seed is not None)
    settings = {
        "Teacher": f"{without_path(record.teacher.title)}, {record.teacher.shape}",
        "Students": ", ".join(dict.fromkeys(cell.student for cell in record.cells)),
        "Methods": ", ".join(dict.fromkeys(cell.method for cell in record.cells)),
        "Budget": f"{budget}; seeds {', '.join(seeds)}",
    }
    yield Facts(tuple(settings.items()))
    yield first_warnings(list(_warnings(comparison)))
    if comparison.unfinished:
        yield run_statuses(comparison.unfinished)


def _warnings(comparison: ComparisonFolder) -> Iterator[str]:
    """Yield what is damaged, unfinished or failed."""
    record = comparison.record
    yield from comparison.problems
    if not record.is_finished:
        yield f"The comparison is not finished ({record.status or 'status not recorded'})."
    finished = sum(cell.status == "finished" for cell in record.cells)
    if finished < len(record.cells):
        yield f"{finished} of {len(record.cells)} runs are finished."
    if record.summary.is_empty:
        yield "There is no table yet: the students have not been measured."
    # Last, since there may be one for every run.
    yield from early_end_lines(record.cells)
    for cell in record.cells:
        if cell.problem:
            yield f"{cell.title} failed: {cell.problem}"


@section(ComparisonFolder, "Results")
def results(comparison: ComparisonFolder) -> Iterator[Block]:
    """Draw the main figure of all rows, then show the tables, with published rows in tables of their own."""
    record = comparison.record.summary
    if record.main is not None:
        yield from _quality_figures(record, record.main, comparison.record.costs or Costs())
    for table in methods_tables(record):
        # `table.published` has the indices of the published rows, which get a table of their own on a page.
        rows: list[tuple[AnyCell, ...]] = []
        published_rows = []
        for index, row in enumerate(table.rows):
            if index in table.published:
                published_rows.append(row)
            else:
                label, *figures = row
                rows.append((without_path(str(label)), *figures))
        yield replace(table, rows=tuple(rows), words=(), published=())
        if published_rows:
            caption = "Published results for models of the same shape"
            yield Table(caption, table.headings, tuple(published_rows), folded=True)


def _quality_figures(record: ComparisonSummary, main: MainFigure, costs: Costs) -> Iterator[Block]:
    """Draw the main figure of the teacher and of all rows, then the best row of each student against its latency.

    A meaningless figure is not drawn.
    """
    teacher_quality = None
    models = []
    best_models = []
    if record.teacher.main is not None and not is_meaningless(main.key, record.teacher):
        teacher_quality = record.teacher.main.mean
        name = short_model_name(record.teacher.title)
        teacher = MeasuredModel(name, teacher_quality, latency=costs.latency(record.teacher.name))
        models.append(teacher)
        best_models.append(teacher)

    is_lowest_best = main.best == "lowest"
    selection = ""
    for block in record.blocks:
        models_of_student = _models_of_student(block, main, costs, names_student=len(record.blocks) > 1)
        if not models_of_student:
            continue
        models += models_of_student
        if is_lowest_best:
            best = min(models_of_student, key=lambda model: model.quality)
        else:
            best = max(models_of_student, key=lambda model: model.quality)
        best_models.append(replace(best, name=block.student))
        if len(models_of_student) > 1:
            selection = "Each student is drawn with its best method."

    yield from quality_rows(models, main.title, teacher_quality)
    yield from quality_against_latency(
        best_models,
        main.title,
        conditions_of(costs),
        lowest=is_lowest_best,
        front=not has_one_seed(record),
        selection=selection,
    )


def _models_of_student(
    block: StudentBlock, main: MainFigure, costs: Costs, *, names_student: bool
) -> list[MeasuredModel]:
    """Return the quality and latency of each method and mapping of a student, for those that have the main figure.

    Args:
        block: The student.
        main: The main figure.
        costs: The costs of the comparison.
        names_student: Whether the names of the models have the student's in them.
    """
    # All rows of a student have its latency, which depends on the shape alone.
    latency = costs.latency(block.student)
    models = []
    for row, figure in _main_figures(block, main):
        name = row.label
        if names_student:
            name += f" on {block.student}"
        models.append(MeasuredModel(name, figure.mean, row.over_seeds, latency))
    return models


@section(ComparisonFolder, "Cost")
def cost(comparison: ComparisonFolder) -> Iterable[Block]:
    """Show sizes and speed, where they were measured."""
    if comparison.record.summary.is_empty:
        return ()
    return cost_blocks(comparison.record.costs)


@section(ComparisonFolder, "Layers")
def layers(comparison: ComparisonFolder) -> Iterator[Block]:
    """Show the layers that each method and mapping joins, by one run of each; other seeds join the same."""
    named_stages = []
    for combination, run in comparison.run_by_combination.items():
        for stage in run.stages:
            name = combination
            if len(run.stages) > 1:
                name += f", stage '{stage.title}'"
            named_stages.append((name, stage.record))
    table = layers_table("Which layers learn from which", "Method", named_stages)
    if table is not None:
        yield table


@section(ComparisonFolder, "Training")
def training(comparison: ComparisonFolder) -> Iterator[Block]:
    """Draw the losses of one run of each method and mapping in common figures."""
    figures = list(course_figures(list(comparison.run_by_combination.items())))
    yield from figures
    if figures and len(comparison.run_by_combination) < len(comparison.record.cells):
        yield Notes(("Of runs that differ only in their seed, only the first finished one is drawn.",))


@section(ComparisonFolder, "Runs")
def runs(comparison: ComparisonFolder) -> Iterator[Block]:
    """List all runs."""
    rows: list[tuple[AnyCell, ...]] = []
    # The longest time decides the unit of all times in the column.
    longest = max((cell.seconds or 0 for cell in comparison.record.cells), default=0)
    for cell in comparison.record.cells:
        steps = " + ".join(map(str, cell.steps))  # Empty for a run that has not begun.
        time = None if cell.seconds is None else duration(cell.seconds, longest=longest)
        rate = None
        if cell.tokens and cell.seconds:
            rate = cell.tokens / cell.seconds
        cells = (Cell(steps or None), number(cell.tokens), Cell(time), number(rate))
        rows.append((cell.title, cell.shown_status, *cells, cell.folder))
    if rows:
        headings = ("Run", "Status", "Steps", "Tokens", "Total time", "Overall tokens/s", "Folder")
        yield Table("Runs", headings, tuple(rows)).with_words("Status", "Folder")
        yield Notes(("`limbeck report` on the folder of a run shows its terms and its held-out losses.",))


@section(ComparisonFolder, "Notes")
def notes(comparison: ComparisonFolder) -> Iterator[Block]:
    """Show all notes."""
    yield Notes(tuple(methods_notes(comparison.record)))


@section(ComparisonFolder, "Plan")
def plan(comparison: ComparisonFolder) -> Iterator[Block]:
    """Show the plan with all its defaults."""
    document = comparison.record.plan.to_dict()
    if document:
        yield Code("Resolved plan", yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100), "yaml")


@section(ComparisonFolder, "Provenance")
def provenance(comparison: ComparisonFolder) -> Iterable[Block]:
    """Describe how the comparison was made."""
    return comparison_provenance(comparison.record, comparison.folder)
