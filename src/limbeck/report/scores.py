"""Scores of models on tasks in tables: names, cells, intervals, marks and CSV rows, of evaluations and comparisons.

A *column* of these tables is a task with its main metric; its *key* names it in records, where averages over tasks have
keys too. A *detail* is a column of one part of a task, such as one language, which only the table of all metrics shows.
A score is *meaningless* if the model gives all rows of the task the same answer, be it in one run of several.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from limbeck.core import studies
from limbeck.core.blocks import AnyCell, Cell, mean, rounded
from limbeck.core.intervals import Interval, ends_of, of_mean
from limbeck.core.paths import short_model_name
from limbeck.report.chance import GUESSERS, ONLY_IMITATES, describe_weakness, guesser_of
from limbeck.report.names import metric_of_column

ONE_ANSWER = " ‡"
"""Mark of the score of a model that gives all rows one answer."""
ONE_RUN = "one run each with one seed, so"
"""Beginning of the caution that differences may be due to chance."""
_COMPUTED = " †"
"""Mark of an average that we computed from the figures of a paper, which does not print it."""
_AVERAGES = {"average": "Average", "without_cola": "without CoLA"}
"""Headings of the averages by their keys."""
_SPLITS = {"development": ", dev", "test": ", test"}
"""The splits that papers score on, as the labels of their rows have them."""
PAPERS = {
    "minilm": "MiniLM",
    "minilmv2": "MiniLMv2",
    "elm": "ELM",
    "mlkd_bert": "MLKD-BERT",
    "comparative_study": "Comparative study",
}


def name_of(model: studies.EvaluatedModel) -> str:
    """Return the name of a model in tables."""
    return model.title or short_model_name(model.name)


def is_meaningless(key: str, model: studies.Scores) -> bool:
    """Return whether a score is meaningless, since the model gives all rows of the task the same answer.

    Args:
        key: The key of a column or of an average. An average is meaningless if one of its scores is.
        model: The scores of a model.
    """
    return model.is_meaningless(key)


def meaningless_words(key: str, models: Iterable[studies.Scores]) -> str:
    """Return the reason why the meaningless scores of models are so: `meaningless, since all rows get one answer`.

    Args:
        key: The key of a column or of an average.
        models: The scores of the models.
    """
    phrases = set()
    for model in models:
        for figure in model.column_figures(key):
            if figure.is_meaningless:
                phrases.add(_runs_with_one_answer(figure))
    # An average may be of a task where all runs give one answer, and of another where some do.
    runs = phrases.pop() if len(phrases) == 1 else "in some runs "
    return f"meaningless, since {runs}all rows get one answer"


def one_answer_clause(figure: studies.ColumnFigure) -> str:
    """Return a clause on a meaningless score: `every row gets the same answer ('yes'), so the score is meaningless`.

    Args:
        figure: The score. If some runs of several give one answer, the clause has their number.
    """
    answer = "" if figure.only_answer is None else f" ('{figure.only_answer}')"
    runs = _runs_with_one_answer(figure)
    score = "mean" if runs else "score"
    return f"{runs}every row gets the same answer{answer}, so the {score} is meaningless"


def _runs_with_one_answer(figure: studies.ColumnFigure) -> str:
    """Return the runs that give all rows one answer: `in 1 of 3 runs `, with a blank; empty where all runs do."""
    count, all_runs = figure.meaningless_runs
    if count is None:
        return f"in at least 1 of {all_runs} runs "
    return "" if count == all_runs else f"in {count} of {all_runs} runs "


def share_kept(key: str, model: studies.Scores, teacher: studies.Scores | None) -> float | None:
    """Return a model's share of its teacher's score, in percent.

    There is none where the share is unknown, where either score is meaningless, and where either model is not clearly
    above chance: such a teacher cannot do the task, and a guesser would keep as much as such a student.
    """
    if is_meaningless(key, model) or is_at_chance(key, model):
        return None
    if teacher is not None and (is_meaningless(key, teacher) or is_at_chance(key, teacher)):
        return None
    return model.retention.get(key)


def is_at_chance(key: str, model: studies.Scores) -> bool:
    """Return whether a model's score is not clearly above that of a model that does not read the rows.

    Args:
        key: The key of a column or of an average. An average is at chance if one of its scores is.
        model: The scores of the model.
    """
    for figure in model.column_figures(key):
        # Without an interval, the score is compared as it is.
        lowest = figure.mean
        ends = _interval_of_column(figure)
        if ends is not None:
            lowest, _ = ends
        chance = figure.chance or 0.0  # The record has None where it is 0, and older records have no chance.
        if lowest <= chance:
            return True
    return False


def only_answer_notes(summary: studies.Evaluation) -> list[str]:
    """Return a line for each model and task whose score is meaningless, since all rows get one answer."""
    return one_answer_lines(summary.columns, [(name_of(model), model) for model in summary.models])


def one_answer_lines(columns: Sequence[studies.Column], models: Iterable[tuple[str, studies.Scores]]) -> list[str]:
    """Return a line for each model and task whose score is meaningless, since all rows get one answer.

    Args:
        columns: The columns of the tables.
        models: The scores of each model, after its name.
    """
    lines = []
    for name, model in models:
        for column in columns:
            figure = model.columns.get(column.key)
            # A detail gets no line, since the column that it is a part of has one.
            if column.detail or figure is None or not figure.is_meaningless:
                continue
            lines.append(f"‡ {name} on {column.title}: {one_answer_clause(figure)}.")
    return lines


def weak_score_notes(summary: studies.Evaluation) -> list[str]:
    """Return a line for each task of a fine-tuned model whose main score is weak: a model with it is no teacher.

    The rule is that of a teacher's score in a distillation, see `describe_weakness`.

    Args:
        summary: The evaluation of the one model.
    """
    (model,) = summary.models
    lines = []
    for column in summary.columns:
        figure = model.columns.get(column.key)
        # A detail gets no line, since the column that it is a part of has one.
        if column.detail or figure is None or figure.mean is None:
            continue
        lowest = figure.mean
        interval = interval_of(column.key, model)
        if interval is not None:
            lowest, _ = interval
        weakness = describe_weakness(
            metric_of_column(column.metric, column),
            figure.mean,
            lowest=lowest,
            chance=figure.chance or 0.0,  # A chance of 0 is not recorded.
            percent=True,
        )
        if weakness:
            lines.append(f"{column.title}: the {weakness}. {ONLY_IMITATES}")
    return lines


def interval_of(key: str, model: studies.Scores) -> Interval | None:
    """Return the 95 % interval of a model's score or average; None where there is none, or for a meaningless score.

    Args:
        key: The key of a column or of an average.
        model: The scores of the model.
    """
    if is_meaningless(key, model):
        return None
    column = model.columns.get(key)
    if column is not None:
        return _interval_of_column(column)
    average = model.averages.by_name.get(key)
    return None if average is None else of_mean(average.runs)


def _interval_of_column(figure: studies.ColumnFigure) -> Interval | None:
    """Return the 95 % interval of a score over rows or queries, else over seeds; None where there is neither."""
    # The record has an interval over the rows or queries of a task if there was a single run. For several runs, the
    # interval over their seeds is computed here; it holds for other seeds as well.
    over_rows = ends_of(figure.interval)
    if over_rows is not None:
        return over_rows
    return of_mean(figure.runs)


def guesser_cells(
    keys: Iterable[str], columns: Sequence[studies.Column], models: Sequence[studies.Scores]
) -> Iterator[list[Cell]]:
    """Yield a row for each guesser that stands beside the scores of a table: its name, and its scores in percent.

    Args:
        keys: Keys of columns and averages, in the order of the table.
        columns: The columns.
        models: The models, which are scored on the same rows.
    """
    headings = list(keys)
    for guesser in GUESSERS:
        scores = [chance_by(guesser, key, columns, models) for key in headings]
        if all(score is None for score in scores):
            continue
        yield [Cell(guesser, mark="italic"), *map(_chance_cell, scores)]


def _chance_cell(score: float | None) -> Cell:
    """Return the cell of a guesser's score, in percent."""
    if score is None:
        return Cell(None)
    return Cell(score, rounded(score, 1))


