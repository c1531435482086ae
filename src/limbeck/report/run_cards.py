"""The cards of a run: of its student, and of every student that a stage made for itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import RECORD, read_record
from limbeck.errors import LimbeckError
from limbeck.export.source import RUN_STUDENT, head_of
from limbeck.models.loading import load_config
from limbeck.report.model_card import write_model_card
from limbeck.report.records import title_of
from limbeck.report.task_scores import find_scores
from limbeck.training.run import STAGES


def write_run_cards(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the card of a run's student, and those of its stages' own students, such as teacher assistants.

    Scores on tasks are in them where the run has been evaluated, so calling this again after an evaluation brings the
    cards up to date.

    Args:
        record: The run's record.
        folder: The run's folder.

    Returns:
        The paths of the cards.
    """
    students = [folder / RUN_STUDENT, *sorted((folder / STAGES).glob(f"*/{RUN_STUDENT}"))]
    return [
        write_model_card(record_of(student, record), student, scores=find_scores(student))
        for student in students
        if student.is_dir()
    ]


def find_record(student: Path) -> dict[str, Any]:
    """Return the record of the run that made a student, as far as it is about that student; empty where there is none.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    run = run_of(student)
    record = read_record(run) if run is not None else {}
    return record_of(student.resolve(), record) if record else {}


def run_of(student: Path) -> Path | None:
    """Return the folder of the run that made a student; None where no run did.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    student = student.resolve()
    if student.name != RUN_STUDENT or len(student.parents) < 3:
        return None
    run = student.parents[2] if student.parents[1].name == STAGES else student.parent
    return run if (run / RECORD).is_file() else None


def record_of(student: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's record as the card of one of its students tells it.

    A stage's own student has that stage alone, and was not measured beside the run's teacher.

    Args:
        student: The student's folder, by the name that the run gave it.
        record: The run's record.
    """
    folder = student.resolve().parent
    if folder.parent.name != STAGES:
        return {**record, "name": title_of(record.get("name"), folder)}
    name = title_of(record.get("name"), folder.parents[1])
    stages = [stage for stage in record.get("stages") or [] if isinstance(stage, Mapping)]
    number, _, title = folder.name.partition("-")
    index = int(number) - 1 if number.isdigit() else -1
    if not 0 <= index < len(stages):
        return {**record, "name": name}
    stage = stages[index]
    own = {key: value for key, value in stage.items() if key not in ("student", "teacher", "teacher_facts")}
    made: Mapping[str, Any] = stage.get("student") or {}
    facts = stage.get("teacher_facts")
    # The recipe's teacher, whose name on the Hub an old record leaves to be found, is not that of such a stage.
    own_teacher = {"hub_id": None, **(facts if isinstance(facts, Mapping) else {})}
    teacher = {"name_or_path": stage["teacher"], **own_teacher} if stage.get("teacher") else record.get("teacher")
    return {
        **record,
        "name": f"{name}, {title}",
        "teacher": teacher,
        "student": {**made, "head": _head(student)},
        "stages": [own],
        "untrained": None,
        "evaluation": None,
    }


def _head(student: Path) -> str | None:
    try:
        return head_of(load_config(student))
    except LimbeckError:
        return None
