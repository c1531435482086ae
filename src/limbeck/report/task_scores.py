"""The scores of one student on tasks, out of the tables of `limbeck evaluate`, as its card shows them.

A *column* of these tables is a task with its main metric. A *split* is a part of a task's data, such as `validation`.
A model card names the data set on the Hub that a score belongs to, which is true only if all rows of that data set were
scored: notes of the evaluation tell where other rows were.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import EvalResult

from limbeck.core.escaping import one_line
from limbeck.core.intervals import Interval
from limbeck.core.kinds import KINDS, own_kind_like
from limbeck.core.paths import EVALUATION_TABLE
from limbeck.core.records import load
from limbeck.core.studies import Column, ColumnFigure, EvaluatedModel, Evaluation, Scores
from limbeck.errors import RecipeError
from limbeck.evaluation.plan.columns import headings_of_split
from limbeck.evaluation.tasks.registry import ASSEMBLED, DEFINITIONS, DRAWN, PUBLISHED
from limbeck.evaluation.tasks.repeated_rows import TOO_GOOD
from limbeck.report.card import HEADS, hub_metric
from limbeck.report.chance import guesser_sentence
from limbeck.report.names import metric_of_column
from limbeck.report.scores import interval_of, is_at_chance, one_answer_clause, share_kept

_OTHER_COUNT = re.compile(rf"\({PUBLISHED} ")
"""Found in `SQuAD 1.1 validation: 2 rows (the published set has 10,570)`."""
_OTHER_COUNT_BEFORE = re.compile(r"rows?, but [\d,]+ are published")
"""The same as earlier versions wrote it: `2 rows, but 10,570 are published`."""
_DRAWN = re.compile(rf", {DRAWN}$")
"""Found in `Retrieval test: 5 of 11 queries, drawn`."""
_MISSING_PARTS = re.compile(rf"(?:made of|{ASSEMBLED}) \d+ of its \d+ parts")
"""Found in `XNLI validation: assembled from 2 of its 15 parts`; earlier versions wrote `made of`."""
_OTHER_ROWS = (_OTHER_COUNT, _OTHER_COUNT_BEFORE, _DRAWN, _MISSING_PARTS)
"""Patterns of the notes that say that a score is not over all published rows, or over others."""
_VECTOR_TASKS = {"similarity": "sentence-similarity", "retrieval": "information-retrieval"}
"""The Hub's names of our kinds of tasks that compare sentence vectors."""


@dataclass(frozen=True)
class ScoredRows:
    """The rows that a score is over, by the fields that a model card on the Hub has for a data set.

    Attributes:
        type: Name of the data set on the Hub; where other rows were scored, our name of the task.
        name: Title of the task's column.
        config: Configuration of the data set on the Hub, if it has several.
        split: Split of the data set on the Hub; where other rows were scored, that of our task.
    """

    type: str
    name: str
    config: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class TaskScore:
    """A student's main score on one task.

    Attributes:
        column: The column of the evaluation, with the title of the task and its metric.
        student: The student's score.
        teacher: The score of the teacher, which is the first model of the evaluation; None where this is the student.
        share: The student's share of the teacher's score, in percent; None without a teacher, and where one of the
            scores is meaningless, since its model gives all rows one answer.
        interval: The 95 % interval of the student's score; None where there is none.
        dataset: The scored rows.
        is_at_chance: Whether the student's score is not clearly above that of a model that does not read the rows.
        is_too_good: Whether some of the scored rows repeat a row that was trained on.
    """

    column: Column
    student: ColumnFigure
    teacher: ColumnFigure | None
    share: float | None
    interval: Interval | None
    dataset: ScoredRows
    is_at_chance: bool = False
    is_too_good: bool = False

    @property
    def guesser(self) -> str:
        """The guesser beside the score, and a warning of a student at chance; empty where there is no guesser."""
        sentence = guesser_sentence(self.column, self.student)
        # Another note calls a meaningless score so.
        if sentence and self.is_at_chance and not self.student.is_meaningless:
            sentence += (
                " The student's score is not clearly above it. So nothing shows that the student has learned the task."
            )
        return sentence

    @property
    def one_answer(self) -> str:
        """A sentence on a meaningless score, with the number of runs that give all rows one answer; else empty."""
        if not self.student.is_meaningless:
            return ""
        return f"{self.column.title}: {one_answer_clause(self.student)}."


