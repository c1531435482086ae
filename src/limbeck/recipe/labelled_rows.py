"""Labelled rows of a recipe: those of tasks known by name, development rows, and the classes that number them.

A task is either *known by name* (one of limbeck's own, such as `rte`, or a task file) or *described* by the recipe,
with the columns of its files. Development rows are not trained on; both models are scored on them. Rows are *numbered*:
a class is learned as the number of its name in a list, the labels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from transformers import PreTrainedConfig

from limbeck.core.metric_names import problem_of_positive
from limbeck.core.mistakes import explain
from limbeck.corpus.files.file_kinds import TableLayout
from limbeck.corpus.rows.first_rows import FirstRows, read_first_rows
from limbeck.corpus.settings import CorpusSpec, LabelledSettings, TaskSpec
from limbeck.corpus.sources.named_sources import holds_texts_alone, local_files
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.columns import Columns
from limbeck.kinds.registry import KINDS

_WAY_OUT = "rename the teacher's with teacher.classes"


class Classifier(Protocol):
    """The part of a teacher that numbers rows: its classes."""

    @property
    def title(self) -> str:
        """What messages call it."""

    @property
    def config(self) -> PreTrainedConfig:
        """Its configuration."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its classes."""


def named_rows(corpus: CorpusSpec, task: TaskSpec) -> tuple[TaskRows, TaskRows | None]:
    """The rows of a task that is known by name: the training set, and the development rows if there are any.

    Raises:
        RecipeError: for a recipe that gives another kind than the task has.
    """
    assert task.name is not None
    folder = None
    if corpus.data is not None:
        folder = Path(corpus.data).expanduser()
    rows = TaskRows.of_task(task.name, TRAIN, folder)
    definition = rows.definition
    if definition.kind != task.kind:
        raise RecipeError(
            f"corpus.task: '{task.name}' is now of the kind {definition.kind}, but this recipe says {task.kind}; "
            "leave out corpus.task.kind."
        )

    # `corpus.development` names files that replace the task's own development rows. For a task without such rows, they
    # get the name of the split that it is tuned on.
    files = tuple(corpus.development or ())
    split = definition.development or ""
    if not split and files:
        split = definition.task.select or "validation"
    development = replace(rows, split=split, files=files)
    # With `held_out`, rows of the training set are held out instead.
    has_development = development.is_there and not corpus.held_out
    if not has_development:
        return rows, None
    return rows, development


def described_development(corpus: CorpusSpec, task: TaskSpec, labels: tuple[str, ...]) -> TaskRows:
    """The development rows of a task that the recipe itself describes.

    Args:
        corpus: The corpus, with `development`.
        task: The columns.
        labels: Names of the classes, in the order of their numbers.

    Raises:
        RecipeError: for columns that no task can have.
    """
    # Task files and recipes name columns differently: `columns.pair` of a task file is `pair_column` of a recipe.
    columns: dict[str, Any] = {"text": corpus.text_column}
    for name in Columns.model_fields:
        column = getattr(task, f"{name}_column", None)
        if isinstance(column, str):
            columns[name] = column
    if task.document_columns is not None:
        columns["documents"] = tuple(task.document_columns)
    columns["label_columns"] = tuple(task.label_columns or ())
    columns["label_lists"] = task.label_lists

    _check_positive(task.positive, labels)
    try:
        definition = TaskDefinition(
            name="development",
            type=task.kind,
            columns=Columns(**columns),
            labels=labels,
            metric=task.metric or (),
            positive=task.positive,
            files={"train": "rows", "validation": "rows"},  # Placeholders: the files given below are read.
            no_answers=True,
        )
    except ValidationError as error:
        raise RecipeError(f"corpus.development: {explain(error)}") from None
    layout = TableLayout(tuple(task.columns or ()), task.quotes)
    files = tuple(corpus.development or ())
    return TaskRows(definition, "validation", files=files, layout=layout, columns_of_recipe=True)


def _check_positive(positive: str | None, labels: tuple[str, ...]) -> None:
    """Refuse a positive class that is none of the teacher's classes.

    Raises:
        RecipeError: with the nearest class.
    """
    if positive is None:
        return
    problem = problem_of_positive(positive, labels)
    if problem is not None:
        raise RecipeError(f"corpus.task.{problem}")


def check_rows(settings: LabelledSettings, place: str, *, classes: bool = False, queries: bool = False) -> FirstRows:
    """Read the first rows of a corpus; refuse files without its columns, and training on development rows.

    Args:
        settings: The settings of labelled rows.
        place: The place of the corpus in the recipe, for messages.
        classes: Whether to look for classes without a row, see `read_first_rows`.
        queries: Whether to look for queries with several documents.

    Raises:
        LimbeckError: for development rows in a file that is trained on too, and for rows that cannot be read.
    """
    development = settings.development
    if isinstance(development, TaskRows):
        development_files = set(local_files(development.places()))
        places = settings.places
        if settings.text_of_line is not None:
            # Lines of plain text are rows too, but `local_files` takes files of labelled rows alone.
            places = [source for source in places if not holds_texts_alone(source)]
        shared = [str(file) for file in local_files(places) if file in development_files]
        if shared:
            raise RecipeError(
                f"{place}.development: '{shared[0]}' has the same rows as the training set, so its scores would be "
                "too good; give other rows, or leave 'development' out."
            )
    for rows in (settings.rows, development):
        if isinstance(rows, TaskRows):
            rows.check()
    # Rows of a task that is known by name have the columns and classes of its definition.
    if settings.rows is not None:
        return FirstRows()
    return read_first_rows(settings, KINDS[settings.task], classes=classes, queries=queries)


def with_classes_of(settings: LabelledSettings, teacher: Classifier) -> LabelledSettings:
    """Number the rows, and the development rows, by the classes of a teacher.

    Args:
        settings: The settings of the rows.
        teacher: The teacher whose classes number the rows.

    Returns:
        The settings with the classes in the order of the teacher's outputs.

    Raises:
        ModelError: if the teacher's classes are not those of the task that the rows are of.
    """
    labels: tuple[str, ...] = ()
    if KINDS[settings.task].facts.has_classes:
        labels = teacher.labels
    rows = settings.rows
    development = settings.development
    # A task that is known by its name has rows; one that the recipe describes has at most development rows.
    if isinstance(rows, TaskRows):
        # The task has names of its own for its classes, which are matched with the teacher's.
        match = match_head(teacher.title, teacher.config, rows.definition.task, way_out=_WAY_OUT)
        classes = match.classes or ()
        rows = replace(rows, classes=classes)
        if isinstance(development, TaskRows):
            development = replace(development, classes=classes)
    elif isinstance(development, TaskRows):
        # The recipe describes the task: files use the teacher's names, for training and development rows alike.
        _check_positive(development.definition.positive, labels)
        definition = development.definition.model_copy(update={"labels": labels})
        development = replace(development, definition=definition)
    return settings.model_copy(update={"labels": labels, "rows": rows, "development": development})
