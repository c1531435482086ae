"""Sections of an evaluation: tables, quality against latency, costs, failed cells.

A *cell* is one model on one task with one seed. The *summary* of an evaluation holds its tables; it is empty until all
cells are finished. The *first* model is the one that the others are compared with, usually the teacher.
"""

from collections.abc import Iterable, Iterator

from limbeck.core import records, studies
from limbeck.core.blocks import DAMAGED, NOTHING, AnyCell, Block, Facts, Notes, Table, counted, interval, rounded
from limbeck.core.paths import short_model_name
from limbeck.core.studies import FINISHED
from limbeck.report.costs import conditions_of, cost_blocks
from limbeck.report.evaluation_tables import (
    chosen_lines,
    has_several_runs,
    is_untrained,
    metrics_table,
    published_table,
    reading_notes,
    scores_table,
)
from limbeck.report.figures import MeasuredModel, quality_against_latency, quality_rows
from limbeck.report.names import metric_of_cell
from limbeck.report.provenance import facts_block, made_by
from limbeck.report.scores import (
    ONE_RUN,
    interval_of,
    is_meaningless,
    main_figure,
    meaningless_words,
    name_of,
    share_kept,
)
from limbeck.report.sections import MOST_HIGHLIGHTS, Highlight, Summary, facts, highlights, section, summary
from limbeck.report.subjects import EvaluationFolder
from limbeck.report.warning_notes import first_warnings

_MOST_CELLS = 100
"""Most cells in the table of an evaluation that is not finished."""


@summary(EvaluationFolder)
def evaluation_summary(evaluation: EvaluationFolder) -> Summary:
    """Describe an evaluation in short."""
    status = "finished"
    if evaluation.is_running:
        status = "running"
    elif evaluation.summary.is_empty:
        status = "not finished"
    try:
        result = _result_of(evaluation)
    except DAMAGED:
        # A section of the page names the damage.
        result = ""
    return Summary("evaluation", status, result)


def _result_of(evaluation: EvaluationFolder) -> str:
    """Return the main figure of the first models in a line, such as `average: teacher 61.2, student 58.4`.

    Without tables it is the number of finished measurements; of costs alone, the number of models.
    """
    record = evaluation.summary
    if record.is_empty:
        finished = sum(cell.status == FINISHED for cell in evaluation.cells)
        return counted(finished, "finished measurement")
    if not record.columns:
        costs = record.costs or studies.Costs()
        return f"costs of {counted(len(costs.models), 'model')}"

    key, title = main_figure(record)
    scores = []
    for model in record.models:
        figure = model.figures.get(key)
        if figure is not None and not is_meaningless(key, model):
            scores.append(f"{name_of(model)} {rounded(figure.mean, 1)}")
    if not scores:
        return ""
    hidden = len(scores) - MOST_HIGHLIGHTS
    further = f" and {hidden} more" if hidden > 0 else ""
    return f"{title}: {', '.join(scores[:MOST_HIGHLIGHTS])}{further}"


@highlights(EvaluationFolder)
def evaluation_highlights(evaluation: EvaluationFolder) -> Iterator[Highlight]:
    """Yield the main figure of each model, with its interval and its share of the first model's."""
    record = evaluation.summary
    if not record.models or not record.columns:
        return
    key, title = main_figure(record)
    for model in record.models:
        figure = model.figures.get(key)
        if figure is None:
            continue
        label = f"{title} of {name_of(model)}"
        if is_meaningless(key, model):
            yield Highlight(NOTHING, label, f"{rounded(figure.mean, 1)} is {meaningless_words(key, [model])}")
        else:
            yield Highlight(rounded(figure.mean, 1), label, "; ".join(_details_of_score(record, model, key)))


