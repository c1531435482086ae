"""The scores of one student on tasks, out of the tables of `limbeck evaluate`: for its model card."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from limbeck.core.blocks import mean
from limbeck.core.records import load
from limbeck.core.studies import Column, EvaluatedModel, Evaluation
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks import DEFINITIONS
from limbeck.report.evaluation import STEM, metric_name

TABLE = f"{STEM}.json"
_OTHER_ROWS = re.compile(r"rows, but [\d,]+ are published|made of \d+ of its \d+ parts")
_HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "f1_answer": "f1"}


@dataclass(frozen=True)
class TaskScore:
    """A student's main score on one task.

    Attributes:
        title: The task, as tables head it.
        kind: Of the task: `classification`, `regression`, `question_answering` or `similarity`.
        metric: Its metric, as tables head it.
        student: Its score in percent, with the deviation over runs where there are several.
        value: The same as a share.
        teacher: The score of the first model of the evaluation, or None where that is the student.
        kept: What share of that the student keeps, in percent; None where it says nothing.
        hub_metric: The metric's name on the Hub.
        dataset: `type`, `name`, and `config` and `split` where the rows are also on the Hub.
    """

    title: str
    kind: str
    metric: str
    student: str
    value: float
    teacher: str | None
    kept: float | None
    hub_metric: str
    dataset: dict[str, str]


@dataclass(frozen=True)
class TaskScores:
    """A student's scores.

    Attributes:
        preset: The protocol.
        teacher: Name of the first model of the evaluation; empty where that is the student.
        rows: A row a task.
        notes: Where the rows that were scored are not all that are published.
    """

    preset: str
    teacher: str
    rows: tuple[TaskScore, ...]
    notes: tuple[str, ...] = ()


def find_scores(student: Path, evaluation: Path | None = None) -> TaskScores | None:
    """Return the scores of a student, where it has been evaluated.

    Args:
        student: Its folder.
        evaluation: Folder of an evaluation; None looks into the folders in the run's, and where `limbeck compare`
            keeps its own.

    Raises:
        RecipeError: if the folder that is named holds no tables, or none of this student.
    """
    if evaluation is not None:
        summary = _read(evaluation / TABLE)
        if summary is None:
            raise RecipeError(f"--evaluation '{evaluation}' holds no {TABLE}; give a folder of limbeck evaluate.")
        found = scores_of(student, summary)
        if found is None:
            names = ", ".join(model.name for model in summary.models)
            raise RecipeError(f"--evaluation '{evaluation}' has no scores of '{student}'; its models are {names}.")
        return found
    run = student.resolve().parent
    for table in (*sorted(run.glob(f"*/{TABLE}")), run.parent.parent / "evaluation" / TABLE):
        summary = _read(table)
        found = None if summary is None else scores_of(student, summary)
        if found is not None:
            return found
    return None


def scores_of(student: Path, summary: Evaluation) -> TaskScores | None:
    """Pick a student's scores out of an evaluation's summary; None where it is not among the models.

    Args:
        student: Its folder; models are known by their path, or by its last two parts where that has moved.
        summary: Of the evaluation.
    """
    models = summary.models
    own = next((model for model in models if _is(student, model.name)), None)
    if own is None:
        return None
    reference = None if own is models[0] else models[0]
    partly = _partly_read(summary)
    rows = tuple(_rows(summary, own, set(partly)))
    notes = tuple(dict.fromkeys(partly.values()))
    return TaskScores(str(summary.preset), "" if reference is None else reference.name, rows, notes)


def _partly_read(summary: Evaluation) -> dict[tuple[str, str], str]:
    """Task and split of what was scored in part or on other rows than the published ones, with the note on it."""
    found: dict[tuple[str, str], str] = {}
    for column in summary.columns:
        if column.task is not None and column.task in DEFINITIONS:
            for split in column.splits:
                name = f"{DEFINITIONS[column.task].task.title} {split}: "
                own = [note for note in summary.notes if note.startswith(name) and _OTHER_ROWS.search(note)]
                if own:
                    found[column.task, split] = own[0]
    return found


def _rows(summary: Evaluation, own: EvaluatedModel, partly: Collection[tuple[str, str]]) -> Iterator[TaskScore]:
    reference = summary.models[0]
    for column in summary.columns:
        cell = own.columns.get(column.key)
        if cell is None or column.detail:
            continue
        other = reference.columns.get(column.key) if own is not reference else None
        yield TaskScore(
            title=column.title,
            kind=str(column.kind),
            metric=metric_name(column.metric),
            student=str(mean(cell)),
            value=cell.mean / 100,
            teacher=None if other is None else str(mean(other)),
            kept=own.retention.get(column.key),
            hub_metric=_HUB_METRICS.get(column.metric, column.metric),
            dataset=_dataset(column, partly),
        )


def _dataset(column: Column, partly: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the place of the rows on the Hub if all of them were scored, else the task's own name."""
    task = str(column.task)
    whole = task in DEFINITIONS and not any((task, split) in partly for split in column.splits)
    found = DEFINITIONS[task].on_hub(column.splits[0]) if whole else None
    if found is None:
        return {"type": task, "name": column.title}
    hub, split = found
    config = {"config": split.config} if split.config else {}
    return {"type": hub.name, "name": column.title, **config, "split": split.split}


def _is(student: Path, name: str) -> bool:
    path = Path(name).expanduser()
    own, named = student.resolve().parts, path.resolve().parts
    return own == named or (len(path.parts) > 1 and own[-2:] == named[-2:])


def _read(path: Path) -> Evaluation | None:
    found = load(Evaluation, path)
    return found if found.preset is not None and found.models and found.columns else None