@dataclass(frozen=True)
class TaskScores:
    """A student's scores on all tasks of an evaluation.

    Attributes:
        preset: Name of the protocol of fine-tuning and scoring.
        teacher: Name of the teacher, the first model of the evaluation; empty where this is the student.
        rows: The score on each task.
        notes: Notes of the evaluation on splits of which not all published rows were scored, or of which some repeat a
            row that was trained on.
        as_is: Whether the student was scored with the head that it has; else it was fine-tuned on each task.
    """

    preset: str
    teacher: str
    rows: tuple[TaskScore, ...]
    notes: tuple[str, ...] = ()
    as_is: bool = False

    def without(self, splits: Collection[tuple[str, str]]) -> "TaskScores":
        """Return the scores that are over no row of some splits, with the notes on these scores alone.

        Args:
            splits: The task and the split of rows, such as those that chose the step of the student.
        """
        rows = tuple(row for row in self.rows if not _is_over(row.column, splits))
        if len(rows) == len(self.rows):
            return self
        notes: list[str] = []
        for row in rows:
            row_notes = [*_notes_on_other_rows(row.column, self.notes), *_notes_on_repeats(row.column, self.notes)]
            notes += [note for note in row_notes if note not in notes]
        return replace(self, rows=rows, notes=tuple(notes))


def find_scores(student: Path, evaluation: Path | None = None) -> TaskScores | None:
    """Return the scores of a student; None where it has not been evaluated.

    Args:
        student: Folder of the student.
        evaluation: Folder of an evaluation that has the student among its models. With None, an evaluation is looked
            for where `limbeck evaluate` and `limbeck compare` write it.

    Raises:
        RecipeError: if `evaluation` holds no tables, or if the student is not in them.
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
        raise RecipeError(
            f"--evaluation '{evaluation}' has no scores of '{student}', only of {names}; give an evaluation of "
            "this student."
        )
    return scores


def _look_for_scores(student: Path) -> TaskScores | None:
    """Return a student's scores out of the newest evaluation near its run that has them; None where none has."""
    # `limbeck evaluate` writes into a folder of the run. A comparison has its runs in `runs`, and beside that folder
    # its evaluation.
    run = student.resolve().parent
    tables = sorted(run.glob(f"*/{EVALUATION_TABLE}"), key=_time_of_change, reverse=True)
    folders = [table.parent for table in tables]
    folders.append(run.parent.parent / "evaluation")
    for folder in folders:
        # A folder without tables gives an empty summary.
        summary = load(Evaluation, folder)
        if not _has_scores(summary):
            continue
        scores = scores_of(student, summary)
        if scores is not None:
            return scores
    return None


def _time_of_change(path: Path) -> int:
    """Return the time of a file's last change, in nanoseconds."""
    return path.stat().st_mtime_ns


def _has_scores(summary: Evaluation) -> bool:
    """Return whether a summary has scores; one that measured only costs, or of a folder without tables, has none."""
    return summary.preset is not None and bool(summary.models) and bool(summary.columns)


