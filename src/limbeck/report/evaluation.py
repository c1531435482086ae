"""Evaluations on tasks and costs of models: tables for the terminal and files, and the sections of a report."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from limbeck.core import blocks, markdown, records, studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Notes, Section, Table, counted
from limbeck.core.kinds import kind_of
from limbeck.core.paths import short_model_name
from limbeck.core.studies import FINISHED
from limbeck.evaluation.metrics import THRESHOLDS
from limbeck.report.certainty import (
    ONE_ANSWER,
    ONE_RUN,
    interval_cells,
    interval_note,
    is_meaningless,
    name_of,
    only_answer_notes,
    over_runs,
    share_kept,
)
from limbeck.report.figures import bars_figure, bars_of, measured, quality_figures
from limbeck.report.findings import EvaluationFound
from limbeck.report.plots import BarGroup
from limbeck.report.quality import metric_name, write_forms
from limbeck.report.run import provenance_blocks

STEM = "evaluation_table"
_PAPERS = {
    "minilm": "MiniLM",
    "minilmv2": "MiniLMv2",
    "elm": "ELM",
    "mlkd_bert": "MLKD-BERT",
    "comparative_study": "Comparative study",
}
_COMPUTED = " †"
"""After an average of published figures that is not printed in their paper."""
_AVERAGES = {"average": "Average", "without_cola": "without CoLA"}
_SPLITS = {"development": ", dev", "test": ", test"}
_PUBLISHED_ON_CONSOLE = 6
_INTERVAL = "  95 %"
_MOST_CELLS = 100


# Tables of scores: tasks as columns, then averages, by their keys.


def score_headings(columns: Sequence[studies.Column], models: Sequence[studies.Scores]) -> dict[str, str]:
    """Head the columns that are shown: all but details, and averages of any model.

    Returns:
        The headings by key, with the metric, or the number of tasks, in the second line.
    """
    headings = {one.key: f"{one.title}\n{metric_name(one.metric)}" for one in columns if not one.detail}
    for key, title in _AVERAGES.items():
        if found := [average for model in models if (average := model.averages.by_name[key])]:
            counts = "–".join(str(count) for count in sorted({len(average.of) for average in found}))
            only = "" if all(average.complete for average in found) else " only"
            headings[key] = f"{title}\nof {counts}{only}"
    return headings


def score_cells(keys: Iterable[str], model: studies.Scores) -> Iterator[Cell]:
    """Go through the scores and averages of a model; those with a single answer to all rows are marked."""
    figures = model.figures
    for key in keys:
        cell = blocks.mean(figures.get(key))
        yield Cell(f"{cell}{ONE_ANSWER}") if is_meaningless(key, model) else cell


def main_figure(summary: studies.Evaluation) -> tuple[str, str]:
    """Return key and title of the first average, else score, that models have."""
    titles = {"without_cola": "average without CoLA", "average": "average"}
    titles |= {one.key: f"{one.title} ({metric_name(one.metric)})" for one in summary.columns if not one.detail}
    known = (key for key in titles if any(model.figures.get(key) is not None for model in summary.models))
    key = next(known, next(iter(titles)))
    return key, titles[key]


def published_cells(keys: Iterable[str], row: studies.PublishedScores) -> Iterator[AnyCell]:
    """Go through the label and the scores of a row that a paper published."""
    of = f" from {row.teacher}" if row.teacher else ""
    of += f", distilled on the {row.distilled}" if row.distilled else ""
    yield f"{row.model}{of}, {row.shape} ({_PAPERS[row.paper]}, table {row.table}{_SPLITS.get(row.split, '')})"
    scores = row.columns | {key: getattr(row, key) for key in _AVERAGES}
    for key in keys:
        cell = Cell(scores.get(key), "{:.1f}")
        yield Cell(f"{cell}{_COMPUTED}") if key in row.computed else cell


def scores_table(summary: studies.Evaluation) -> Table:
    """Lay out the main table: tasks as columns, models as rows, averages last, then published rows."""
    headings = score_headings(summary.columns, summary.models)
    rows: list[tuple[AnyCell, ...]] = []
    strong, faint = [], []
    for model in summary.models:
        strong.append(len(rows))
        rows.append((Cell(name_of(model), mark="bold"), *score_cells(headings, model)))
        ends = interval_cells(headings, model)
        if any(cell.value is not None for cell in ends):
            faint.append(len(rows))
            rows.append((Cell(_INTERVAL, mark="italic"), *ends))
        if model.retention:
            faint.append(len(rows))
            kept = (Cell(share_kept(key, model, summary.models[0]), "{:.1f} %") for key in headings)
            rows.append((Cell(f"  % of {name_of(summary.models[0])}", mark="italic"), *kept))
    published = range(len(rows), len(rows) + len(summary.published))
    rows += (tuple(published_cells(headings, row)) for row in summary.published)
    layout = blocks.Layout(cut=30, narrowest=11, apart=True)
    marked = tuple(strong), tuple(faint), tuple(published)
    return Table("", ("", *headings.values()), tuple(rows), (0,), *marked, layout=layout)


def digits_of(metric: str, column: studies.Column) -> int:
    """Return how many digits a metric is printed with: three of a probability, one of percent and scores."""
    return 3 if metric.endswith(THRESHOLDS) and kind_of(column.kind).has_several else 1


def units_of_thresholds(summary: studies.Evaluation) -> str:
    """Return what thresholds are, to follow "in percent"; empty where there are none."""
    of_columns = ((column, model.columns.get(column.key)) for column in summary.columns for model in summary.models)
    found = {
        "probabilities" if kind_of(column.kind).has_several else "score differences": None
        for column, figure in of_columns
        if figure is not None and any(metric.endswith(THRESHOLDS) for metric in figure.metrics)
    }
    return f"; thresholds are {' or '.join(found)}" if found else ""


def metrics_table(summary: studies.Evaluation) -> Table:
    """Lay out every metric of every column, a figure of each model."""
    rows: list[tuple[AnyCell, ...]] = []
    for column in summary.columns:
        cells = [model.columns.get(column.key) for model in summary.models]
        for metric in dict.fromkeys(metric for cell in cells if cell for metric in cell.metrics):
            figures = (
                blocks.mean(cell.metrics.get(metric) if cell else None, digits_of(metric, column)) for cell in cells
            )
            rows.append((column.title, metric_name(metric), *figures))
    names = map(name_of, summary.models)
    other = units_of_thresholds(summary)
    return Table(f"All metrics, in percent{other}", ("", "Metric", *names), tuple(rows), words=(0,))


def chosen_lines(summary: studies.Evaluation) -> Iterator[str]:
    """Name the grid point that stands for each model on each task."""
    for model in summary.models:
        name = name_of(model)
        for task, choice in model.chosen.items():
            settings, points = choice.settings, choice.points
            of = f" of {choice.wanted}" if choice.runs < choice.wanted else ""
            runs = f"{choice.runs}{of} run{'' if choice.runs == 1 and not of else 's'}"
            if "learning_rate" not in settings:
                yield f"{name}, {task}: nothing trained, {settings['length']} tokens"
                continue
            yield (
                f"{name}, {task}: learning rate {settings['learning_rate']:g}, {settings['epochs']:g} "
                f"epoch{'' if settings['epochs'] == 1 else 's'}, batch {settings['batch_size']}, "
                f"{settings['length']} tokens, {runs}, best of {counted(points, 'grid point')}"
                + (f"; the best run is kept in {choice.weights}" if choice.weights else "")
            )


# The costs of models, as MiniLM's table 4 and MLKD-BERT's table 3 have them.


def title_of(costs: studies.Costs, model: str) -> str:
    """Return what tables call a model whose costs were measured."""
    return next((row.title for row in costs.models if row.model == model and row.title), short_model_name(model))


def cost_tables(costs: studies.Costs) -> Iterator[Table]:
    """Lay out sizes, speed, and the speeds that papers published of models of the same shapes."""
    layout = blocks.Layout(whole_from=2)
    lengths = list(costs.models[0].megaflops_per_token)
    sizes: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            title_of(costs, model.model),
            model.shape,
            *(
                Cell(None if count is None else count / 1e6, "{:.2f}")
                for count in (model.embedding_parameters, model.transformer_parameters, model.parameters)
            ),
            Cell(model.megabytes, "{:.1f}"),
            *(Cell(model.megaflops_per_token[length], "{:.1f}") for length in lengths),
        )
        for model in costs.models
    )
    flops = [f"Mflop per token, {length} tokens" for length in lengths]
    headings = ("", "Shape", "Embedding (M)", "Transformer (M)", "Total (M)", "Weights (MB)", *flops)
    yield Table("Size", headings, sizes, words=(0,), layout=layout)
    speeds: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            title_of(costs, row.model),
            str(row.batch),
            str(row.length),
            Cell(row.median_ms, "{:.2f}"),
            f"{row.p10_ms:.2f}–{row.p90_ms:.2f}",
            Cell(row.sentences_per_second, "{:.0f}"),
            Cell(row.tokens_per_second, "{:.0f}"),
            Cell(row.speedup, "{:.2f}x"),
        )
        for row in costs.timings
    )
    headings = ("", "Batch", "Tokens", "Median (ms)", "10th–90th (ms)", "Sentences per s", "Tokens per s", "Speedup")
    yield Table(f"Speed on {costs.machine['device']}", headings, speeds, words=(0,), layout=layout)
    # Nobody asks for the figures that papers have of the first model's shape alone: the others are compared with it.
    compared = {model.shape.split(",")[0].split()[-1] for model in costs.models[1:] or costs.models}
    groups: dict[str, list[studies.PublishedCost]] = {}
    for row in costs.published:
        groups.setdefault(f"{_PAPERS[row.paper]}, table {row.table} ({row.device})", []).append(row)
    for title, rows in groups.items():
        if any(row.shape in compared for row in rows):
            tasks = ["Texts from"] if any(row.task for row in rows) else []
            cells = (
                (
                    row.shape,
                    *(row.task or NOTHING for _ in tasks),
                    *(f"{row.values[name]:g}" for name in rows[0].values),
                )
                for row in rows
            )
            yield Table(title, ("", *tasks, *rows[0].values), tuple(cells), words=(0,), layout=layout)


# The forms of the tables: for the terminal, Markdown, CSV and JSON.


def evaluation_table(summary: Mapping[str, Any]) -> RenderableType:
    """Return the main table for the terminal, with its notes in short below it.

    Of the published rows those with the most columns are shown; the files have them all, and every note.
    """
    record = studies.Evaluation.read(summary)
    table = scores_table(record)
    fullest = sorted(table.published, key=lambda index: sum(str(cell) == NOTHING for cell in table.rows[index]))
    hidden = fullest[_PUBLISHED_ON_CONSOLE:]
    rows = tuple(row for index, row in enumerate(table.rows) if index not in hidden)
    published = tuple(range(len(table.rows) - len(table.published), len(rows)))
    notes = [f"The saved table has {counted(len(hidden), 'more published row')}."] if hidden else []
    notes += _reading(record)
    notes += record.notes_in_short
    if len(record.notes_in_short) < len(record.notes):
        notes.append(f"All {len(record.notes)} notes are in the saved table.")
    shown = replace(table, caption=_title(record), rows=rows, published=published)
    return blocks.console(shown, Notes(tuple(notes)))


def costs_table(costs: Mapping[str, Any]) -> RenderableType:
    """Return the tables of costs for the terminal."""
    return blocks.console(*cost_tables(studies.Costs.read(costs)))


def evaluation_markdown(summary: Mapping[str, Any], costs: Mapping[str, Any] | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.benchmark.model.measure_costs` gives them.
    """
    record = studies.Evaluation.read(summary)
    sections = []
    if record.columns:
        sections = [
            Section("", (blocks.Paragraph(f"# {_title(record)}"), scores_table(record))),
            Section("All metrics", (metrics_table(record),)),
            Section("Grid points", (Notes(tuple(chosen_lines(record))),)),
        ]
    if costs is not None:
        sections += [Section(table.caption, (table,)) for table in cost_tables(studies.Costs.read(costs))]
    return markdown.markdown_file("", [*sections, Section("Notes", (Notes((*_reading(record), *record.notes)),))])


