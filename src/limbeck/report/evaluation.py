"""Reports of evaluations: tables, a bar for every model and task, costs, failed cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Figure, Notes, Section, Steps, Table, guarded, mean
from limbeck.core.records import Hardware, Made
from limbeck.core.studies import Column, ColumnFigure, Costs, Evaluation, EvaluationCell
from limbeck.evaluation.grid_summary import FINISHED
from limbeck.report.evaluation_tables import chosen_lines, cost_tables, metric_name, metrics_table, scores_table
from limbeck.report.figures import Measured, bars_figure, quality_figure
from limbeck.report.findings import EvaluationFound, last_part, without_path
from limbeck.report.plots import Bar, BarGroup
from limbeck.report.run import provenance_blocks

_MOST_CELLS = 100


def evaluation_sections(found: EvaluationFound) -> list[Section]:
    """Lay out an evaluation; of one that is not finished its cells."""
    summary = found.summary
    return [
        *guarded("What was done", lambda: _flow(found)),
        *(
            [
                *guarded("Scores", lambda: _scores(summary)),
                *guarded("Cost", lambda: cost_blocks(summary.costs)),
                *guarded("All metrics", lambda: _details(summary)),
            ]
            if not summary.is_empty
            else guarded("Cells", lambda: _cells(found.cells))
        ),
        *guarded("Notes", lambda: [Notes(tuple(summary.notes))] * bool(summary.notes)),
        *guarded("Provenance", lambda: _provenance(found)),
    ]


def page_tables(table: Table, published: str, name: Mapping[int, str]) -> Iterator[Table]:
    """Lay out a table for a page: published rows apart and folded, models by their short names.

    Args:
        table: As it stands in files.
        published: Caption of the published rows.
        name: The first cells of the other rows, by number.
    """
    rows = tuple((name[index], *row[1:]) for index, row in enumerate(table.rows) if index in name)
    yield replace(table, rows=rows, words=(), published=())
    if table.published:
        rows = tuple(table.rows[index] for index in table.published)
        yield Table(published, table.headings, rows, folded=True)


def _scores(summary: Evaluation) -> Iterator[Block]:
    if not summary.columns:
        yield Notes(("No task was evaluated.",))
        return
    table = scores_table(summary)
    first = f"↳ % of {last_part(summary.models[0].name)}"
    name = {index: last_part(str(table.rows[index][0])) for index in table.strong} | dict.fromkeys(table.faint, first)
    table = replace(table, caption="Scores in percent; ± is the deviation over seeds")
    scores, *published = page_tables(table, "Published, of models of the same shapes", name)
    yield scores
    yield task_bars(summary.columns, [(model.name, model.columns) for model in summary.models])
    models, quality = _measured(summary)
    if len(models) > 1 and summary.costs is not None:
        yield quality_figure(models, quality, pass_of(summary.costs))
    yield from published


def task_bars(columns: Sequence[Column], models: Sequence[tuple[str, Mapping[str, ColumnFigure]]]) -> Figure:
    """Draw a bar for every model and task, with its deviation.

    Args:
        columns: The tasks.
        models: Names, with their figures by column.
    """
    groups = []
    for column in columns:
        cells = [(name, figures.get(column.key)) for name, figures in models]
        bars = [
            Bar(last_part(name), cell.mean, cell.deviation, style, str(mean(cell)))
            for style, (name, cell) in enumerate(cells)
            if cell is not None
        ]
        if bars and not column.detail:
            groups.append(BarGroup(f"{column.title} ({metric_name(column.metric)})", bars))
    return bars_figure("Scores by task", groups, "percent", caption="Whiskers are the deviation over seeds.")


def cost_blocks(costs: Costs | None) -> Iterator[Block]:
    """Show sizes and speed, where they were measured."""
    for table in cost_tables(costs) if costs is not None else ():
        rows = tuple((without_path(str(row[0])), *row[1:]) for row in table.rows)
        yield replace(table, rows=rows, words=(1,))


def pass_of(costs: Costs) -> str:
    """Describe the pass whose latency was measured first."""
    row = costs.timings[0]
    return f"batch {row.batch}, {row.length} tokens, {costs.machine['device']}"


def _measured(summary: Evaluation) -> tuple[list[Measured], str]:
    """Return the models whose latency and average, or only score, are known; and the name of the score."""
    costs = summary.costs
    if costs is None:
        return [], ""
    averages = [(name, title) for name, title in (("without_cola", "average without CoLA"), ("average", "average"))]
    scores = [
        *(([getattr(model.averages, name) for model in summary.models], title) for name, title in averages),
        *(([model.columns.get(c.key) for model in summary.models], c.title) for c in summary.columns if not c.detail),
    ]
    for cells, title in scores:
        found = [
            Measured(last_part(model.name), latency, cell.mean, index == 0)
            for index, (model, cell) in enumerate(zip(summary.models, cells, strict=True))
            if cell is not None and (latency := costs.latency(model.name)) is not None
        ]
        if len(found) > 1:
            return found, f"{title}, percent"
    return [], ""


def _flow(found: EvaluationFound) -> Iterator[Block]:
    models = dict.fromkeys(last_part(cell.model) for cell in found.cells)
    tasks = dict.fromkeys(cell.task for cell in found.cells)
    asked = [found.asked.preset or "", ", ".join(found.asked.overrides)]
    yield Steps(
        (
            ("Models", ", ".join(models) or "none"),
            ("Tasks", ", ".join(tasks) or "none"),
            ("Protocol", ", ".join(filter(None, asked)) or "not recorded"),
        )
    )
    warnings = [*found.problems]
    if found.summary.is_empty:
        warnings.append("The evaluation is not finished: no table is there yet. The same command goes on with it.")
    failed = (cell for cell in found.cells if cell.status != FINISHED)
    warnings += [f"A cell failed: {cell.model} on {cell.task}: {cell.error or ''}" for cell in failed]
    if warnings:
        yield Notes(tuple(warnings[:20]), warning=True)


def _details(summary: Evaluation) -> Iterator[Block]:
    table = metrics_table(summary)
    if table.rows:
        headings = ("", "Metric", *(last_part(model.name) for model in summary.models))
        yield replace(table, headings=headings, words=(1,))
        yield Notes(tuple(chosen_lines(summary)))


def _cells(cells: Sequence[EvaluationCell]) -> Iterator[Block]:
    rows: list[tuple[AnyCell, ...]] = []
    for cell in cells[:_MOST_CELLS]:
        scores = "; ".join(
            f"{metric_name(metric)} {100 * value:.1f}"
            for metrics in cell.scores.values()
            for metric, value in metrics.items()
            if value is not None
        )
        named = (name or NOTHING for name in (cell.model, cell.task, str(cell.seed), cell.status))
        rows.append((*named, scores or cell.error or NOTHING, Cell(cell.seconds, "{:,.0f}")))
    headings = ("Model", "Task", "Seed", "Status", "Scores, percent", "Seconds")
    yield Table("Cells", headings, tuple(rows), words=(1, 3, 4), left_out=max(0, len(cells) - _MOST_CELLS))


def _provenance(found: EvaluationFound) -> Iterator[Block]:
    """Describe the machine of the last cell, and the models and data of all."""
    cell = found.cells[-1] if found.cells else EvaluationCell()
    hardware = Hardware(device=cell.device)
    record = Made(versions=cell.versions, git_commit=cell.commit, hardware=hardware, updated=cell.created)
    yield from provenance_blocks(record, found.folder)
    rows = dict.fromkeys(("model", cell.model, cell.model_fingerprint or "") for cell in found.cells)
    rows |= dict.fromkeys(("task", cell.task, cell.data_fingerprint or "") for cell in found.cells)
    if known := tuple(row for row in rows if row[2]):
        yield Table("Fingerprints", ("", "Name", "Fingerprint"), known, words=(1, 2))
