"""`summarise_comparison`: the content of a comparison's tables, from its cells, its evaluation and its costs.

A row of the tables is a student that was trained by one method with one layer mapping; it pools the runs of all seeds.
"""

from collections.abc import Mapping, Sequence

from limbeck.comparison.held_out_measures import MEASURES
from limbeck.comparison.pooling import NO_SCORES, pool_held_out, pool_scores
from limbeck.comparison.ranking import choose_main_figure, main_figure_of, ranks_of
from limbeck.core import studies
from limbeck.evaluation.results.notes import failure_notes


def summarise_comparison(
    cells: Sequence[studies.ComparisonCell],
    teacher: studies.ComparedTeacher,
    evaluation: studies.Evaluation | None = None,
    costs: studies.Costs | None = None,
) -> studies.ComparisonSummary:
    """Make the tables' content: a block for each student, with a row for each method and mapping.

    Args:
        cells: The entries of all runs; those of the same student, method and mapping follow each other.
        teacher: Name, shape and held-out figures of the teacher.
        evaluation: Scores of the teacher and all students on tasks; None where no task was evaluated.
        costs: Sizes and speeds of the teacher and of each student, by its title.
    """
    evaluation = evaluation or studies.Evaluation()
    scores_of_model: dict[str, studies.Scores] = {model.name: model for model in evaluation.models}
    rows = _rows(cells, scores_of_model)
    if teacher.name not in scores_of_model:
        # Retention is the share of the score of the evaluation's first model. Without the teacher, the first is a
        # student, and a share of its score means nothing.
        for row in rows:
            row.retention = {}

    # All rows are ranked by the same figure, but each student's rows among themselves.
    main = choose_main_figure([row for row in rows if row.finished], evaluation.columns)
    for row in rows:
        row.main = main_figure_of(row, main)
    blocks = []
    students = dict.fromkeys(row.student for row in rows)  # Each once, in the order of the rows.
    for student in students:
        rows_of_student = [row for row in rows if row.student == student]
        for row, rank in zip(rows_of_student, ranks_of(rows_of_student, main), strict=True):
            row.rank = rank.number
            row.best_mapping = rank.is_best_mapping
        blocks.append(_student_block(student, rows_of_student, evaluation, costs))

    failures = [(cell.title, cell.problem) for cell in cells if cell.status == "failed"]
    return studies.ComparisonSummary(
        preset=evaluation.preset,
        columns=evaluation.columns,
        held_out=_measures_of(rows),
        main=main,
        teacher=_teacher_row(teacher, scores_of_model.get(teacher.name, NO_SCORES), main, costs),
        blocks=blocks,
        notes=[*failure_notes("run", failures), *_notes_on_missing_measures(cells), *evaluation.notes],
    )


def _measures_of(rows: Sequence[studies.ComparedRow]) -> list[studies.HeldOutMeasure]:
    """Return the held-out measures of which a row has a figure."""
    keys: set[str] = set()
    for row in rows:
        keys.update(row.held_out)
    return [measure for measure in MEASURES if measure.key in keys]


def _rows(
    cells: Sequence[studies.ComparisonCell], scores_of_model: Mapping[str, studies.Scores]
) -> list[studies.ComparedRow]:
    """Return a row for each student, method and mapping, in the order of the cells."""
    cells_of_row: dict[tuple[str, str, str], list[studies.ComparisonCell]] = {}
    for cell in cells:
        cells_of_row.setdefault((cell.student, cell.method, cell.mapping), []).append(cell)
    return [_row(group, scores_of_model) for group in cells_of_row.values()]


def _row(group: Sequence[studies.ComparisonCell], scores_of_model: Mapping[str, studies.Scores]) -> studies.ComparedRow:
    """Return the row of one student, method and mapping: its finished runs, pooled over seeds."""
    first = group[0]
    finished = [cell for cell in group if cell.status == "finished"]
    scores = pool_scores([scores_of_model[cell.model] for cell in finished if cell.model in scores_of_model])
    row = studies.ComparedRow(
        student=first.student,
        method=first.method,
        mapping=first.mapping,
        shape=first.shape,
        columns=scores.columns,
        averages=scores.averages,
        retention=scores.retention,
        held_out=pool_held_out(finished),
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


def _teacher_row(
    teacher: studies.ComparedTeacher,
    scores: studies.Scores,
    main: studies.MainFigure | None,
    costs: studies.Costs | None,
) -> studies.TeacherRow:
    """Return the row of the teacher, which is not ranked."""
    row = studies.TeacherRow(
        name=teacher.name,
        title=teacher.title,
        shape=teacher.shape,
        columns=scores.columns,
        averages=scores.averages,
        retention={},
        held_out=pool_held_out([teacher]),
        cost=_cost(costs, teacher.name),
    )
    row.main = main_figure_of(row, main)
    return row


def _student_block(
    student: str,
    rows: list[studies.ComparedRow],
    evaluation: studies.Evaluation,
    costs: studies.Costs | None,
) -> studies.StudentBlock:
    """Return the rows of one student, with published rows of the same size."""
    shape = rows[0].shape
    # Published rows have no more of a shape than its size.
    size = studies.size_of_shape(shape)
    published = [row for row in evaluation.published if row.shape == size]
    return studies.StudentBlock(
        student=student, shape=shape, cost=_cost(costs, student), rows=rows, published=published
    )


def _cost(costs: studies.Costs | None, name: str) -> studies.ModelCost | None:
    """Return the parameters of a model, and its speedup at each batch size and length; None where it has no costs."""
    if costs is None:
        return None
    sizes = [row for row in costs.models if row.model == name]
    if not sizes:
        return None
    speedups = [
        studies.Speedup(batch=row.batch, length=row.length, speedup=row.speedup, note=row.note)
        for row in costs.timings
        if row.model == name and row.speedup is not None
    ]
    return studies.ModelCost(parameters=sizes[0].parameters, speedups=speedups)


def _notes_on_missing_measures(cells: Sequence[studies.ComparisonCell]) -> list[str]:
    """Return a note for each reason for which held-out measures could not be had."""
    measures_of_reason: dict[str, list[str]] = {}
    for cell in cells:
        for measure, reason in cell.unavailable.items():
            measures = measures_of_reason.setdefault(reason, [])
            if measure not in measures:
                measures.append(measure)
    return [f"Held-out {', '.join(measures)}: {reason}" for reason, measures in measures_of_reason.items()]