def _reading(summary: studies.Evaluation) -> list[str]:
    """Say how the figures are to be read."""
    return [*only_answer_notes(summary), *interval_note(summary.models)]


def evaluation_csv(summary: Mapping[str, Any]) -> str:
    """Return every figure on a separate line, unrounded, with the share of the first model's score."""
    record = studies.Evaluation.read(summary)
    rows: list[dict[str, Any]] = []
    for model in record.models:
        rows += [{"source": "measured", "model": name_of(model), **row} for row in csv_rows(record.columns, model)]
    metrics = {column.key: column.metric for column in record.columns}
    for paper in record.published:
        named = {"source": f"{paper.paper} table {paper.table}", "model": f"{paper.model} {paper.shape}"}
        rows += [{**named, "key": key, "metric": metrics[key], "mean": mean} for key, mean in paper.columns.items()]
    rows = [{**row, "column": row["key"]} for row in rows]
    columns = ("source", "model", "column", "metric", "mean", "deviation", "runs", "low", "high", "retention")
    return blocks.to_csv(columns, rows)


def csv_rows(columns: Sequence[studies.Column], scores: studies.Scores) -> Iterator[dict[str, Any]]:
    """Go through every metric of every column, then averages; main figures have their share of the first model's."""
    for column in columns:
        cell = scores.columns.get(column.key)
        for metric, found in (cell.metrics if cell else {}).items():
            kept = {}
            if metric == column.metric:
                kept = {"retention": scores.retention.get(column.key)}
                if cell is not None and cell.interval is not None:
                    kept |= dict(zip(("low", "high"), cell.interval, strict=True))
            yield {"key": column.key, "metric": metric, **numbers(found), **kept}
    for name, average in scores.averages.by_name.items():
        if average is not None:
            yield {"key": name, **numbers(average), "retention": scores.retention.get(name)}


