"""The tables of an evaluation on tasks: main scores, published rows, all metrics, and the chosen grid points.

A *column* is a task with its main metric. Figures are means over seeds, in percent. A *threshold* is one of the metrics
of some tasks: the value from which on a label, or the absence of an answer, is predicted. A *grid point* is one setting
of learning rate, epochs and batch size; of those that were tried, the best one stands for a model.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Cell, Layout, Table, counted, interval, mean
from limbeck.core.kinds import kind_of
from limbeck.evaluation.tasks.registry import evaluator_named
from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX
from limbeck.report.names import metric_of_column
from limbeck.report.scores import (
    guesser_cells,
    interval_note,
    interval_of,
    name_of,
    only_answer_notes,
    published_cells,
    score_cells,
    score_headings,
    share_kept,
)

_LAYOUT = Layout(cut=True, label_width=30, narrowest=11)
"""Layout of tables with many tasks: a console shows their columns in blocks that fit its width."""


def scores_table(summary: studies.Evaluation, caption: str = "") -> Table:
    """Lay out the main table: tasks as columns, models as rows, averages last."""
    headings = score_headings(summary.columns, summary.models)
    rows: list[tuple[AnyCell, ...]] = []
    # The indices of the rows that are shown strong or faint; `len(rows)` is the index of the next row.
    strong = []
    faint = []
    # A model has up to three rows: scores, their intervals, and their shares of the first model's scores.
    for model in summary.models:
        strong.append(len(rows))
        rows.append((Cell(name_of(model), mark="bold"), *score_cells(headings, model)))
        intervals = [interval_of(key, model) for key in headings]
        has_intervals = any(ends is not None for ends in intervals)
        if has_intervals:
            faint.append(len(rows))
            rows.append((Cell("↳ 95 %", mark="italic"), *map(interval, intervals)))
        if model.retention:
            faint.append(len(rows))
            first = summary.models[0]
            shares = [Cell(share_kept(key, model, first), "{:.1f} %") for key in headings]
            rows.append((Cell(f"↳ % of {name_of(first)}", mark="italic"), *shares))
    # The guessers come last, beside which the scores above are read.
    for cells in guesser_cells(headings, summary.columns, summary.models):
        faint.append(len(rows))
        rows.append(tuple(cells))
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
    # Rows with the fewest blank cells come first.
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
    """Lay out a row for each metric of each column, with the figure of each model."""
    rows: list[tuple[AnyCell, ...]] = []
    for column in summary.columns:
        figures_of_models = []
        # Models of different runs may have different metrics. A dictionary names each once, in the order of coming.
        metrics: dict[str, None] = {}
        for model in summary.models:
            column_figure = model.columns.get(column.key)
            figures = {} if column_figure is None else column_figure.metrics
            figures_of_models.append(figures)
            metrics |= dict.fromkeys(figures)
        for metric in metrics:
            digits = metric_digits(metric, column)
            cells = [mean(figures.get(metric), digits) for figures in figures_of_models]
            rows.append((column.title, metric_of_column(metric, column), *cells))
    names = [name_of(model) for model in summary.models]
    caption = f"All metrics, in percent{units_of_thresholds(summary)}"
    return Table(caption, ("", "Metric", *names), tuple(rows), words=(0,))


def metric_digits(metric: str, column: studies.Column) -> int:
    """Return the number of decimals of a metric: three for a threshold that is a probability, one for all others."""
    # Tasks with several labels for each row predict a label from a threshold of its probability on.
    is_probability = metric.endswith(THRESHOLD_SUFFIX) and kind_of(column.kind).has_several
    return 3 if is_probability else 1


def units_of_thresholds(summary: studies.Evaluation) -> str:
    """Return the end of a caption that says "in percent", with the units of thresholds; empty without thresholds."""
    units: list[str] = []
    for column in summary.columns:
        # Thresholds of tasks with several labels for each row are probabilities. Those of questions are differences
        # between the score of the best answer and that of no answer.
        unit = "probabilities" if kind_of(column.kind).has_several else "score differences"
        for model in summary.models:
            figure = model.columns.get(column.key)
            metrics = {} if figure is None else figure.metrics
            has_threshold = any(metric.endswith(THRESHOLD_SUFFIX) for metric in metrics)
            if has_threshold and unit not in units:
                units.append(unit)
    if not units:
        return ""
    return f"; thresholds are {' or '.join(units)}"


def reading_notes(summary: studies.Evaluation) -> list[str]:
    """Return the notes on meaningless scores, the samples behind the intervals, and shares of another's scores."""
    return [*only_answer_notes(summary), *interval_note(summary.models), *_share_note(summary)]


