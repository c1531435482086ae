"""The cards of a run: of its student, and of every student that a stage made for itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.export.source import RUN_STUDENT, head_of
from limbeck.models.loading import load_config
from limbeck.report.model_card import write_model_card
from limbeck.report.task_scores import find_scores
from limbeck.training.record_file import RECORD, read_record
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
    student = student.resolve()
    if student.name != RUN_STUDENT:
        return {}
    of_stage = student.parents[1].name == STAGES
    run = student.parents[2] if of_stage else student.parent
    record = read_record(run) if (run / RECORD).is_file() else {}
    return record_of(student, record) if record else {}


def record_of(student: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's record as the card of one of its students tells it.

    A stage's own student has that stage alone, and was not measured beside the run's teacher.

    Args:
        student: The student's folder, by the name that the run gave it.
        record: The run's record.
    """
    folder = student.resolve().parent
    if folder.parent.name != STAGES:
        return dict(record)
    stages = [stage for stage in record.get("stages") or [] if isinstance(stage, Mapping)]
    number, _, title = folder.name.partition("-")
    index = int(number) - 1 if number.isdigit() else -1
    if not 0 <= index < len(stages):
        return dict(record)
    stage = stages[index]
    own = {key: value for key, value in stage.items() if key not in ("student", "teacher")}
    made: Mapping[str, Any] = stage.get("student") or {}
    teacher = {"name_or_path": stage["teacher"]} if stage.get("teacher") else record.get("teacher")
    return {
        **record,
        "name": f"{record.get('name')}, {title}",
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