def _details_of_score(record: studies.Evaluation, model: studies.EvaluatedModel, key: str) -> Iterator[str]:
    """Yield the interval of a model's score, and its share of the first model's score.

    Args:
        record: The summary of the evaluation.
        model: The model, which has this score.
        key: The key of a column or an average.
    """
    ends = interval_of(key, model)
    if ends is not None:
        yield f"95 %: {interval(ends)}"
    first = record.models[0]
    share = share_kept(key, model, first)
    if model is not first and share is not None:
        yield f"{share:.1f} % of {name_of(first)}"


@facts(EvaluationFolder)
def evaluation_facts(evaluation: EvaluationFolder) -> Iterator[str]:
    """Yield the unit of the highlights, the number of models that have none, and cautions."""
    record = evaluation.summary
    if not record.models or not record.columns:
        return
    key, _ = main_figure(record)
    yield "Scores are in percent."
    # Every model with the main figure has a highlight, and a page shows the first of them.
    highlight_count = sum(model.figures.get(key) is not None for model in record.models)
    left_out = highlight_count - MOST_HIGHLIGHTS
    if left_out > 0:
        yield f"{counted(left_out, 'more model')} in the table."
    failed = sum(cell.status != FINISHED for cell in evaluation.cells)
    if failed:
        yield f"{counted(failed, 'measurement')} failed."
    has_one_seed = not has_several_runs(record) and not is_untrained(record)
    if has_one_seed and len(record.models) > 1:
        yield f"{ONE_RUN.capitalize()} the order of models may be due to chance."