def scores_of(student: Path, summary: Evaluation) -> TaskScores | None:
    """Return a student's scores out of an evaluation's summary; None where it is not among the models.

    Args:
        student: Folder of the student.
        summary: Summary of the evaluation, which names its models as the user did.
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
        # A name of one part, such as `student`, is compared by its whole path only: many folders have it.
        if len(path.parts) > 1 and parts[-2:] == folder_parts[-2:]:
            namesakes.append(model)
    return namesakes[0] if len(namesakes) == 1 else None


def scores_of_model(model: EvaluatedModel, summary: Evaluation) -> TaskScores:
    """Return the scores of one of the models of an evaluation's summary, beside those of the first model.

    Args:
        model: The very object that stands in `summary.models`.
        summary: Summary of the evaluation.
    """
    # The first model is the teacher of the others. If this model is the first, it has no teacher.
    teacher = Scores()
    teacher_name = ""
    first = summary.models[0]
    if model is not first:
        teacher = first
        teacher_name = first.name

    rows = []
    notes: list[str] = []
    for column in summary.columns:
        # Columns may share a split, such as that of one language and that of the mean of all. A note on it is listed
        # once, and also for a column that has no row below.
        notes_on_other_rows = _notes_on_other_rows(column, summary.notes)
        notes_on_repeats = _notes_on_repeats(column, summary.notes)
        notes += [note for note in (*notes_on_other_rows, *notes_on_repeats) if note not in notes]
        figure = model.columns.get(column.key)
        # A detail is a part of another column, such as one language of a mean over several.
        if figure is None or column.detail:
            continue
        are_published_rows = not notes_on_other_rows
        score = TaskScore(
            column=column,
            student=figure,
            teacher=teacher.columns.get(column.key),
            share=share_kept(column.key, model, teacher),
            interval=interval_of(column.key, model),
            dataset=_scored_rows(column, are_published=are_published_rows),
            is_at_chance=is_at_chance(column.key, model),
            # A note on repeats says that some of these rows repeat rows that were trained on.
            is_too_good=bool(notes_on_repeats),
        )
        rows.append(score)
    return TaskScores(
        preset=str(summary.preset),
        teacher=teacher_name,
        rows=tuple(rows),
        notes=tuple(notes),
        as_is=summary.as_is,
    )


def _notes_on_other_rows(column: Column, notes: Sequence[str]) -> list[str]:
    """Return the notes on the splits of a column of which other rows than the published ones were scored.

    Args:
        column: The column of the evaluation.
        notes: All notes of the evaluation.

    Returns:
        One note for each such split: the first.
    """
    # A task of the user's own has no published rows.
    if column.task is None or column.task not in DEFINITIONS:
        return []
    title = DEFINITIONS[column.task].task.title
    notes_on_other_rows = []
    for split in _splits_of(column):
        # Notes on the rows of a split begin with the task's title and the split: `XNLI validation: …`.
        for note in notes:
            is_on_split = note.startswith(f"{title} {split}: ")
            if is_on_split and any(pattern.search(note) for pattern in _OTHER_ROWS):
                notes_on_other_rows.append(note)
                break
    return notes_on_other_rows


def _notes_on_repeats(column: Column, notes: Sequence[str]) -> list[str]:
    """Return the notes on the splits of a column of which some rows repeat a row that was trained on.

    Args:
        column: The column of the evaluation.
        notes: All notes of the evaluation.
    """
    notes_on_repeats = []
    for note in notes:
        for split in _splits_of(column):
            # A note begins with the title of its task and the split.
            title, _, text = note.partition(f" {split}: ")
            if TOO_GOOD in text and column.title in headings_of_split(title, split):
                notes_on_repeats.append(note)
    return notes_on_repeats


def _scored_rows(column: Column, *, are_published: bool) -> ScoredRows:
    """Return the rows of a column by their place on the Hub, or by the task's own name.

    Args:
        column: The column of the evaluation.
        are_published: Whether the published rows were scored, and all of them. If not, the Hub's data set is not named,
            since the score does not belong to it.
    """
    task = str(column.task)
    place = None
    if are_published and task in DEFINITIONS:
        # A result on the Hub has one split. For a mean over several splits, the first is named.
        splits = _splits_of(column)
        place = DEFINITIONS[task].on_hub(splits[0])
    # Tasks of the user's own, and some splits of ours, are not on the Hub: they have the task's own names. Without the
    # split, the scores of two splits of a task could not be told apart.
    if place is None:
        return ScoredRows(type=task, name=column.title, split=", ".join(names_of_splits(column)) or None)
    data_set, split = place
    return ScoredRows(type=data_set.name, name=column.title, config=split.config or None, split=split.split)


def _splits_of(column: Column) -> list[str]:
    """Return the splits whose rows a column is over.

    A split that was scored with a variant of the sentence vectors, such as shorter ones, is recorded as
    `SPLIT@VARIANT`; the variant is left out here, since its rows are the same.
    """
    return [split.partition("@")[0] for split in column.splits]


def _is_over(column: Column, splits: Collection[tuple[str, str]]) -> bool:
    """Return whether a column is over rows of some splits.

    Args:
        column: The column of the evaluation.
        splits: The task and the split of rows. The split may name another task too: `mnli:validation_matched`.
    """
    for task, split in splits:
        other_task, _, split_of_other_task = split.rpartition(":")
        if column.task != (other_task or task):
            continue
        for split_of_column in _splits_of(column):
            # A split such as `validation` of XNLI is made of parts, one a language: `validation.de`.
            if split_of_column == split_of_other_task or split_of_column.startswith(f"{split_of_other_task}."):
                return True
    return False


def names_of_splits(column: Column) -> list[str]:
    """Return the names of the splits of a column without their languages, each once: `test` for `test.de.en`."""
    names = [split.partition(".")[0] for split in _splits_of(column)]
    return list(dict.fromkeys(names))


def hub_results(scores: TaskScores) -> Iterator[EvalResult]:
    """Yield the scores as results for a model card's front matter: values from 0 to 1, under the Hub's names.

    A meaningless score, of a student that gives all rows one answer, is left out. So is one that is not clearly above
    that of a guesser, and one over rows that were trained on, since the Hub shows neither beside it.
    """
    for row in scores.rows:
        if row.student.is_meaningless or row.is_at_chance or row.is_too_good:
            continue
        kind = str(row.column.kind)
        if KINDS[kind].of_vectors:
            task_type = _VECTOR_TASKS[kind]
            method = "cosine of sentence vectors"
        else:
            # A kind of task from a plugin has the Hub's name of the built-in kind that it is like.
            task_type = HEADS[own_kind_like(kind)]["pipeline_tag"]
            method = f"fine-tuned, preset {scores.preset}"
            if scores.as_is:
                method = "as it is"
        yield EvalResult(
            task_type=task_type,
            dataset_type=one_line(row.dataset.type),
            dataset_name=one_line(row.dataset.name),
            dataset_config=row.dataset.config,
            dataset_split=row.dataset.split,
            metric_type=hub_metric(row.column.metric),
            metric_name=f"{metric_of_column(row.column.metric, row.column)} ({method})",
            # Our figures are in percent.
            metric_value=round(row.student.mean / 100, 4),
        )