def numbers(found: studies.Figure) -> dict[str, Any]:
    """Return a figure as cells of a CSV table."""
    ends = over_runs(found)
    within = {} if ends is None else dict(zip(("low", "high"), ends, strict=True))
    return {"mean": found.mean, "deviation": found.deviation, "runs": len(found.runs), **within}


def write_evaluation(summary: Mapping[str, Any], folder: Path, costs: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: Of the models, where they were measured.

    Returns:
        The files.
    """
    whole = {**summary, **({"costs": costs} if costs is not None else {})}
    texts = {
        ".md": evaluation_markdown(summary, costs),
        ".csv": evaluation_csv(summary),
        ".json": records.text_of(whole),
    }
    return write_forms(folder, STEM, texts)


def has_several_runs(summary: studies.Evaluation) -> bool:
    """Return whether a score is a mean over seeds."""
    return any(len(figure.runs) > 1 for model in summary.models for figure in model.columns.values())


def is_untrained(summary: studies.Evaluation) -> bool:
    """Return whether models were scored as they are, without any seed."""
    columns = summary.columns
    return bool(summary.as_is) or (bool(columns) and all(kind_of(column.kind).of_vectors for column in columns))


def _title(summary: studies.Evaluation) -> str:
    average = f", averaged as in {summary.average}" if summary.average else ""
    what = "Models as they are, with the metrics and lengths of" if summary.as_is else "Fine-tuned with"
    if is_untrained(summary) and not summary.as_is:
        return f"Sentence vectors of models as they are{average}, in percent"
    return f"{what} the preset '{summary.preset}'{average}, in percent"


# The sections of a report: tables, a bar for every model and task, costs, failed cells.


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


def task_bars(
    columns: Sequence[studies.Column], models: Sequence[tuple[str, studies.Scores]]
) -> Iterator[blocks.Figure]:
    """Draw a bar for every model, by its name, and task, with its deviation."""
    groups = [
        BarGroup(f"{column.title} ({metric_name(column.metric)})", bars)
        for column in columns
        if not column.detail and (bars := bars_of((name, model.columns.get(column.key)) for name, model in models))
    ]
    yield from bars_figure("Scores by task", groups, "percent")


def cost_blocks(costs: studies.Costs | None) -> Iterator[Block]:
    """Show sizes and speed, where they were measured."""
    for table in cost_tables(costs) if costs is not None else ():
        yield replace(table, words=(1,))


def value_of(found: studies.Figure | None) -> float | None:
    """Return the mean of a figure, where there is one."""
    return None if found is None else found.mean


def pass_of(costs: studies.Costs) -> str:
    """Describe the pass whose latency was measured first."""
    row = costs.timings[0]
    return f"latency, ms (batch {row.batch}, {row.length} tokens, {costs.machine['device']})"


def _flow(found: EvaluationFound) -> Iterator[Block]:
    titles = {model.name: name_of(model) for model in found.summary.models}
    models = dict.fromkeys(titles.get(cell.model, short_model_name(cell.model)) for cell in found.cells)
    tasks = dict.fromkeys(cell.task for cell in found.cells)
    way = "models as they are" if found.asked.as_is or is_untrained(found.summary) else ""
    asked = [found.asked.preset or "", ", ".join(found.asked.overrides), way]
    protocol = ", ".join(filter(None, asked)) or "not recorded"
    models_and_tasks = ("Models", ", ".join(models) or "none"), ("Tasks", ", ".join(tasks) or "none")
    yield blocks.Steps((*models_and_tasks, ("Protocol", protocol)))
    warnings = [*found.problems]
    if found.summary.is_empty:
        warnings.append(
            "The evaluation is not finished, and there is no table yet. Run the same command to continue it."
        )
    failed = (cell for cell in found.cells if cell.status != FINISHED)
    warnings += [f"A cell failed: {cell.model} on {cell.task}: {cell.error or ''}" for cell in failed]
    yield Notes(tuple(warnings[:20]), warning=True)


def _scores(found: EvaluationFound) -> Iterator[Block]:
    summary, costs = found.summary, found.summary.costs
    if not summary.columns:
        yield from () if summary.is_empty else [Notes(("No task was evaluated.",))]
        return
    table = scores_table(summary)
    name = {index: str(table.rows[index][0]) for index in table.strong}
    name |= {index: f"↳ {str(table.rows[index][0]).strip()}" for index in table.faint}
    several = has_several_runs(summary)
    how = "models as they are" if is_untrained(summary) else f"{ONE_RUN} differences may be due to chance"
    deviation = "± is the standard deviation over seeds"
    table = replace(table, caption=f"Scores in percent; {deviation if several else how}")
    scores, *published = page_tables(table, "Published results for models of the same shapes", name)
    yield scores
    yield Notes(tuple(_reading(summary)))
    models = [(name_of(model), model) for model in summary.models]
    yield from task_bars(summary.columns, models)
    if costs is not None and costs.timings:
        yield from _quality(summary, costs)
    yield from published


def _quality(summary: studies.Evaluation, costs: studies.Costs) -> Iterator[Block]:
    """Draw the main figure of several models whose latency is known."""
    key, title = main_figure(summary)
    lines = (
        (name_of(model), costs.latency(model.name), value_of(model.figures.get(key)), index == 0)
        for index, model in enumerate(summary.models)
    )
    yield from quality_figures(measured(lines), f"{title}, percent", pass_of(costs), front=has_several_runs(summary))


def _details(found: EvaluationFound) -> Iterator[Block]:
    table = metrics_table(found.summary)
    if table.rows:
        headings = ("", "Metric", *map(name_of, found.summary.models))
        yield replace(table, headings=headings, words=(1,))
        yield Notes(tuple(chosen_lines(found.summary)))


def _cells(found: EvaluationFound) -> Iterator[Block]:
    if not found.summary.is_empty:
        return
    rows: list[tuple[AnyCell, ...]] = []
    for cell in found.cells[:_MOST_CELLS]:
        scores = "; ".join(
            f"{metric_name(metric)} {100 * value:.1f}"
            for metrics in cell.scores.values()
            for metric, value in metrics.items()
            if value is not None
        )
        named = (name or NOTHING for name in (cell.model, cell.task, str(cell.seed), cell.status))
        rows.append((*named, scores or cell.error or NOTHING, Cell(cell.seconds, "{:,.0f}")))
    headings = ("Model", "Task", "Seed", "Status", "Scores, percent", "Seconds")
    left_out = max(0, len(found.cells) - _MOST_CELLS)
    yield Table("Cells", headings, tuple(rows), words=(1, 3, 4), left_out=left_out)


def _provenance(found: EvaluationFound) -> Iterator[Block]:
    """Describe the machine of the last cell, and the models and data of all."""
    cell = found.cells[-1] if found.cells else studies.EvaluationCell()
    hardware = records.Hardware(device=cell.device)
    record = records.Made(versions=cell.versions, git_commit=cell.commit, hardware=hardware, updated=cell.created)
    yield from provenance_blocks(record, found.folder)
    rows = dict.fromkeys(("model", cell.model, cell.model_fingerprint or "") for cell in found.cells)
    rows |= dict.fromkeys(("task", cell.task, cell.data_fingerprint or "") for cell in found.cells)
    if known := tuple(row for row in rows if row[2]):
        yield Table("Fingerprints", ("", "Name", "Fingerprint"), known, words=(1, 2))


SECTIONS: dict[str, Callable[[EvaluationFound], Iterable[Block]]] = {
    "Overview": _flow,
    "Scores": _scores,
    "Cost": lambda found: cost_blocks(found.summary.costs),
    "All metrics": _details,
    "Cells": _cells,
    "Notes": lambda found: [Notes(tuple(found.summary.notes))],
    "Provenance": _provenance,
}
"""Of an evaluation; of one that is not finished its cells."""
