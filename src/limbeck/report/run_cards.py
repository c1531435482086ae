"""The cards of all students of a run, and the part of the run's record that is about each of them.

A run has a last student, in `student`. A stage with a student of its own, such as a teacher assistant, has it in
`stages/1-NAME/student`.
"""

from pathlib import Path

from limbeck.core import records
from limbeck.core.paths import STAGES, STUDENT, run_of_student
from limbeck.core.records import Run
from limbeck.errors import LimbeckError
from limbeck.models.heads import head_of
from limbeck.models.loading import load_config
from limbeck.report.names import title_of
from limbeck.report.student_card import RunRecord, write_model_card
from limbeck.report.task_scores import find_scores


def write_run_cards(record: RunRecord, folder: Path) -> list[Path]:
    """Write the card of a run's student, and those of its stages' own students.

    Scores on tasks are in them where the run has been evaluated, so calling this again after an evaluation brings the
    cards up to date.

    Args:
        record: The run's record.
        folder: The run's folder.

    Returns:
        The paths of the cards.
    """
    run = Run.read(record)
    places = [folder / STUDENT, *sorted((folder / STAGES).glob(f"*/{STUDENT}"))]
    students = [place for place in places if place.is_dir()]
    return [write_model_card(_record_of(student, run), student, scores=find_scores(student)) for student in students]


def find_record(student: Path) -> Run | None:
    """Return the record of the run that made a student, as far as it is about that student; None where there is none.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    folder = run_of_student(student)
    if folder is None:
        return None
    run = records.load(Run, folder)
    return None if run.is_empty else _record_of(student.resolve(), run)


def _record_of(student: Path, run: Run) -> Run:
    """Return the part of a run's record that is about one of its students, with the name that the card has.

    Args:
        student: The student's folder: `RUN/student`, or `RUN/stages/1-NAME/student` of a stage with its own student.
        run: The run's record.
    """
    folder = student.resolve().parent
    if folder.parent.name != STAGES:
        return run.model_copy(update={"name": title_of(run.name, folder)})

    # The folder of a stage is named after its number, from 1, and its name.
    run_name = title_of(run.name, folder.parents[1])
    number, _, stage_name = folder.name.partition("-")
    place = int(number) if number.isdigit() else 0
    if not 1 <= place <= len(run.stages):
        return run.model_copy(update={"name": run_name})
    try:
        head = head_of(load_config(student))
    except LimbeckError:
        head = None
    return _record_of_stage(run, place - 1, f"{run_name}, {stage_name}", head)


def _record_of_stage(run: Run, index: int, name: str, head: str | None) -> Run:
    """Return a run's record as if one stage were all of it; its student was not measured beside the run's teacher.

    Args:
        run: The run's record.
        index: Of the stage, from 0.
        name: Of the student.
        head: The kind of its head.
    """
    stage = run.stages[index]
    teacher = run.teacher
    if stage.teacher:
        # The recipe's teacher, whose name on the Hub an old record leaves to be found, is not that of such a stage.
        facts = stage.teacher_facts.to_dict() if stage.teacher_facts else {}
        teacher = records.Teacher.read({"name_or_path": stage.teacher, "hub_id": None, **facts})
    student = (stage.student or records.Student()).model_copy(update={"head": head})
    # The other stages of the recipe made other students. A stage without a student trains the one of its record.
    planned_stages = [planned.model_copy(update={"student": None}) for planned in run.recipe.stages[index : index + 1]]
    return run.model_copy(
        update={
            "name": name,
            "teacher": teacher,
            "student": student,
            "stages": [stage.model_copy(update={"student": None, "teacher": None})],
            "recipe": run.recipe.model_copy(update={"stages": planned_stages}),
            "untrained": None,
            "evaluation": None,
        }
    )
