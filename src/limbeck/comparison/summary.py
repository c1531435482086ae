"""`summarise_comparison`: the content of a comparison's tables, from its cells, its evaluation and its costs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from limbeck.comparison.held_out import MEASURES
from limbeck.core import studies
from limbeck.core.intervals import is_greater
from limbeck.evaluation.notes import failure_notes

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
    models: dict[str, studies.Scores] = {model.name: model for model in evaluation.models}
    groups: dict[tuple[str, str, str], list[studies.ComparisonCell]] = {}
    for cell in cells:
        groups.setdefault((cell.student, cell.method, cell.mapping), []).append(cell)
    rows = [_row(group, models) for group in groups.values()]
    if teacher.name not in models:
        for row in rows:  # Without the teacher the first student would be what the others are compared with.
            row.retention = {}
    main = _main([row for row in rows if row.finished], evaluation.columns)
    named = {name: getattr(teacher, name) for name in ("name", "title", "shape")}
    scores = _fields(models.get(teacher.name, _NO_SCORES)) | {"retention": {}, "held_out": _held_out([teacher])}
    reference = studies.TeacherRow(**scores, **named, cost=_cost(costs, teacher.name))
    reference.main = _main_figure(reference, main)
    blocks = []
    for student in dict.fromkeys(row.student for row in rows):
        own = [row for row in rows if row.student == student]
        _rank(own, main)
        size = own[0].shape.split(",")[0].split()[-1]
        published = [row for row in evaluation.published if row.shape == size]
        block = studies.StudentBlock(student=student, shape=own[0].shape, cost=_cost(costs, student), rows=own)
        block.published = published
        blocks.append(block)
    return studies.ComparisonSummary(
        preset=evaluation.preset,
        columns=evaluation.columns,
        held_out=[measure for measure in MEASURES if any(measure.key in row.held_out for row in rows)],
        main=main,
        teacher=reference,
        blocks=blocks,
        notes=[
            *failure_notes("run", ((cell.title, cell.problem) for cell in cells if cell.status == "failed")),
            *_unavailable(cells),
            *evaluation.notes,
        ],
    )


def pool_scores(models: Sequence[studies.Scores]) -> studies.Scores:
    """Pool the scores of students that differ in the seed of their distillation.

    A student's figure is its mean over fine-tunings. Of several students the mean is over these, and the deviation too;
    of one it is over its fine-tunings.
    """
    if len(models) == 1:
        return models[0]
    columns = _by_key((model.columns for model in models), _pooled_column)
    averages = _by_key(
        ({name: found for name, found in model.averages.by_name.items() if found} for model in models), _pooled_average
    )
    # What is kept is linear in the score: the mean of what each keeps is what the mean keeps.
    kept = _by_key((model.retention for model in models), lambda found: studies.Figure.of_runs(found).mean)
    # A student below 0 has none, and the mean of the others would flatter.
    lacking = {key for model in models for key in model.columns if key not in model.retention}
    return studies.Scores(
        columns=columns,
        averages=studies.Averages(average=averages.get("average"), without_cola=averages.get("without_cola")),
        retention={key: mean for key, mean in kept.items() if key not in lacking},
    )


def _by_key(mappings: Iterable[Mapping[str, Any]], pool: Callable[[list[Any]], T]) -> dict[str, T]:
    """Pool what several mappings have under each key."""
    found: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            found.setdefault(key, []).append(value)
    return {key: pool(values) for key, values in found.items()}


def _pooled_column(figures: list[studies.ColumnFigure]) -> studies.ColumnFigure:
    metrics = _by_key(
        (figure.metrics for figure in figures), lambda found: studies.Figure.of_runs(one.mean for one in found)
    )
    found = studies.ColumnFigure.of_runs((figure.mean for figure in figures), metrics=metrics)
    if (only := next(filter(None, (figure.only_answer for figure in figures)), None)) is not None:
        found.only_answer = only
    return found


def _pooled_average(averages: list[studies.Average]) -> studies.Average:
    """Pool averages over the same tasks: where a student lacks one, it is left out of the average."""
    widest = max((average.of for average in averages), key=len)
    alike = [average for average in averages if average.of == widest]
    complete = all(average.complete for average in alike)
    return studies.Average.of_runs((average.mean for average in alike), of=widest, complete=complete)


def _row(group: Sequence[studies.ComparisonCell], models: Mapping[str, studies.Scores]) -> studies.ComparedRow:
    """One method and mapping: its finished runs, pooled over seeds."""
    first, done = group[0], [cell for cell in group if cell.status == "finished"]
    scored = [models[cell.model] for cell in done if cell.model in models]
    pooled = pool_scores(scored) if scored else _NO_SCORES
    return studies.ComparedRow(
        **{name: getattr(first, name) for name in ("student", "method", "mapping", "shape")},
        **_fields(pooled),
        held_out=_held_out(done),
        seeds=[cell.seed for cell in done if cell.seed is not None],
        finished=len(done),
        wanted=len(group),
        tokens=studies.Figure.of_runs(cell.tokens or 0 for cell in done) if done else None,
        seconds=studies.Figure.of_runs(cell.seconds or 0.0 for cell in done) if done else None,
    )


def _fields(scores: studies.Scores) -> dict[str, Any]:
    return {name: getattr(scores, name) for name in ("columns", "averages", "retention")}


def _held_out(measured: Sequence[studies.ComparisonCell | studies.ComparedTeacher]) -> dict[str, studies.Figure]:
    found = [{key: value for key, value in (one.held_out or {}).items() if value is not None} for one in measured]
    pooled = _by_key(found, studies.Figure.of_runs)
    return {measure.key: pooled[measure.key] for measure in MEASURES if measure.key in pooled}


def _main(rows: Sequence[studies.ComparedRow], columns: Sequence[studies.Column]) -> studies.MainFigure | None:
    """Choose the figure that ranks the rows.

    It is the average without CoLA as in the comparative study's table 3, else the average (of which tasks: those of
    the row with the most), else the first task, else the first held-out measure.
    """
    for name, title in _AVERAGES.items():
        if known := [average for row in rows if (average := row.averages.by_name[name])]:
            return studies.MainFigure(
                kind="averages", key=name, title=title, of=max((one.of for one in known), key=len)
            )
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
    places: dict[str, Mapping[str, studies.Figure | None]] = {
        "averages": row.averages.by_name, "columns": row.columns, "held_out": row.held_out
    }  # fmt: skip
    found = places[main.kind].get(main.key)
    if found is None or (isinstance(found, studies.Average) and found.of != main.of):
        return None
    return studies.Figure(mean=found.mean, deviation=found.deviation, runs=found.runs)


def _rank(rows: Sequence[studies.ComparedRow], main: studies.MainFigure | None) -> None:
    """Rank the rows of a student that have several seeds: 1, and one more for each row that is better beyond chance.

    Without several seeds nothing tells a difference from chance, and nothing is ranked. The best mapping of a method is
    the one that no other beats, where it beats another.
    """
    for row in rows:
        row.main, row.rank, row.best_mapping = _main_figure(row, main), None, False
    sign = -1 if main is not None and main.best == "lowest" else 1
    seeded = [
        (row, {seed: sign * value for seed, value in zip(row.seeds, row.main.runs, strict=True)})
        for row in rows
        if row.main is not None and row.finished > 1 and len(row.main.runs) == len(row.seeds)
    ]
    for row, figures in seeded if len(seeded) > 1 else ():
        others = [(other, theirs) for other, theirs in seeded if other is not row]
        row.rank = 1 + sum(is_greater(theirs, figures) for _, theirs in others)
        rivals = [theirs for other, theirs in others if other.method == row.method]
        beaten = any(is_greater(theirs, figures) for theirs in rivals)
        row.best_mapping = not beaten and any(is_greater(figures, theirs) for theirs in rivals)


def _cost(costs: studies.Costs | None, name: str) -> studies.ModelCost | None:
    """Parameters, and the speedup at each batch size and length."""
    if costs is None or not (sizes := [row for row in costs.models if row.model == name]):
        return None
    speedups = [
        studies.Speedup(batch=row.batch, length=row.length, speedup=row.speedup)
        for row in costs.timings
        if row.model == name and row.speedup is not None
    ]
    return studies.ModelCost(parameters=sizes[0].parameters, speedups=speedups)


def _unavailable(cells: Sequence[studies.ComparisonCell]) -> list[str]:
    """Say which held-out measures could not be had, and why, once for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in cells:
        for measure, reason in cell.unavailable.items():
            reasons.setdefault(reason, {})[measure] = None
    return [f"Held-out {', '.join(measures)}: {reason}" for reason, measures in reasons.items()]
