"""Files of targets that a recipe names, read and checked before its models are planned.

A large file takes minutes. Reading it here, where progress can be shown, puts it into limbeck's cache as a store, which
the plan of a run then finds there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limbeck.corpus.progress import Progress
from limbeck.recipe.models import TeacherSpec
from limbeck.recipe.schema import Recipe
from limbeck.targets.file_store import store_of_file


def read_target_files(teachers: Iterable[TeacherSpec], progress: Progress) -> None:
    """Read the files of targets among some teachers, unless their content is in the cache already.

    Args:
        teachers: The teachers.
        progress: Receives the progress; nothing is reported where nothing is read.

    Raises:
        CorpusError: for a file that cannot be read, and the first row that no student could learn.
    """
    for teacher in teachers:
        if teacher.target_file is not None:
            store_of_file(teacher.target_file, progress)


def teachers_of(recipe: Recipe) -> Iterator[TeacherSpec]:
    """Iterate over the teachers of a recipe and of its stages."""
    if recipe.teachers is None:
        yield recipe.teacher
    else:
        yield from recipe.teachers.values()
    for stage in recipe.stages:
        if stage.teacher is not None:
            yield stage.teacher
