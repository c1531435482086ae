"""Reports of comparisons: tables, bars by task and measure, layers of each method, costs, runs."""

from collections.abc import Iterator
from dataclasses import replace

import yaml

from limbeck.core import blocks
from limbeck.core.studies import Comparison, ComparisonSummary, HeldOutMeasure, StudentBlock
from limbeck.report.comparison_tables import combination, comparison_tables
from limbeck.report.evaluation import cost_blocks, page_tables, pass_of, task_bars
from limbeck.report.figures import Measured, bars_figure, course_figures, layers_figure, quality_figure
from limbeck.report.findings import ComparisonFound, RunFound, run_states, without_path
from limbeck.report.plots import Bar, BarGroup
from limbeck.report.quality import format_count
from limbeck.report.run import provenance_blocks, stage_links

_MOST_DIAGRAMS = 12


def comparison_sections(found: ComparisonFound) -> list[blocks.Section]:
    """Lay out a comparison; of one that is not finished its runs."""
    record, summary = found.record, found.record.summary
    measured = (
        [
            *blocks.guarded("Results", lambda: _results(summary)),
            *blocks.guarded("Figures", lambda: _figures(record)),
            *blocks.guarded("Cost", lambda: cost_blocks(record.costs)),
        ]
        if not summary.is_empty
        else []
    )
    return [
        *blocks.guarded("What was done", lambda: _flow(found)),
        *measured,
        *blocks.guarded("Layers", lambda: _layers(found)),
        *blocks.guarded("Training", lambda: _training(found)),
        *blocks.guarded("Runs", lambda: _runs(record)),
        *blocks.guarded("Notes", lambda: _notes(record)),
        *blocks.guarded("Plan", lambda: _plan(record)),
        *blocks.guarded("Provenance", lambda: provenance_blocks(record, found.folder)),
    ]


def _flow(found: ComparisonFound) -> Iterator[blocks.Block]:
    record, cells = found.record, found.record.cells
    tokens, corpus = record.plan.budget.tokens, record.corpus.tokens
    budget = f"{format_count(tokens)} tokens a run" if tokens is not None else "not recorded"
    read = f" of a corpus of {format_count(corpus)}" if corpus is not None else ""
    seeds = dict.fromkeys("" if cell.seed is None else str(cell.seed) for cell in cells)
    yield blocks.Steps(
        (
            ("Teacher", f"{without_path(record.teacher.title)}, {record.teacher.shape}"),
            ("Students", ", ".join(dict.fromkeys(cell.student for cell in cells))),
            ("Methods", ", ".join(dict.fromkeys(cell.method for cell in cells))),
            ("Budget", f"{budget}{read}; seeds {', '.join(seeds)}"),
        )
    )
    warnings = [*found.problems]
    if not record.is_finished:
        warnings.append(f"The comparison is not finished: {record.status or 'its status is not recorded'}.")
    done = sum(cell.status == "finished" for cell in cells)
    if done < len(cells):
        warnings.append(f"{done} of {len(cells)} runs are finished.")
    warnings += [f"{cell.title} failed: {cell.problem}" for cell in cells if cell.problem]
    if record.summary.is_empty:
        warnings.append("No table is there: the students were not measured yet.")
    if warnings:
        yield blocks.Notes(tuple(warnings[:20]), warning=True)
    if found.unfinished:
        yield run_states(found.unfinished)


def _results(summary: ComparisonSummary) -> Iterator[blocks.Block]:
    for table in comparison_tables(summary):
        measured = (index for index in range(len(table.rows)) if index not in table.published)
        names = {index: without_path(str(table.rows[index][0])) for index in measured}
        yield from page_tables(table, "Published, of models of the same shape", names)


def _figures(record: Comparison) -> Iterator[blocks.Block]:
    summary, costs = record.summary, record.costs
    for block in summary.blocks:
        of = _on(summary, block)
        if summary.columns:
            lines = [("teacher", summary.teacher.columns), *((row.label, row.columns) for row in block.rows)]
            bars = task_bars(summary.columns, [(label, columns) for label, columns in lines if columns])
            yield replace(bars, title=f"{bars.title}{of}")
        for measure in summary.held_out:
            yield _held_out(summary, block, measure, of)
    models = _measured(record)
    if len(models) > 1 and summary.main is not None and costs is not None:
        yield quality_figure(models, summary.main.title, pass_of(costs), lowest=summary.main.best == "lowest")


