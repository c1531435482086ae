"""Evaluations on tasks: tables for the terminal, Markdown, CSV and JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, records, studies
from limbeck.core.blocks import (
    NOTHING,
    AnyCell,
    Block,
    Cell,
    Layout,
    Notes,
    Paragraph,
    Section,
    Table,
    console,
    counted,
    interval,
    mean,
    to_csv,
)
from limbeck.core.kinds import kind_of
from limbeck.kinds.answer_scores import THRESHOLDS
from limbeck.report.costs import cost_tables
from limbeck.report.costs import costs_table as costs_table
from limbeck.report.names import metric_name
from limbeck.report.output_files import write_forms
from limbeck.report.scores import (
    csv_rows,
    interval_note,
    interval_of,
    name_of,
    only_answer_notes,
    published_cells,
    score_cells,
    score_headings,
    share_kept,
)

Summary: TypeAlias = Mapping[str, Any] | studies.Evaluation
"""The tables of an evaluation, typed or as plain values."""
STEM = "evaluation_table"
_MOST_PUBLISHED_ON_CONSOLE = 6
_LAYOUT = Layout(cut=30, narrowest=11)
"""Of tables with many tasks: their columns are shown in blocks that fit the width of a console."""
_CSV_COLUMNS = ("source", "model", "column", "metric", "mean", "deviation", "runs", "low", "high", "retention")


def scores_table(summary: studies.Evaluation, caption: str = "") -> Table:
    """Lay out the main table: tasks as columns, models as rows, averages last."""
    headings = score_headings(summary.columns, summary.models)
    rows: list[tuple[AnyCell, ...]] = []
    strong = []
    faint = []
    # A model has up to three rows: scores, intervals, and shares of the first model.
    for model in summary.models:
        strong.append(len(rows))
        rows.append((Cell(name_of(model), mark="bold"), *score_cells(headings, model)))
        intervals = [interval_of(key, model) for key in headings]
        if any(ends is not None for ends in intervals):
            faint.append(len(rows))
            rows.append((Cell("↳ 95 %", mark="italic"), *map(interval, intervals)))
        if model.retention:
            faint.append(len(rows))
            first = summary.models[0]
            shares = [Cell(share_kept(key, model, first), "{:.1f} %") for key in headings]
            rows.append((Cell(f"↳ % of {name_of(first)}", mark="italic"), *shares))
    return Table(
        caption=caption,
        headings=("", *headings.values()),
        rows=tuple(rows),
        words=(0,),
        strong=tuple(strong),
        faint=tuple(faint),
        layout=_LAYOUT,
    )


def published_table(summary: studies.Evaluation) -> Table | None:
    """Lay out the rows that papers published, those with the most figures first; None where there are none."""
    if not summary.published:
        return None
    headings = score_headings(summary.columns, summary.models)
    rows = [tuple(published_cells(headings, row)) for row in summary.published]
    rows.sort(key=lambda cells: sum(str(cell) == NOTHING for cell in cells))
    return Table(
        caption="Published results for models of the same shapes",
        headings=("", *headings.values()),
        rows=tuple(rows),
        words=(0,),
        folded=True,
        layout=_LAYOUT,
    )


def metrics_table(summary: studies.Evaluation) -> Table:
    """Lay out every metric of every column, a figure of each model."""
    rows: list[tuple[AnyCell, ...]] = []
    for column in summary.columns:
        figures = [model.columns.get(column.key) for model in summary.models]
        # Models of different runs may have different metrics; each stands once.
        metrics = dict.fromkeys(metric for figure in figures if figure is not None for metric in figure.metrics)
        for metric in metrics:
            digits = digits_of(metric, column)
            cells = [mean(None if figure is None else figure.metrics.get(metric), digits) for figure in figures]
            rows.append((column.title, metric_name(metric), *cells))
    names = [name_of(model) for model in summary.models]
    caption = f"All metrics, in percent{units_of_thresholds(summary)}"
    return Table(caption, ("", "Metric", *names), tuple(rows), words=(0,))


def digits_of(metric: str, column: studies.Column) -> int:
    """Return the number of decimals of a metric: three of a threshold that is a probability, one of the rest."""
    # Thresholds of tasks with several labels a row are probabilities; those of answers are score differences.
    is_probability = metric.endswith(THRESHOLDS) and kind_of(column.kind).has_several
    return 3 if is_probability else 1


def units_of_thresholds(summary: studies.Evaluation) -> str:
    """Return the units of thresholds, to follow "in percent"; empty where there are no thresholds."""
    units: dict[str, None] = {}
    for column in summary.columns:
        for model in summary.models:
            figure = model.columns.get(column.key)
            if figure is not None and any(metric.endswith(THRESHOLDS) for metric in figure.metrics):
                has_several = kind_of(column.kind).has_several
                units["probabilities" if has_several else "score differences"] = None
    return f"; thresholds are {' or '.join(units)}" if units else ""


def chosen_lines(summary: studies.Evaluation) -> Iterator[str]:
    """Yield the grid point that stands for each model on each task."""
    for model in summary.models:
        for task, choice in model.chosen.items():
            yield f"{name_of(model)}, {task}: {_describe_choice(choice)}"


def _describe_choice(choice: studies.ChosenPoint) -> str:
    # Models that are scored as they are have a length alone.
    settings = choice.settings
    if "learning_rate" not in settings:
        return f"nothing trained, {settings['length']} tokens"
    epochs = "epoch" if settings["epochs"] == 1 else "epochs"
    runs = counted(choice.runs, "run")
    if choice.runs < choice.wanted:
        runs = f"{choice.runs} of {choice.wanted} runs"
    weights = f"; the best run is kept in {choice.weights}" if choice.weights else ""
    return (
        f"learning rate {settings['learning_rate']:g}, {settings['epochs']:g} {epochs}, batch "
        f"{settings['batch_size']}, {settings['length']} tokens, {runs}, best of "
        f"{counted(choice.points, 'grid point')}{weights}"
    )


def evaluation_blocks(summary: Summary, costs: Mapping[str, Any] | studies.Costs | None = None) -> list[Block]:
    """Return the main table, its notes in short, and the tables of costs as blocks.

    Of the published rows those with the most figures are shown; the files have them all, and every note.
    """
    record = studies.Evaluation.read(summary)
    blocks: list[Block] = []
    if record.columns:
        blocks += _score_blocks(record)
    if costs is not None:
        blocks += cost_tables(studies.Costs.read(costs))
    return blocks


def _score_blocks(record: studies.Evaluation) -> list[Block]:
    blocks: list[Block] = [scores_table(record, _title(record))]
    notes = []
    published = published_table(record)
    if published is not None:
        blocks.append(replace(published, rows=published.rows[:_MOST_PUBLISHED_ON_CONSOLE]))
        hidden = len(published.rows) - _MOST_PUBLISHED_ON_CONSOLE
        if hidden > 0:
            notes.append(f"The saved table has {counted(hidden, 'more published row')}.")
    notes += reading_notes(record)
    notes += record.notes_in_short
    if len(record.notes_in_short) < len(record.notes):
        notes.append(f"All {len(record.notes)} notes are in the saved table.")
    return [*blocks, Notes(tuple(notes))]


def evaluation_table(summary: Summary) -> RenderableType:
    """Return the main table for the terminal, with its notes in short below it."""
    return console(*_score_blocks(studies.Evaluation.read(summary)))


def reading_notes(summary: studies.Evaluation) -> list[str]:
    """Return the notes on meaningless scores, and on the samples behind the intervals."""
    return [*only_answer_notes(summary), *interval_note(summary.models)]


def evaluation_markdown(summary: Summary, costs: Mapping[str, Any] | studies.Costs | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.benchmark.costs.measure_costs` gives them.
    """
    record = studies.Evaluation.read(summary)
    sections = []
    if record.columns:
        sections.append(Section("", (Paragraph(f"# {_title(record)}"), scores_table(record))))
        published = published_table(record)
        if published is not None:
            sections.append(Section(published.caption, (published,)))
        sections.append(Section("All metrics", (metrics_table(record),)))
        sections.append(Section("Grid points", (Notes(tuple(chosen_lines(record))),)))
    if costs is not None:
        tables = cost_tables(studies.Costs.read(costs))
        sections += [Section(table.caption, (table,)) for table in tables]
    notes = (*reading_notes(record), *record.notes)
    return markdown.markdown_file("", [*sections, Section("Notes", (Notes(notes),))])


