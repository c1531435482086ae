"""`summarise_comparison`: the content of a comparison's tables, from its cells, its evaluation and its costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from limbeck.comparison.held_out import MEASURES
from limbeck.core import studies
from limbeck.core.intervals import is_greater
from limbeck.evaluation.results.notes import failure_notes

T = TypeVar("T")
_AVERAGES = {"without_cola": "average without CoLA", "average": "average"}
_NO_SCORES = studies.Scores(columns={}, averages=studies.Averages(average=None, without_cola=None), retention={})


def summarise_comparison(
    cells: Sequence[studies.ComparisonCell],
    teacher: studies.ComparedTeacher,
    evaluation: studies.Evaluation | None = None,
    costs: studies.Costs | None = None,
) -> studies.ComparisonSummary:
    """Make the tables' content: a block for each student, with a row for each method and mapping.

    Args:
        cells: Those of a combination one after the other.
        teacher: Its name, shape and held-out figures.
        evaluation: Of the teacher and all students; None where no task was evaluated.
        costs: Of the teacher, and of each student by its title.
    """
    evaluation = evaluation or studies.Evaluation()
    scores: dict[str, studies.Scores] = {model.name: model for model in evaluation.models}

    # A row for each combination, which pools its seeds.
    cells_by_row: dict[tuple[str, str, str], list[studies.ComparisonCell]] = {}
    for cell in cells:
        cells_by_row.setdefault((cell.student, cell.method, cell.mapping), []).append(cell)
    rows = [_row(group, scores) for group in cells_by_row.values()]
    if teacher.name not in scores:
        # Without the teacher, retention is beside the first student, which means nothing here.
        for row in rows:
            row.retention = {}

    main = _main([row for row in rows if row.finished], evaluation.columns)
    blocks = []
    for student in dict.fromkeys(row.student for row in rows):
        rows_of_student = [row for row in rows if row.student == student]
        _rank(rows_of_student, main)
        blocks.append(_student_block(student, rows_of_student, evaluation, costs))

    failures = [(cell.title, cell.problem) for cell in cells if cell.status == "failed"]
    return studies.ComparisonSummary(
        preset=evaluation.preset,
        columns=evaluation.columns,
        held_out=[measure for measure in MEASURES if any(measure.key in row.held_out for row in rows)],
        main=main,
        teacher=_teacher_row(teacher, scores.get(teacher.name, _NO_SCORES), main, costs),
        blocks=blocks,
        notes=[*failure_notes("run", failures), *_unavailable(cells), *evaluation.notes],
    )


def _teacher_row(
    teacher: studies.ComparedTeacher,
    scores: studies.Scores,
    main: studies.MainFigure | None,
    costs: studies.Costs | None,
) -> studies.TeacherRow:
    row = studies.TeacherRow(
        name=teacher.name,
        title=teacher.title,
        shape=teacher.shape,
        columns=scores.columns,
        averages=scores.averages,
        retention={},
        held_out=_held_out([teacher]),
        cost=_cost(costs, teacher.name),
    )
    row.main = _main_figure(row, main)
    return row


def _student_block(
    student: str,
    rows: list[studies.ComparedRow],
    evaluation: studies.Evaluation,
    costs: studies.Costs | None,
) -> studies.StudentBlock:
    """The rows of one student, with published rows of the same size."""
    shape = rows[0].shape
    size = shape.split(",")[0].split()[-1]  # `6x384` of `bert 6x384, 12 heads`.
    block = studies.StudentBlock(student=student, shape=shape, cost=_cost(costs, student), rows=rows)
    block.published = [row for row in evaluation.published if row.shape == size]
    return block


def pool_scores(models: Sequence[studies.Scores]) -> studies.Scores:
    """Pool the scores of students that differ in the seed of their distillation.

    A student's figure is its mean over fine-tunings. Of several students the mean is over these, and the deviation too;
    of one it is over its fine-tunings.
    """
    if len(models) == 1:
        return models[0]
    columns = _by_key(model.columns for model in models)
    averages = _by_key(_averages_of(model) for model in models)
    pooled_averages = {key: _pooled_average(values) for key, values in averages.items()}

    # Retention is linear in the score: the mean of all retentions is the retention of the mean. A student with a score
    # below 0 has none, and the mean of the others would flatter.
    retentions = _by_key(model.retention for model in models)
    pooled_retention = {}
    for key, values in retentions.items():
        if all(key in model.retention or key not in model.columns for model in models):
            pooled_retention[key] = studies.Figure.of_runs(values).mean
    return studies.Scores(
        columns={key: _pooled_column(figures) for key, figures in columns.items()},
        averages=studies.Averages(
            average=pooled_averages.get("average"), without_cola=pooled_averages.get("without_cola")
        ),
        retention=pooled_retention,
    )


def _by_key(mappings: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    """The values that several mappings have under each key."""
    values_by_key: dict[str, list[T]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            values_by_key.setdefault(key, []).append(value)
    return values_by_key


def _averages_of(scores: studies.Scores) -> dict[str, studies.Average]:
    return {name: average for name, average in scores.averages.by_name.items() if average}


def _pooled_column(figures: list[studies.ColumnFigure]) -> studies.ColumnFigure:
    metrics = {}
    for key, values in _by_key(figure.metrics for figure in figures).items():
        metrics[key] = studies.Figure.of_runs(value.mean for value in values)
    column = studies.ColumnFigure.of_runs((figure.mean for figure in figures), metrics=metrics)
    for figure in figures:
        if figure.only_answer:
            column.only_answer = figure.only_answer
            break
    return column


def _pooled_average(averages: list[studies.Average]) -> studies.Average:
    """Pool averages over the same tasks: where a student lacks one, it is left out of the average."""
    widest = max((average.of for average in averages), key=len)
    alike = [average for average in averages if average.of == widest]
    complete = all(average.complete for average in alike)
    return studies.Average.of_runs((average.mean for average in alike), of=widest, complete=complete)


def _row(group: Sequence[studies.ComparisonCell], models: Mapping[str, studies.Scores]) -> studies.ComparedRow:
    """One method and mapping: its finished runs, pooled over seeds."""
    first = group[0]
    finished = [cell for cell in group if cell.status == "finished"]
    scored = [models[cell.model] for cell in finished if cell.model in models]
    scores = pool_scores(scored) if scored else _NO_SCORES
    row = studies.ComparedRow(
        student=first.student,
        method=first.method,
        mapping=first.mapping,
        shape=first.shape,
        columns=scores.columns,
        averages=scores.averages,
        retention=scores.retention,
        held_out=_held_out(finished),
        seeds=[cell.seed for cell in finished if cell.seed is not None],
        finished=len(finished),
        wanted=len(group),
        tokens=None,
        seconds=None,
    )
    if finished:
        row.tokens = studies.Figure.of_runs(cell.tokens or 0 for cell in finished)
        row.seconds = studies.Figure.of_runs(cell.seconds or 0.0 for cell in finished)
    return row


def _held_out(measured: Sequence[studies.ComparisonCell | studies.ComparedTeacher]) -> dict[str, studies.Figure]:
    """Pool held-out figures, in the order of the measures."""
    values_by_measure = _by_key(entry.held_out or {} for entry in measured)
    figures = {}
    for measure in MEASURES:
        values = [value for value in values_by_measure.get(measure.key, ()) if value is not None]
        if values:
            figures[measure.key] = studies.Figure.of_runs(values)
    return figures


def _main(rows: Sequence[studies.ComparedRow], columns: Sequence[studies.Column]) -> studies.MainFigure | None:
    """Choose the figure that ranks the rows.

    It is the average without CoLA as in the comparative study's table 3, else the average (of which tasks: those of
    the row with the most), else the first task, else the first held-out measure.
    """
    for name, title in _AVERAGES.items():
        averages = [row.averages.by_name[name] for row in rows]
        tasks = [average.of for average in averages if average]
        if tasks:
            return studies.MainFigure(kind="averages", key=name, title=title, of=max(tasks, key=len))
    for column in columns:
        if not column.detail and any(column.key in row.columns for row in rows):
            return studies.MainFigure(kind="columns", key=column.key, title=column.title)
    for measure in MEASURES:
        if any(measure.key in row.held_out for row in rows):
            title = f"held-out {measure.title}"
            return studies.MainFigure(
                kind="held_out", key=measure.key, title=title, digits=measure.digits, best=measure.best
            )
    return None


def _main_figure(row: studies.ComparedScores, main: studies.MainFigure | None) -> studies.Figure | None:
    """The figure that a row is ranked by; None where it has none, or one over fewer tasks than others."""
    if main is None:
        return None
    figures: dict[str, Mapping[str, studies.Figure | None]] = {
        "averages": row.averages.by_name,
        "columns": row.columns,
        "held_out": row.held_out,
    }
    figure = figures[main.kind].get(main.key)
    if figure is None:
        return None
    if isinstance(figure, studies.Average) and figure.of != main.of:
        return None
    return studies.Figure(mean=figure.mean, deviation=figure.deviation, runs=figure.runs)


def _rank(rows: Sequence[studies.ComparedRow], main: studies.MainFigure | None) -> None:
    """Rank the rows of a student that have several seeds: 1, and one more for each row that is better beyond chance.

    Without several seeds nothing tells a difference from chance, and nothing is ranked. The best mapping of a method is
    the one that no other beats, where it beats another.
    """
    for row in rows:
        row.main = _main_figure(row, main)
        row.rank = None
        row.best_mapping = False

    # The figure of each seed, turned so that more is better.
    sign = -1 if main is not None and main.best == "lowest" else 1
    figures_of_rows = []
    for row in rows:
        if row.main is None or row.finished < 2 or len(row.main.runs) != len(row.seeds):
            continue
        figures = {seed: sign * value for seed, value in zip(row.seeds, row.main.runs, strict=True)}
        figures_of_rows.append((row, figures))
    if len(figures_of_rows) < 2:
        return

    for row, figures in figures_of_rows:
        rivals = [(rival, values) for rival, values in figures_of_rows if rival is not row]
        row.rank = 1 + sum(is_greater(values, figures) for _, values in rivals)
        same_method = [values for rival, values in rivals if rival.method == row.method]
        is_beaten = any(is_greater(values, figures) for values in same_method)
        beats_another = any(is_greater(figures, values) for values in same_method)
        row.best_mapping = beats_another and not is_beaten


def _cost(costs: studies.Costs | None, name: str) -> studies.ModelCost | None:
    """Parameters, and the speedup at each batch size and length."""
    if costs is None:
        return None
    sizes = [row for row in costs.models if row.model == name]
    if not sizes:
        return None
    speedups = [
        studies.Speedup(batch=row.batch, length=row.length, speedup=row.speedup)
        for row in costs.timings
        if row.model == name and row.speedup is not None
    ]
    return studies.ModelCost(parameters=sizes[0].parameters, speedups=speedups)


def _unavailable(cells: Sequence[studies.ComparisonCell]) -> list[str]:
    """Notes on held-out measures that could not be had, one for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in cells:
        for measure, reason in cell.unavailable.items():
            reasons.setdefault(reason, {})[measure] = None
    return [f"Held-out {', '.join(measures)}: {reason}" for reason, measures in reasons.items()]