def chance_by(
    guesser: str, key: str, columns: Sequence[studies.Column], models: Sequence[studies.Scores]
) -> float | None:
    """Return the score of a guesser on a column, in percent.

    Args:
        guesser: One of `GUESSERS`.
        key: The key of a column or of an average.
        columns: The columns of the tables.
        models: The scores of the models.

    Returns:
        The score; None for an average, for a column of another guesser, and where the guesser's score is 0 or unknown.
    """
    for column in columns:
        if column.key != key or guesser_of(column.metric, column.kind) != guesser:
            continue
        # All models are scored on the same rows, so the guesser's score is the same beside each of them.
        for model in models:
            figure = model.columns.get(key)
            if figure is not None and figure.chance:
                return figure.chance
    return None


def interval_note(models: Iterable[studies.Scores]) -> list[str]:
    """Return a note on the samples behind the 95 % intervals of a table, as a list; it is empty without intervals."""
    has_intervals_over_rows = False
    has_intervals_over_seeds = False
    for model in models:
        for figure in model.columns.values():
            if figure.interval:
                has_intervals_over_rows = True
            if of_mean(figure.runs) is not None:
                has_intervals_over_seeds = True
    samples = []
    if has_intervals_over_rows:
        samples.append("the rows or queries of a task (one run)")
    if has_intervals_over_seeds:
        samples.append("seeds (Student's t)")
    if not samples:
        return []
    return [f"95 % intervals are over {' or over '.join(samples)}."]