def evaluation_csv(summary: Summary) -> str:
    """Return every figure on a separate line, unrounded, with the share of the first model's score."""
    record = studies.Evaluation.read(summary)
    rows: list[dict[str, Any]] = []
    for model in record.models:
        names = {"source": "measured", "model": name_of(model)}
        rows += [{**names, "column": row["key"], **row} for row in csv_rows(record.columns, model)]
    # Papers print one metric a task: the main one.
    metrics = {column.key: column.metric for column in record.columns}
    for paper in record.published:
        source = f"{paper.paper} table {paper.table}"
        model_name = f"{paper.model} {paper.shape}"
        for key, value in paper.columns.items():
            row = {"source": source, "model": model_name, "column": key, "metric": metrics[key], "mean": value}
            rows.append(row)
    return to_csv(_CSV_COLUMNS, rows)


def write_evaluation(
    summary: Summary, folder: Path, costs: Mapping[str, Any] | studies.Costs | None = None
) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: Of the models, where they were measured.

    Returns:
        The files.
    """
    values = studies.Evaluation.read(summary).to_dict()
    if costs is not None:
        values["costs"] = records.plain(costs)
    texts = {
        ".md": evaluation_markdown(summary, costs),
        ".csv": evaluation_csv(summary),
        ".json": records.text_of(values),
    }
    return write_forms(folder, STEM, texts)


def has_several_runs(summary: studies.Evaluation) -> bool:
    """Return whether a score is a mean over seeds."""
    return any(len(figure.runs) > 1 for model in summary.models for figure in model.columns.values())


def is_untrained(summary: studies.Evaluation) -> bool:
    """Return whether models were scored as they are, without any seed."""
    if summary.as_is:
        return True
    return bool(summary.columns) and all(kind_of(column.kind).of_vectors for column in summary.columns)


def _title(summary: studies.Evaluation) -> str:
    average = f", averaged as in {summary.average}" if summary.average else ""
    if summary.as_is:
        protocol = "Models as they are, with the metrics and lengths of"
    elif is_untrained(summary):
        return f"Sentence vectors of models as they are{average}, in percent"
    else:
        protocol = "Fine-tuned with"
    return f"{protocol} the preset '{summary.preset}'{average}, in percent"
