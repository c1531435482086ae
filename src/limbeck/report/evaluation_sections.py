"""Sections of an evaluation: tables, a bar for every model and task, costs, failed cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from limbeck.core import records, studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Facts, Figure, Notes, Table, counted, interval
from limbeck.core.paths import short_model_name
from limbeck.core.studies import FINISHED
from limbeck.report.costs import conditions_of, cost_blocks
from limbeck.report.evaluation import (
    chosen_lines,
    has_several_runs,
    is_untrained,
    metrics_table,
    reading_notes,
    scores_table,
)
from limbeck.report.figures import bars_figure, bars_of, measured, quality_figures
from limbeck.report.names import metric_name
from limbeck.report.plots import BarGroup
from limbeck.report.provenance import facts_block, made_by
from limbeck.report.scores import ONE_ANSWER, ONE_RUN, interval_of, is_meaningless, main_figure, name_of, share_kept
from limbeck.report.sections import Summary, facts, section, summary
from limbeck.report.subjects import EvaluationFolder

_MOST_CELLS = 100
_MOST_WARNINGS = 20
_MOST_FACTS = 4
"""Models in the facts of an evaluation: the first, which others are compared with, and three more."""


@summary(EvaluationFolder)
def evaluation_summary(evaluation: EvaluationFolder) -> Summary:
    """Describe an evaluation in short."""
    status = "not finished" if evaluation.summary.is_empty else "finished"
    return Summary("evaluation", status, counted(len(evaluation.cells), "cell"))


@facts(EvaluationFolder)
def evaluation_facts(evaluation: EvaluationFolder) -> Iterator[str]:
    """Yield the main figure, its values with their shares of the first model's and speeds, and cautions."""
    record = evaluation.summary
    if not record.models or not record.columns:
        return
    key, title = main_figure(record)
    yield f"Main figure: {title}, in percent."
    scored_models = [model for model in record.models if model.figures.get(key) is not None]
    for model in scored_models[:_MOST_FACTS]:
        yield f"{name_of(model)}: {_score_words(record, model, key)}."
    left_out = len(scored_models) - _MOST_FACTS
    if left_out > 0:
        yield f"{counted(left_out, 'more model')} in the table."

    failed = sum(cell.status != FINISHED for cell in evaluation.cells)
    if failed:
        yield f"{counted(failed, 'cell')} failed."
    if len(record.models) > 1 and not has_several_runs(record) and not is_untrained(record):
        yield f"{ONE_RUN.capitalize()} the order of models may be due to chance."


def _score_words(record: studies.Evaluation, model: studies.EvaluatedModel, key: str) -> str:
    """Return a score with its interval, its share of the first model's, and the model's speed."""
    figure = model.figures[key]
    assert figure is not None
    if is_meaningless(key, model):
        return f"{figure.mean:.1f}{ONE_ANSWER}, since it gives all rows one answer"
    words = f"{figure.mean:.1f}"
    ends = interval_of(key, model)
    if ends is not None:
        words += f" (95 %: {interval(ends)})"
    if model is record.models[0]:
        return words
    share = share_kept(key, model, record.models[0])
    if share is not None:
        words += f", {share:.1f} % of {name_of(record.models[0])}"
    timings = record.costs.timings if record.costs else []
    speedups = [row.speedup for row in timings if row.model == model.name and row.speedup is not None]
    if speedups:
        words += f", {speedups[0]:.1f} times as fast"
    return words


