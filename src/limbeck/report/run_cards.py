"""The cards of all students of a run, and the part of the run's record that is about each of them.

A run has a last student, in `student`. A stage with a student of its own, such as a teacher assistant, has it in
`stages/1-NAME/student`.
"""

from pathlib import Path
from typing import Any

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
    students = [folder / STUDENT, *sorted((folder / STAGES).glob(f"*/{STUDENT}"))]
    cards = []
    for student in students:
        if not student.is_dir():
            continue
        record_of_student = _record_of(student, run)
        card = write_model_card(record_of_student, student, scores=find_scores(student))
        cards.append(card)
    return cards


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

    # The folder of a stage is named after its number, from 1, and its name: `2-assistant`.
    run_name = title_of(run.name, folder.parents[1])
    number, _, stage_name = folder.name.partition("-")
    index = -1
    if number.isdigit():
        index = int(number) - 1
    is_recorded = 0 <= index < len(run.stages)
    if not is_recorded:
        return run.model_copy(update={"name": run_name})
    try:
        head = head_of(load_config(student))
    except LimbeckError:
        head = None
    return _record_of_stage(run, index, f"{run_name}, {stage_name}", head)


def _record_of_stage(run: Run, index: int, name: str, head: str | None) -> Run:
    """Return a run's record as if one stage were all of it.

    It has no evaluation, since the evaluation of the run is of the student of its last stage. Times and memory of the
    run are of all stages together, and are left out too.

    Args:
        run: The run's record.
        index: Index of the stage, from 0.
        name: Name of the stage's student.
        head: The kind of the student's head.
    """
    stage = run.stages[index]
    student = (stage.student or records.Student()).model_copy(update={"head": head})
    # Student and teacher of the stage become those of the whole record, so the stage itself names none.
    only_stage = stage.model_copy(update={"student": None, "teacher": None})
    # A damaged recipe may lack the stage.
    planned_stages = []
    if index < len(run.recipe.stages):
        planned_stages = [run.recipe.stages[index].model_copy(update={"student": None})]
    teachers = _several_teachers_of_stage(run, stage)
    return run.model_copy(
        update={
            "name": name,
            "teacher": _teacher_of_stage(run, stage, teachers),
            "teachers": teachers,
            "student": student,
            "stages": [only_stage],
            "recipe": run.recipe.model_copy(update={"stages": planned_stages}),
            "untrained": None,
            "evaluation": None,
            "ended_early": _early_end_of_stage(run, stage),
            "steps_changes": [change for change in run.steps_changes if change.stage == stage.name],
            "timings": {},
            "peak_memory_bytes": None,
            "peak_device_memory_bytes": None,
        }
    )


def _early_end_of_stage(run: Run, stage: records.Stage) -> records.EarlyEnd | None:
    """Return the early end of a stage; None where it took all its steps. Stages that were skipped are not about it."""
    end = run.ended_early
    if end is None or end.stage != stage.name or end.step is None:
        return None
    return end.model_copy(update={"skipped": []})


def _several_teachers_of_stage(run: Run, stage: records.Stage) -> list[records.RunTeacher]:
    """Return those of several teachers that taught a stage; empty for a stage that names its own teacher."""
    teachers = []
    for teacher in run.teachers:
        if stage.name in teacher.taught and not stage.teacher:
            taught = {stage.name: teacher.taught[stage.name]}
            teachers.append(teacher.model_copy(update={"taught": taught}))
    return teachers


def _teacher_of_stage(run: Run, stage: records.Stage, teachers: list[records.RunTeacher]) -> records.Teacher:
    """Return the facts of a stage's teacher, which is the run's unless the stage names another.

    Args:
        run: The run's record.
        stage: The stage.
        teachers: Those of several teachers that taught the stage; the first of them is its teacher.
    """
    if teachers and teachers[0].name != run.teachers[0].name:
        return records.Teacher.read({"name_or_path": teachers[0].title, "hub_id": None})
    if not stage.teacher:
        return run.teacher
    # Without `hub_id`, as in records of earlier versions, a card looks for the teacher's name on the Hub in the recipe.
    # The recipe names the run's teacher, which did not teach this stage: so None stands in, unless the name is known.
    teacher: dict[str, Any] = {"name_or_path": stage.teacher, "hub_id": None}
    if stage.teacher_facts:
        teacher |= stage.teacher_facts.to_dict()
    return records.Teacher.read(teacher)
