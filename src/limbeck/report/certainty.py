"""How certain the scores of models are: intervals over rows or seeds, one answer for all rows, and names of models."""

from collections.abc import Iterable, Sequence

from limbeck.core import blocks, studies
from limbeck.core.blocks import Cell
from limbeck.core.intervals import Interval, of_mean
from limbeck.core.paths import short_model_name
from limbeck.report.quality import ends_of

ONE_ANSWER = " ‡"
"""After a score of a model that gives all rows one answer."""
ONE_RUN = "one run each with one seed, so"


def is_meaningless(key: str, model: studies.Scores) -> bool:
    """Return whether a score, or one that an average is of, is of a model that gives all rows one answer."""
    average = model.averages.by_name.get(key)
    columns = (model.columns.get(name) for name in ([key] if average is None else average.of))
    return any(column is not None and column.is_meaningless for column in columns)


def share_kept(key: str, model: studies.Scores, teacher: studies.Scores | None) -> float | None:
    """Return the share of a teacher's score that is kept, in percent; None where either is meaningless."""
    if any(each is not None and is_meaningless(key, each) for each in (model, teacher)):
        return None
    return model.retention.get(key)


def only_answer_notes(summary: studies.Evaluation) -> list[str]:
    """Return a line for each model and task whose score says nothing, since all rows are given one answer."""
    return one_answer_lines(summary.columns, ((name_of(model), model) for model in summary.models))


def one_answer_lines(columns: Sequence[studies.Column], models: Iterable[tuple[str, studies.Scores]]) -> list[str]:
    """Return the lines of `only_answer_notes` for models by their names."""
    found = ((name, one, model.columns.get(one.key)) for name, model in models for one in columns if not one.detail)
    return [
        f"‡ {name} on {column.title}: every row gets the same answer{_quoted(figure.only_answer)}, "
        "so the score is meaningless."
        for name, column, figure in found
        if figure is not None and figure.is_meaningless
    ]


def _quoted(answer: str | None) -> str:
    return "" if answer is None else f" ('{answer}')"


def name_of(model: studies.EvaluatedModel) -> str:
    """Return what tables call a model."""
    return model.title or short_model_name(model.name)


def over_runs(figure: studies.Figure) -> Interval | None:
    """Return the interval of a mean over runs; None of one."""
    return of_mean(figure.runs)


def interval_cells(keys: Iterable[str], model: studies.Scores) -> list[Cell]:
    """Return the intervals of a model's figures: over the rows of one run, or over the seeds of several."""
    found = []
    for key in keys:
        column, figure = model.columns.get(key), model.figures.get(key)
        if is_meaningless(key, model):
            found.append(Cell(None))
            continue
        ends = ends_of(column.interval) if column is not None and column.interval is not None else None
        found.append(blocks.interval(ends or (over_runs(figure) if figure is not None else None)))
    return found


def interval_note(models: Iterable[studies.Scores]) -> list[str]:
    """Say what the 95 % intervals of a table are over; nothing where there are none."""
    columns = [column for model in models for column in model.columns.values()]
    over = ["the rows of a task (one run)"] if any(column.interval for column in columns) else []
    over += ["seeds (Student's t)"] if any(len(column.runs) > 1 for column in columns) else []
    return [f"95 % intervals are over {' or over '.join(over)}."] if over else []
