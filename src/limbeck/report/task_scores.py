"""The scores of one student on tasks, out of the tables of `limbeck evaluate`, as its card shows them."""

import re
from collections.abc import Iterator, Mapping
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


@dataclass(frozen=True)
class TaskScore:
    """A student's main score on one task.

    Attributes:
        column: The task and its metric, as tables head them.
        student: The student's score.
        teacher: That of the first model of the evaluation, or None where this is the student.
        share: The share that the student keeps of it, in percent; None where it says nothing.
        dataset: `type`, `name`, and `config` and `split` where the rows are also on the Hub.
    """

    column: Column
    student: ColumnFigure
    teacher: ColumnFigure | None
    share: float | None
    dataset: dict[str, str]


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
        # `limbeck evaluate` writes into the run, `limbeck compare` beside its runs.
        run = student.resolve().parent
        folders = [*sorted(path.parent for path in run.glob(f"*/{EVALUATION_TABLE}")), run.parent.parent / "evaluation"]
        for folder in folders:
            scores = _scores_in(folder, student)
            if scores is not None:
                return scores
        return None

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


def _scores_in(folder: Path, student: Path) -> TaskScores | None:
    summary = load(Evaluation, folder)
    return scores_of(student, summary) if _has_scores(summary) else None


def _has_scores(summary: Evaluation) -> bool:
    return summary.preset is not None and bool(summary.models) and bool(summary.columns)


def scores_of(student: Path, summary: Evaluation) -> TaskScores | None:
    """Return a student's scores out of an evaluation's summary; None where it is not among the models.

    Args:
        student: Its folder; models are known by their path, or by its last two parts where that has moved.
        summary: Of the evaluation.
    """
    for model in summary.models:
        if _is_model_in(student, model.name):
            return scores_of_model(model, summary)
    return None


def _is_model_in(folder: Path, name: str) -> bool:
    """Return whether a model's name is that of a folder, wherever that was moved: its last two parts tell."""
    path = Path(name).expanduser()
    folder_parts = folder.resolve().parts
    named_parts = path.resolve().parts
    if folder_parts == named_parts:
        return True
    return len(path.parts) > 1 and folder_parts[-2:] == named_parts[-2:]


def scores_of_model(model: EvaluatedModel, summary: Evaluation) -> TaskScores:
    """Return the scores of one of the models of an evaluation's summary."""
    first = summary.models[0]
    teacher = Scores() if model is first else first
    notes = _notes_on_rows(summary)
    rows = []
    for column in summary.columns:
        figure = model.columns.get(column.key)
        if figure is not None and not column.detail:
            share = share_kept(column.key, model, teacher)
            rows.append(TaskScore(column, figure, teacher.columns.get(column.key), share, _dataset(column, notes)))
    name = "" if model is first else first.name
    return TaskScores(str(summary.preset), name, tuple(rows), tuple(dict.fromkeys(notes.values())), summary.as_is)


def _notes_on_rows(summary: Evaluation) -> dict[tuple[str, str], str]:
    """Return the first note on scores of other rows than the published ones, by task and split."""
    notes: dict[tuple[str, str], str] = {}
    for column in summary.columns:
        task = column.task
        if task is None or task not in DEFINITIONS:
            continue
        for split in _splits_of(column):
            start = f"{DEFINITIONS[task].task.title} {split}: "
            for note in summary.notes:
                if note.startswith(start) and _OTHER_ROWS.search(note):
                    notes.setdefault((task, split), note)
    return notes


def _dataset(column: Column, notes: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the place of the rows on the Hub if all of them were scored, else the task's own name."""
    task = str(column.task)
    splits = _splits_of(column)
    # A score of other rows would be a wrong claim about the data set of the Hub.
    place = None
    if task in DEFINITIONS and all((task, split) not in notes for split in splits):
        place = DEFINITIONS[task].on_hub(splits[0])
    if place is None:
        return {"type": task, "name": column.title}
    hub, split = place
    config = {"config": split.config} if split.config else {}
    return {"type": hub.name, "name": column.title, **config, "split": split.split}


def _splits_of(column: Column) -> list[str]:
    """Return the splits whose rows a column is of, without the variants of sentence vectors."""
    return [split.partition("@")[0] for split in column.splits]


def hub_results(scores: TaskScores) -> Iterator[EvalResult]:
    """Yield scores on tasks as the Hub has them, all as shares."""
    for row in scores.rows:
        kind = str(row.column.kind)
        how = f"fine-tuned, preset {scores.preset}"
        if KINDS[kind].of_vectors:
            how = "cosine of sentence vectors"
        elif scores.as_is:
            how = "as it is"
        task_type = _VECTOR_TASKS[kind] if KINDS[kind].of_vectors else HEADS[own_kind_like(kind)]["pipeline_tag"]
        dataset = {key: one_line(value) for key, value in row.dataset.items()}
        yield EvalResult(
            task_type=task_type,
            dataset_type=dataset["type"],
            dataset_name=dataset["name"],
            dataset_config=dataset.get("config"),
            dataset_split=dataset.get("split"),
            metric_type=hub_metric(row.column.metric),
            metric_name=f"{metric_name(row.column.metric)} ({how})",
            metric_value=round(row.student.mean / 100, 4),
        )
