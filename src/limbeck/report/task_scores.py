"""The scores of one student on tasks, out of the tables of `limbeck evaluate`, as its card shows them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import EvalResult

from limbeck.core.escaping import one_line
from limbeck.core.kinds import KINDS, own_kind_like
from limbeck.core.paths import EVALUATION_TABLE
from limbeck.core.records import load
from limbeck.core.studies import Column, ColumnFigure, EvaluatedModel, Evaluation, Scores
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks.registry import DEFINITIONS, PUBLISHED
from limbeck.report.card import HEADS, hub_metric
from limbeck.report.names import metric_name
from limbeck.report.scores import share_kept

_OTHER_ROWS = re.compile(
    rf"rows?, but [\d,]+ are published|\({PUBLISHED} |(?:rows|queries), drawn$|"
    r"(?:made of|assembled from) \d+ of its \d+ parts"
)
"""In notes on scores that are of other rows than the published ones, or of a part of them."""
_VECTOR_TASKS = {"similarity": "sentence-similarity", "retrieval": "information-retrieval"}
"""The Hub's names of the tasks whose kinds compare sentence vectors."""


@dataclass(frozen=True)
class ScoredRows:
    """The rows that a score is of, as the Hub names them.

    Attributes:
        type: Name of the data set on the Hub, or of the task where its rows are not those of the Hub.
        name: The task, as tables head it.
        config: Part of the data set on the Hub, where it has several.
        split: Split of the data set on the Hub; None where the rows are not those of the Hub.
    """

    type: str
    name: str
    config: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class TaskScore:
    """A student's main score on one task.

    Attributes:
        column: The task and its metric, as tables head them.
        student: The student's score.
        teacher: That of the first model of the evaluation, or None where this is the student.
        share: The share that the student keeps of it, in percent; None where it says nothing.
        dataset: The scored rows.
    """

    column: Column
    student: ColumnFigure
    teacher: ColumnFigure | None
    share: float | None
    dataset: ScoredRows


@dataclass(frozen=True)
class TaskScores:
    """A student's scores.

    Attributes:
        preset: The protocol.
        teacher: Name of the first model of the evaluation; empty where that is the student.
        rows: A row a task.
        notes: Where the rows that were scored are not all that are published.
        as_is: Whether its head was scored as it is; else it was fine-tuned.
    """

    preset: str
    teacher: str
    rows: tuple[TaskScore, ...]
    notes: tuple[str, ...] = ()
    as_is: bool = False


def find_scores(student: Path, evaluation: Path | None = None) -> TaskScores | None:
    """Return the scores of a student, where it has been evaluated.

    Args:
        student: Its folder.
        evaluation: Folder of an evaluation; None looks into the folders in the run's, and where `limbeck compare`
            keeps its own.

    Raises:
        RecipeError: if the folder that is named holds no tables, or none of this student.
    """
    if evaluation is None:
        return _look_for_scores(student)
    summary = load(Evaluation, evaluation)
    if not _has_scores(summary):
        raise RecipeError(
            f"--evaluation '{evaluation}' holds no {EVALUATION_TABLE}; give an output folder of `limbeck evaluate`."
        )
    scores = scores_of(student, summary)
    if scores is None:
        names = ", ".join(model.name for model in summary.models)
        raise RecipeError(f"--evaluation '{evaluation}' has no scores of '{student}'; its models are {names}.")
    return scores


def _look_for_scores(student: Path) -> TaskScores | None:
    """Return the scores of a student out of the first evaluation that has any, where they are usually written."""
    # `limbeck evaluate` writes into the run, `limbeck compare` beside its runs.
    run = student.resolve().parent
    folders = sorted(path.parent for path in run.glob(f"*/{EVALUATION_TABLE}"))
    folders.append(run.parent.parent / "evaluation")
    for folder in folders:
        summary = load(Evaluation, folder)
        scores = scores_of(student, summary) if _has_scores(summary) else None
        if scores is not None:
            return scores
    return None


def _has_scores(summary: Evaluation) -> bool:
    return summary.preset is not None and bool(summary.models) and bool(summary.columns)


