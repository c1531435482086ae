"""What a recipe names, checked before torch is imported: models, shapes, text, tasks' files and training arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks import TASKS, check_data, is_own_task
from limbeck.models.blueprint import depth_alone, parse_blueprint
from limbeck.models.locating import check_not_pickled
from limbeck.recipe.schema import CorpusSpec, Recipe, ShapeSpec, StudentSpec
from limbeck.recipe.training_fields import check_fields

_NO_PATHS = ("installed-docs", "installed-text", "hub")
"""Beginnings of sources that are no paths."""


def check_places(recipe: Recipe) -> None:
    """Refuse models and text that are nowhere, shapes that cannot be read, and training arguments that no run has.

    `limbeck.recipe.plan.plan_run` checks the same among all else, once the models' configurations are read.

    Args:
        recipe: The recipe.

    Raises:
        LimbeckError: one line for the first.
    """
    check_not_pickled(recipe.teacher.model)
    check_student(recipe.student)
    # Without stages a student is compared with its teacher on it.
    if recipe.corpus is not None and (not recipe.stages or any(stage.corpus is None for stage in recipe.stages)):
        check_corpus(recipe.corpus)
    for index, stage in enumerate(recipe.stages):
        place = f"stages.{index}"
        check_fields(stage.training, f"{place}.training")
        if stage.teacher is not None and stage.teacher.stage is None:
            check_not_pickled(stage.teacher.model)
        if stage.student is not None:
            with _at(f"{place}.student"):
                check_student(stage.student)
        if stage.corpus is not None:
            with _at(f"{place}.corpus"):
                check_corpus(stage.corpus)
    check_data(None if recipe.evaluation.data is None else Path(recipe.evaluation.data).expanduser())


def check_choice(teacher: str | Path, student: Any, corpus: Sequence[str | Path]) -> None:
    """Refuse what a recipe cannot be chosen for, as far as that shows without torch; see `choosing.choose_recipe`.

    Args:
        teacher: A folder, `package:NAME` or a Hub name.
        student: A shape; a number alone is that many of the teacher's layers.
        corpus: Sources of text or rows, or the name of a task.

    Raises:
        LimbeckError: one line for the first.
    """
    check_not_pickled(str(teacher))
    if depth_alone(student) is None:
        parse_blueprint(student)
    for source in map(str, corpus):
        if source not in TASKS and not is_own_task(source):
            _check_source(source)


def check_student(student: StudentSpec) -> None:
    """Refuse a shape that cannot be read, and a checkpoint that is nowhere.

    Raises:
        ModelError: for either.
    """
    shape = student.shape
    written = shape.model_dump(exclude_none=True) if isinstance(shape, ShapeSpec) else shape
    if depth_alone(written) is None:  # A number alone is of the teacher's layers.
        parse_blueprint(written)
    if student.initialise.checkpoint is not None:
        check_not_pickled(student.initialise.checkpoint)


def check_corpus(corpus: CorpusSpec) -> None:
    """Refuse text and development rows that are nowhere.

    Raises:
        CorpusError: for the first.
    """
    check_data(None if corpus.data is None else Path(corpus.data).expanduser())
    for source in (*corpus.places, *(corpus.development or ())):
        _check_source(source)


def _check_source(source: str) -> None:
    if has_magic(source) or source.partition(":")[0] in _NO_PATHS:
        return
    if not Path(source).expanduser().exists():
        from limbeck.corpus.sources import check_source  # It knows what is no path, and how to say what is near.

        check_source(source)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in the recipe before a refusal."""
    try:
        yield
    except LimbeckError as error:
        raise type(error)(f"{place}: {error}") from None