@section(EvaluationFolder, "Overview")
def overview(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show models, tasks and protocol, and warnings."""
    # Cells name a model by its folder or name on the Hub, tables by its title.
    titles = {model.name: name_of(model) for model in evaluation.summary.models}
    models = dict.fromkeys(titles.get(cell.model, short_model_name(cell.model)) for cell in evaluation.cells)
    tasks = dict.fromkeys(cell.task for cell in evaluation.cells)
    request = evaluation.request
    protocol = [request.preset or "", *request.overrides]
    if request.as_is or is_untrained(evaluation.summary):
        protocol.append("models as they are")
    steps = {
        "Models": ", ".join(models) or "none",
        "Tasks": ", ".join(tasks) or "none",
        "Protocol": ", ".join(filter(None, protocol)) or "not recorded",
    }
    yield Facts(tuple(steps.items()))

    warnings = list(evaluation.problems)
    if evaluation.summary.is_empty:
        warnings.append(
            "The evaluation is not finished, and there is no table yet. Run the same command to continue it."
        )
    failed = [cell for cell in evaluation.cells if cell.status != FINISHED]
    warnings += [f"A cell failed: {cell.model} on {cell.task}: {cell.error or ''}" for cell in failed]
    yield Notes(tuple(warnings[:_MOST_WARNINGS]), warning=True)


@section(EvaluationFolder, "Scores")
def scores(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show the main table, a bar for every model and task, and quality against latency."""
    record = evaluation.summary
    if not record.columns:
        if not record.is_empty:
            yield Notes(("No task was evaluated.",))
        return
    # On a page published rows are folded below everything else.
    table = scores_table(record)
    names = {index: str(table.rows[index][0]) for index in table.strong}
    for index in table.faint:
        names[index] = f"↳ {str(table.rows[index][0]).strip()}"
    if has_several_runs(record):
        certainty = "± is the standard deviation over seeds"
    elif is_untrained(record):
        certainty = "models as they are"
    else:
        certainty = f"{ONE_RUN} differences may be due to chance"
    yield page_table(replace(table, caption=f"Scores in percent; {certainty}"), names)
    yield Notes(tuple(reading_notes(record)))
    yield from task_bars(record.columns, [(name_of(model), model) for model in record.models])
    if record.costs is not None and record.costs.timings:
        yield from _quality(record, record.costs)
    yield from published_table(table, "Published results for models of the same shapes")


def page_table(table: Table, names: Mapping[int, str]) -> Table:
    """Return a table for a page, without published rows.

    Args:
        table: As it stands in files.
        names: The first cells of the rows that are shown, by number.
    """
    rows: list[tuple[AnyCell, ...]] = []
    for index, row in enumerate(table.rows):
        if index in names:
            rows.append((names[index], *row[1:]))
    return replace(table, rows=tuple(rows), words=(), published=())


def published_table(table: Table, caption: str) -> Iterator[Table]:
    """Yield the published rows of a table, folded, if there are any."""
    if table.published:
        rows = tuple(table.rows[index] for index in table.published)
        yield Table(caption, table.headings, rows, folded=True)


def task_bars(columns: Sequence[studies.Column], models: Sequence[tuple[str, studies.Scores]]) -> Iterator[Figure]:
    """Draw a bar for every model, by its name, and task, with its deviation."""
    groups = []
    for column in columns:
        # Parts of another column are in the table of all metrics alone.
        if column.detail:
            continue
        bars = bars_of([(name, model.columns.get(column.key)) for name, model in models])
        if bars:
            groups.append(BarGroup(f"{column.title} ({metric_name(column.metric)})", bars))
    yield from bars_figure("Scores by task", groups, "percent")


def _quality(record: studies.Evaluation, costs: studies.Costs) -> Iterator[Block]:
    """Draw the main figure of several models whose latency is known."""
    key, title = main_figure(record)
    models = []
    for model in record.models:
        figure = model.figures.get(key)
        quality = None if figure is None else figure.mean
        models += measured(name_of(model), costs.latency(model.name), quality)
    # With one run each, a front would be a ranking by chance.
    has_front = has_several_runs(record)
    yield from quality_figures(models, f"{title}, percent", conditions_of(costs), front=has_front)


@section(EvaluationFolder, "Cost")
def cost(evaluation: EvaluationFolder) -> Iterable[Block]:
    """Show sizes and speed, where they were measured."""
    return cost_blocks(evaluation.summary.costs)


@section(EvaluationFolder, "All metrics")
def all_metrics(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show every metric, and the grid points that were chosen."""
    table = metrics_table(evaluation.summary)
    if table.rows:
        yield replace(table, words=(1,))
        yield Notes(tuple(chosen_lines(evaluation.summary)))


@section(EvaluationFolder, "Cells")
def cells(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show the cells of an evaluation that is not finished."""
    if not evaluation.summary.is_empty:
        return
    rows: list[tuple[AnyCell, ...]] = []
    for cell in evaluation.cells[:_MOST_CELLS]:
        result = _cell_scores(cell) or cell.error or NOTHING
        names = [name or NOTHING for name in (cell.model, cell.task, str(cell.seed), cell.status)]
        rows.append((*names, result, Cell(cell.seconds, "{:,.0f}")))
    headings = ("Model", "Task", "Seed", "Status", "Scores, percent", "Seconds")
    left_out = max(0, len(evaluation.cells) - _MOST_CELLS)
    yield Table("Cells", headings, tuple(rows), words=(1, 3, 4), left_out=left_out)


def _cell_scores(cell: studies.EvaluationCell) -> str:
    parts = []
    for metrics in cell.scores.values():
        for metric, value in metrics.items():
            if value is not None:
                parts.append(f"{metric_name(metric)} {100 * value:.1f}")
    return "; ".join(parts)


@section(EvaluationFolder, "Notes")
def notes(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show all notes."""
    yield Notes(tuple(evaluation.summary.notes))


@section(EvaluationFolder, "Provenance")
def provenance(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Describe the machine of the last cell, and the models and data of all."""
    cell = evaluation.cells[-1] if evaluation.cells else studies.EvaluationCell()
    record = records.Made(
        versions=cell.versions,
        git_commit=cell.commit,
        hardware=records.Hardware(device=cell.device),
        updated=cell.created,
    )
    yield facts_block(made_by(record, evaluation.folder))
    # Each model and each task once, models first.
    fingerprints: dict[tuple[str, str, str], None] = {}
    for cell in evaluation.cells:
        if cell.model_fingerprint:
            fingerprints["model", cell.model, cell.model_fingerprint] = None
    for cell in evaluation.cells:
        if cell.data_fingerprint:
            fingerprints["task", cell.task, cell.data_fingerprint] = None
    if fingerprints:
        yield Table("Fingerprints", ("", "Name", "Fingerprint"), tuple(fingerprints), words=(1, 2))