@section(EvaluationFolder, "Overview")
def overview(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show models, tasks and protocol, and warnings."""
    # Cells name a model by its folder or name on the Hub, tables by its title. Each model and task is named once, in
    # the order of the cells: a dictionary keeps that order.
    title_by_name = {model.name: name_of(model) for model in evaluation.summary.models}
    models: dict[str, None] = {}
    tasks: dict[str, None] = {}
    for cell in evaluation.cells:
        models[title_by_name.get(cell.model, short_model_name(cell.model))] = None
        tasks[cell.task] = None
    request = evaluation.request
    subjects = {"Models": ", ".join(models) or "none", "Tasks": ", ".join(tasks) or "none"}
    # The settings that the user changed, such as `max_train_rows=1000`.
    settings = list(request.overrides)
    is_scored_as_is = request.as_is or is_untrained(evaluation.summary)
    if is_scored_as_is:
        subjects["Training"] = "none: the models were scored as they are"
    # Without a table, nothing says whether a later cell is fine-tuned: the page then speaks of no training at all.
    if not is_scored_as_is and not _has_only_untrained_cells(evaluation):
        # The protocol of a fine-tuning is a preset with these settings.
        protocol = [text for text in (request.preset, *settings) if text]
        subjects["Protocol"] = ", ".join(protocol) or "not recorded"
    elif settings:
        subjects["Settings"] = ", ".join(settings)
    yield Facts(tuple(subjects.items()))

    warnings = list(evaluation.problems)
    if evaluation.is_running:
        yield Notes(("The evaluation is running. When it is finished, make this report again to see its table.",))
    elif evaluation.summary.is_empty:
        warnings.append(
            "The evaluation is not finished, and there is no table yet. To finish the evaluation, repeat the command "
            "that began it, `limbeck evaluate` or `limbeck finetune`."
        )
    failed = [cell for cell in evaluation.cells if cell.status != FINISHED]
    warnings += [f"A measurement failed: {cell.model} on {cell.task}: {cell.error or ''}" for cell in failed]
    yield first_warnings(warnings)


def _has_only_untrained_cells(evaluation: EvaluationFolder) -> bool:
    """Return whether an evaluation without a table has cells, and none of them so far is a fine-tuning."""
    if not evaluation.summary.is_empty or not evaluation.cells:
        return False
    return not any("learning_rate" in cell.settings for cell in evaluation.cells)


@section(EvaluationFolder, "Scores")
def scores(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show the main table, its main figure with intervals and against latency, and published rows."""
    record = evaluation.summary
    # An evaluation that is not finished has no tables yet.
    if record.is_empty:
        return
    if not record.columns:
        yield Notes(("No task was evaluated.",))
        return
    if has_several_runs(record):
        certainty = "± is the standard deviation over seeds"
    elif is_untrained(record):
        certainty = "models as they are"
    else:
        certainty = f"{ONE_RUN} differences may be due to chance"
    yield scores_table(record, f"Scores in percent; {certainty}")
    yield Notes(tuple(reading_notes(record)))
    yield from _quality(record, record.costs or studies.Costs())
    published = published_table(record)
    if published is not None:
        yield published


def _quality(record: studies.Evaluation, costs: studies.Costs) -> Iterator[Block]:
    """Draw the main figure of each model that has it, also against latency; a meaningless one is not drawn."""
    key, title = main_figure(record)
    models = []
    for model in record.models:
        figure = model.figures.get(key)
        if figure is not None and not is_meaningless(key, model):
            latency = costs.latency(model.name)
            models.append(MeasuredModel(name_of(model), figure.mean, interval_of(key, model), latency))
    # With one run of each model, chance may decide which models are on the Pareto front, so it is not drawn.
    has_front = has_several_runs(record)
    yield from quality_rows(models, f"{title}, percent")
    yield from quality_against_latency(models, f"{title}, percent", conditions_of(costs), front=has_front)


@section(EvaluationFolder, "Cost")
def cost(evaluation: EvaluationFolder) -> Iterable[Block]:
    """Show sizes and speed, where they were measured."""
    return cost_blocks(evaluation.summary.costs)


@section(EvaluationFolder, "All metrics")
def all_metrics(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show every metric, and the grid points that were chosen."""
    table = metrics_table(evaluation.summary)
    if table.rows:
        yield table.with_words("Metric")
        yield Notes(tuple(chosen_lines(evaluation.summary)))


@section(EvaluationFolder, "Cells")
def cells(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show the cells of an evaluation that is not finished."""
    if not evaluation.summary.is_empty:
        return
    rows: list[tuple[AnyCell, ...]] = []
    for cell in evaluation.cells[:_MOST_CELLS]:
        # The scores of a cell are shares from 0 to 1, by split and metric.
        figures = []
        for score_by_metric in cell.scores.values():
            for metric, score in score_by_metric.items():
                if score is not None:
                    figures.append(f"{metric_of_cell(metric, cell)} {rounded(100 * score, 1)}")
        texts = (cell.model, cell.task, str(cell.seed), cell.status, "; ".join(figures))
        rows.append(tuple(text or NOTHING for text in texts))
    headings = ("Model", "Task", "Seed", "Status", "Scores, percent")
    left_out = max(0, len(evaluation.cells) - _MOST_CELLS)
    table = Table("Cells", headings, tuple(rows), left_out=left_out)
    yield table.with_words("Task", "Status", "Scores, percent")


@section(EvaluationFolder, "Notes")
def notes(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Show all notes."""
    yield Notes(tuple(evaluation.summary.notes))


@section(EvaluationFolder, "Provenance")
def provenance(evaluation: EvaluationFolder) -> Iterator[Block]:
    """Describe how the last cell was made, and name what differs between the cells."""
    last_cell = studies.EvaluationCell()
    if evaluation.cells:
        last_cell = evaluation.cells[-1]
    record = records.Made(
        versions=last_cell.versions,
        git_commit=last_cell.commit,
        hardware=records.Hardware(device=last_cell.device),
        updated=last_cell.created,
    )
    yield facts_block(made_by(record, evaluation.folder))
    # The cells differ if the evaluation went on after an update, or on another machine.
    differing = []
    for name in ("versions", "commit", "device"):
        # Values are compared as text, since `versions` is a dictionary, which cannot be in a set.
        different_values = {str(getattr(cell, name)) for cell in evaluation.cells}
        if len(different_values) > 1:
            differing.append(name)
    if differing:
        yield Notes((f"The measurements differ in {', '.join(differing)}; those above are of the last one.",))