def _share_note(summary: studies.Evaluation) -> Iterator[str]:
    """Yield the note that a share does not show what a training gave, if the table has shares."""
    if not any(model.retention for model in summary.models):
        return
    note = (
        "A student without training keeps a share of its teacher's scores too. To see what the training gave, make "
        "such a student with `limbeck distill --steps 0`, which copies layers of the teacher and fits them to your "
        "text or rows. Then evaluate it too, as another model."
    )
    if summary.as_is:
        note += " A run that scores development rows has the score of an untrained start in its own table."
    yield note


def chosen_lines(summary: studies.Evaluation) -> Iterator[str]:
    """Yield a line for each model and task, with the grid point that was chosen for the scores."""
    for model in summary.models:
        for task, choice in model.chosen.items():
            yield f"{name_of(model)}, {task}: {_describe_choice(task, choice)}"


def _describe_choice(task: str, choice: studies.ChosenPoint) -> str:
    """Return the settings of a chosen grid point, the number of its runs, and the folder of the weights if kept.

    Args:
        task: Name of the task.
        choice: The grid point.
    """
    settings = choice.settings
    # Models that are scored without fine-tuning have no setting but the length of texts. They lack that too where
    # another evaluator than limbeck's own scores them.
    is_fine_tuned = "learning_rate" in settings
    if not is_fine_tuned:
        if "length" in settings:
            return f"nothing trained, {_length_read(task, settings)} tokens"
        return "nothing trained"

    epochs = "epoch" if settings["epochs"] == 1 else "epochs"
    runs = counted(choice.runs, "run")
    if choice.runs < choice.wanted:
        runs = f"{choice.runs} of {choice.wanted} runs"
    line = (
        f"learning rate {settings['learning_rate']:g}, {settings['epochs']:g} {epochs}, batch "
        f"{settings['batch_size']}, {settings['length']} tokens, {runs}, best of {counted(choice.points, 'grid point')}"
    )
    if choice.weights:
        line += f"; the best run is kept in {choice.weights}"
    return line


def _length_read(task: str, settings: Mapping[str, Any]) -> Any:
    """Return the most tokens of a text that a model reads; of a model that is two, those of a query.

    Args:
        task: Name of the task.
        settings: Settings of the grid point.
    """
    reader_lengths = settings.get("reader_lengths")
    # Points of other evaluators, such as mteb, have the length of the first reader in `length`.
    is_limbecks = evaluator_named(task) is None
    if is_limbecks and isinstance(reader_lengths, list) and reader_lengths:
        return reader_lengths[0]
    return settings["length"]


def has_several_runs(summary: studies.Evaluation) -> bool:
    """Return whether a score is a mean over seeds."""
    return any(len(figure.runs) > 1 for model in summary.models for figure in model.columns.values())


def is_untrained(summary: studies.Evaluation) -> bool:
    """Return whether all models were scored without fine-tuning, and so without seeds."""
    if summary.as_is:
        return True
    for model in summary.models:
        if any("learning_rate" in choice.settings for choice in model.chosen.values()):
            return False
    # Where every cell failed, the kinds of the tasks tell: nothing is trained for those without a head, such as
    # similarity, nor for those of other evaluators than limbeck's own.
    return bool(summary.columns) and all(kind_of(column.kind).head is None for column in summary.columns)


def is_of_vectors(summary: studies.Evaluation) -> bool:
    """Return whether all tasks compare sentence vectors."""
    return all(kind_of(column.kind).of_vectors for column in summary.columns)