def scores_of(student: Path, summary: Evaluation) -> TaskScores | None:
    """Return a student's scores out of an evaluation's summary; None where it is not among the models.

    Args:
        student: Its folder.
        summary: Of the evaluation.
    """
    model = _model_in_folder(student, summary.models)
    return None if model is None else scores_of_model(model, summary)


def _model_in_folder(folder: Path, models: Sequence[EvaluatedModel]) -> EvaluatedModel | None:
    """Return the model whose name is the path of a folder.

    A run may have moved since it was evaluated. Then the last two parts of the paths are enough, unless several models
    share them: `exp1/small/student` and `exp2/small/student` are different students.
    """
    folder_parts = folder.resolve().parts
    namesakes = []
    for model in models:
        path = Path(model.name).expanduser()
        parts = path.resolve().parts
        if parts == folder_parts:
            return model
        if len(path.parts) > 1 and parts[-2:] == folder_parts[-2:]:
            namesakes.append(model)
    return namesakes[0] if len(namesakes) == 1 else None


def scores_of_model(model: EvaluatedModel, summary: Evaluation) -> TaskScores:
    """Return the scores of one of the models of an evaluation's summary."""
    first = summary.models[0]
    teacher = Scores() if model is first else first
    rows = []
    notes: list[str] = []
    for column in summary.columns:
        column_notes = _notes_on_rows(column, summary.notes)
        notes += [note for note in column_notes if note not in notes]
        figure = model.columns.get(column.key)
        # Details are parts of another column.
        if figure is None or column.detail:
            continue
        score = TaskScore(
            column=column,
            student=figure,
            teacher=teacher.columns.get(column.key),
            share=share_kept(column.key, model, teacher),
            dataset=_scored_rows(column, are_all=not column_notes),
        )
        rows.append(score)
    teacher_name = "" if model is first else first.name
    return TaskScores(str(summary.preset), teacher_name, tuple(rows), tuple(notes), summary.as_is)


def _notes_on_rows(column: Column, notes: Sequence[str]) -> list[str]:
    """Return, of each split of a column, the first note that its scores are of other rows than the published ones."""
    if column.task is None or column.task not in DEFINITIONS:
        return []
    title = DEFINITIONS[column.task].task.title
    notes_on_rows = []
    for split in _splits_of(column):
        split_notes = [note for note in notes if note.startswith(f"{title} {split}: ") and _OTHER_ROWS.search(note)]
        notes_on_rows += split_notes[:1]
    return notes_on_rows


def _scored_rows(column: Column, *, are_all: bool) -> ScoredRows:
    """Return the rows of a column by their place on the Hub, or by the task's own name.

    Args:
        column: Of the evaluation.
        are_all: Whether all published rows were scored; a score of other rows would be a wrong claim about the data
            set of the Hub.
    """
    task = str(column.task)
    place = None
    if are_all and task in DEFINITIONS:
        place = DEFINITIONS[task].on_hub(_splits_of(column)[0])
    if place is None:
        return ScoredRows(type=task, name=column.title)
    data_set, split = place
    return ScoredRows(type=data_set.name, name=column.title, config=split.config or None, split=split.split)


def _splits_of(column: Column) -> list[str]:
    """Return the splits whose rows a column is of, without the variants of sentence vectors."""
    return [split.partition("@")[0] for split in column.splits]


def hub_results(scores: TaskScores) -> Iterator[EvalResult]:
    """Yield scores on tasks as the Hub has them, all as shares."""
    for row in scores.rows:
        kind = str(row.column.kind)
        if KINDS[kind].of_vectors:
            task_type = _VECTOR_TASKS[kind]
            how = "cosine of sentence vectors"
        else:
            task_type = HEADS[own_kind_like(kind)]["pipeline_tag"]
            how = "as it is" if scores.as_is else f"fine-tuned, preset {scores.preset}"
        yield EvalResult(
            task_type=task_type,
            dataset_type=one_line(row.dataset.type),
            dataset_name=one_line(row.dataset.name),
            dataset_config=row.dataset.config,
            dataset_split=row.dataset.split,
            metric_type=hub_metric(row.column.metric),
            metric_name=f"{metric_name(row.column.metric)} ({how})",
            metric_value=round(row.student.mean / 100, 4),
        )