def score_headings(columns: Sequence[studies.Column], models: Sequence[studies.Scores]) -> dict[str, str]:
    """Return the headings of a table of scores: the columns without details, then the averages that any model has.

    Returns:
        The headings by key. Their second line is the metric, or for an average the number of its tasks.
    """
    headings = {}
    for column in columns:
        if not column.detail:
            headings[column.key] = f"{column.title}\n{metric_of_column(column.metric, column)}"
    for key, title in _AVERAGES.items():
        averages = [model.averages.by_name[key] for model in models]
        known_averages = [average for average in averages if average is not None]
        if not known_averages:
            continue
        # Models may have averages over different numbers of tasks: `of 7–8`. An average over fewer tasks than the
        # paper's is marked, since it cannot be compared with the paper: `of 7 only`.
        task_counts = sorted({len(average.of) for average in known_averages})
        headings[key] = f"{title}\nof {'–'.join(map(str, task_counts))}"
        if not all(average.complete for average in known_averages):
            headings[key] += " only"
    return headings


def score_cells(keys: Iterable[str], model: studies.Scores) -> Iterator[Cell]:
    """Yield the cells of a model's scores and averages; a meaningless score has a mark.

    Args:
        keys: Keys of columns and averages, in the order of the table.
        model: The scores of the model.
    """
    figures = model.figures
    for key in keys:
        cell = mean(figures.get(key))
        if is_meaningless(key, model):
            cell = Cell(f"{cell}{ONE_ANSWER}")
        yield cell


def published_cells(keys: Iterable[str], row: studies.PublishedScores) -> Iterator[AnyCell]:
    """Yield the label and the scores of a row that a paper published; an average that we computed has a mark.

    Args:
        keys: Keys of columns and averages, in the order of the table.
        row: The published row.
    """
    yield f"{published_model(row)} ({PAPERS[row.paper]}, {published_place(row)})"
    score_by_key: dict[str, float | None] = {
        **row.columns,
        "average": row.average,
        "without_cola": row.without_cola,
    }
    for key in keys:
        form = "{:.1f}"
        # The keys of averages that the paper does not print. Their mark stands behind the number.
        if key in row.computed:
            form += _COMPUTED
        # A paper may not score on a task of the table, and may have no average. Such a cell is empty.
        yield Cell(score_by_key.get(key), form)


def published_model(row: studies.PublishedScores) -> str:
    """Return the model of a published row in words: `MiniLM from BERT-base, distilled on the task, 6x384`."""
    model = row.model
    if row.teacher:
        model += f" from {row.teacher}"
    if row.distilled:
        model += f", distilled on the {row.distilled}"
    return f"{model}, {row.shape}"


def published_place(row: studies.PublishedScores) -> str:
    """Return the table of a published row in its paper, and the split that it is over: `table 2, dev`."""
    return f"table {row.table}{_SPLITS.get(row.split, '')}"


def main_figure(summary: studies.Evaluation) -> tuple[str, str]:
    """Return the key and the title of the figure by which models are compared.

    It is the first of these that any model has: the average without CoLA, the average, the columns in their order.
    """
    title_by_key = {"without_cola": "average without CoLA", "average": "average"}
    for column in summary.columns:
        if not column.detail:
            title_by_key[column.key] = f"{column.title} ({metric_of_column(column.metric, column)})"
    for key, title in title_by_key.items():
        if any(model.figures.get(key) is not None for model in summary.models):
            return key, title
    # No model has any figure, so it does not matter which one is named.
    return "without_cola", title_by_key["without_cola"]


def csv_rows(
    columns: Sequence[studies.Column], scores: studies.Scores, teacher: studies.Scores | None
) -> Iterator[dict[str, Any]]:
    """Yield a CSV row for each metric of each column, then for each average.

    A row of `f1` has `positive`, the class that it is of. The main metric of a column, and averages, have `retention`:
    the share of the teacher's score, in percent, see `share_kept`.

    Args:
        columns: The columns of the tables.
        scores: The scores of the model.
        teacher: The scores of the model that shares are of; None without one.
    """
    for column in columns:
        column_figure = scores.columns.get(column.key)
        if column_figure is None:
            continue
        for metric, figure in column_figure.metrics.items():
            row = {"key": column.key, "metric": metric, **numbers(figure)}
            if metric == "f1":
                row["positive"] = column.positive
            if metric == column.metric:
                row["retention"] = share_kept(column.key, scores, teacher)
                # A single run, which has no interval over seeds, may have one over the rows of its task.
                if column_figure.interval is not None:
                    row["low"], row["high"] = column_figure.interval
            yield row
    for name, average in scores.averages.by_name.items():
        if average is not None:
            yield {"key": name, **numbers(average), "retention": share_kept(name, scores, teacher)}


def numbers(figure: studies.Figure) -> dict[str, Any]:
    """Return a figure as cells of a CSV table: mean, deviation, number of runs, and the interval over several runs."""
    row: dict[str, Any] = {"mean": figure.mean, "deviation": figure.deviation, "runs": len(figure.runs)}
    ends = of_mean(figure.runs)
    if ends is not None:
        row["low"], row["high"] = ends
    return row
