"""The tables of an evaluation on tasks: main scores, published rows, all metrics, and the chosen grid points.

A *column* is a task with its main metric. Figures are means over seeds, in percent.
"""

from collections.abc import Iterator

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Cell, Layout, Table, counted, interval, mean
from limbeck.core.kinds import kind_of
from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX
from limbeck.report.names import metric_name
from limbeck.report.scores import (
    interval_note,
    interval_of,
    name_of,
    only_answer_notes,
    published_cells,
    score_cells,
    score_headings,
    share_kept,
)

_LAYOUT = Layout(cut=30, narrowest=11)
"""Of tables with many tasks: their columns are shown in blocks that fit the width of a console."""


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
        metrics_by_model = []
        for model in summary.models:
            figure = model.columns.get(column.key)
            metrics_by_model.append({} if figure is None else figure.metrics)
        # Models of different runs may have different metrics; each stands once.
        for metric in dict.fromkeys(metric for metrics in metrics_by_model for metric in metrics):
            digits = metric_digits(metric, column)
            cells = [mean(metrics.get(metric), digits) for metrics in metrics_by_model]
            rows.append((column.title, metric_name(metric), *cells))
    names = [name_of(model) for model in summary.models]
    caption = f"All metrics, in percent{units_of_thresholds(summary)}"
    return Table(caption, ("", "Metric", *names), tuple(rows), words=(0,))


def metric_digits(metric: str, column: studies.Column) -> int:
    """Return the number of decimals of a metric: three of a threshold that is a probability, one of the rest."""
    is_probability = metric.endswith(THRESHOLD_SUFFIX) and kind_of(column.kind).has_several
    return 3 if is_probability else 1


def units_of_thresholds(summary: studies.Evaluation) -> str:
    """Return the units of thresholds, to follow "in percent"; empty where there are no thresholds."""
    units: list[str] = []
    for column in summary.columns:
        # Thresholds of tasks with several labels a row are probabilities; those of answers are score differences.
        unit = "probabilities" if kind_of(column.kind).has_several else "score differences"
        for model in summary.models:
            figure = model.columns.get(column.key)
            has_threshold = figure is not None and any(metric.endswith(THRESHOLD_SUFFIX) for metric in figure.metrics)
            if has_threshold and unit not in units:
                units.append(unit)
    if not units:
        return ""
    return f"; thresholds are {' or '.join(units)}"


def reading_notes(summary: studies.Evaluation) -> list[str]:
    """Return the notes on meaningless scores, and on the samples behind the intervals."""
    return [*only_answer_notes(summary), *interval_note(summary.models)]


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


def has_several_runs(summary: studies.Evaluation) -> bool:
    """Return whether a score is a mean over seeds."""
    return any(len(figure.runs) > 1 for model in summary.models for figure in model.columns.values())


def is_untrained(summary: studies.Evaluation) -> bool:
    """Return whether models were scored as they are, without any seed."""
    if summary.as_is:
        return True
    return bool(summary.columns) and all(kind_of(column.kind).of_vectors for column in summary.columns)