def _held_out(summary: ComparisonSummary, block: StudentBlock, measure: HeldOutMeasure, of: str) -> blocks.Figure:
    lines = [("teacher", summary.teacher.held_out), *((row.label, row.held_out) for row in block.rows)]
    bars = [
        Bar(label, found.mean, found.deviation, style, str(blocks.mean(found, measure.digits)))
        for style, (label, line) in enumerate(lines)
        if (found := line.get(measure.key)) is not None
    ]
    better = "less is better" if measure.best == "lowest" else "more is better"
    title = f"Held-out {measure.title}{of}"
    return bars_figure(title, [BarGroup(better, bars)], measure.title, caption="Whiskers are the deviation over seeds.")


def _measured(record: Comparison) -> list[Measured]:
    """Return every row by the latency of its student and its main figure; the teacher where it has both."""
    summary, costs = record.summary, record.costs
    if costs is None or summary.main is None:
        return []
    lines = [
        (f"{row.label}{_on(summary, block)}", costs.latency(block.student), row.main, False)
        for block in summary.blocks
        for row in block.rows
    ]
    teacher = summary.teacher
    lines.append((teacher.title, costs.latency(teacher.name), teacher.main, True))
    return [
        Measured(label, latency, main.mean, teacher=is_teacher)
        for label, latency, main, is_teacher in lines
        if latency is not None and main is not None
    ]


def _on(summary: ComparisonSummary, block: StudentBlock) -> str:
    return f" on {block.student}" if len(summary.blocks) > 1 else ""


def _layers(found: ComparisonFound) -> Iterator[blocks.Block]:
    """Draw the layers that each method and mapping joins, from one run of each."""
    drawn: set[str] = set()
    for run in found.runs:
        for stage in run.stages:
            links = stage_links(run, stage)
            if links is None or not links.joins:
                continue
            several = f", stage '{stage.title}'" if len(run.stages) > 1 else ""
            figure = layers_figure(f"{_combination(found, run)}{several}", links)
            if figure.description not in drawn and len(drawn) < _MOST_DIAGRAMS:
                drawn.add(figure.description)
                yield figure


def _combination(found: ComparisonFound, run: RunFound) -> str:
    """Name a run without its comparison and its seed."""
    return run.title.removeprefix(f"{found.title}: ").rsplit(", seed", 1)[0]


def _training(found: ComparisonFound) -> Iterator[blocks.Block]:
    """Draw the courses of one run of each method and mapping beside each other."""
    figures = list(course_figures([(_combination(found, run), run) for run in found.runs]))
    yield from figures
    if figures and len(found.runs) < len(found.record.cells):
        yield blocks.Notes(("Of runs that differ in their seed only, the first is drawn.",))


def _runs(record: Comparison) -> Iterator[blocks.Block]:
    rows: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            cell.title,
            cell.status,
            blocks.Cell(" + ".join(map(str, cell.steps)) if "steps" in cell.model_fields_set else None),
            blocks.number(cell.tokens),
            blocks.Cell(None if cell.seconds is None else blocks.duration(cell.seconds)),
            blocks.number(cell.tokens / cell.seconds if cell.tokens and cell.seconds else None),
            cell.folder,
        )
        for cell in record.cells
    )
    if rows:
        headings = ("Run", "Status", "Steps", "Tokens", "Time in all", "Tokens/s in all", "Folder")
        yield blocks.Table("Runs", headings, rows, words=(1, 6))
        yield blocks.Notes(("`limbeck report` on the folder of a run shows its terms and its held-out losses.",))


def _notes(record: Comparison) -> Iterator[blocks.Block]:
    left_out = [f"Left out: {combination(entry)}: {entry.reason}" for entry in record.impossible]
    if lines := (*left_out, *record.summary.notes):
        yield blocks.Notes(lines)


def _plan(record: Comparison) -> Iterator[blocks.Block]:
    if plan := record.plan.to_dict():
        yield blocks.Code("Resolved plan", yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=100), "yaml")
