"""The check of a run's teachers: their sentence vectors are compared with sentence-transformers, once in a run."""

from collections.abc import Mapping

from rich.console import Console

from limbeck.models.vector_check import check_vectors, describe_difference
from limbeck.recipe.models import TeacherSpec
from limbeck.training.record import RunRecord


def compare_once(teachers: Mapping[str, TeacherSpec], record: RunRecord, console: Console) -> None:
    """Compare the teachers that a run has not compared yet, print how far they are, and keep it in its record.

    Args:
        teachers: The teachers of sentence vectors, by title.
        record: The run's record.
        console: Where the lines go.

    Raises:
        ModelError: as `check_vectors`.
    """
    known = record.run.teacher_vectors
    new_teachers = {title: spec for title, spec in teachers.items() if title not in known}
    differences = check_vectors(new_teachers)
    for title, difference in differences.items():
        line = f"Sentence vectors of {title}: {describe_difference(difference)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if differences:
        record.set("running", teacher_vectors={**known, **differences})
