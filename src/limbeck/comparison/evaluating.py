"""Evaluating the students of a comparison on its tasks, by `limbeck evaluate`'s own cells, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.comparison.measures import MeasuresSpec, SpeedSpec
from limbeck.core.files import default_cache_dir, write_atomically
from limbeck.core.machine import choose_device
from limbeck.core.progress import Report
from limbeck.errors import CorpusError
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.experiments.plan import EvaluationRequest, Planner, measure_costs, parse_overrides
from limbeck.experiments.run import EvaluationOutcome, run_evaluation
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config

EVALUATION = "evaluation"
COSTS = "costs.json"


def request_evaluation(
    spec: MeasuresSpec, folder: Path, *, teacher: str | None, students: Sequence[Path]
) -> EvaluationRequest:
    """Return what is asked of `limbeck evaluate`.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The model to compare with, if it is evaluated.
        students: The students' folders.
    """
    data = None if spec.data is None or spec.data.lower() == "hub" else Path(spec.data).expanduser()
    return EvaluationRequest(
        models=tuple(map(str, students)),
        tasks=",".join(spec.tasks),
        output=folder / EVALUATION,
        data=data,
        preset=spec.preset,
        seeds=spec.seeds,
        teacher=teacher,
        workers=spec.workers,
        overrides=spec.overrides,
    )


def check_tasks(spec: MeasuresSpec, *, read: bool) -> list[str]:
    """Check tasks and settings, before hours go into students that could not be evaluated.

    Args:
        spec: The plan's.
        read: Read the tasks' rows too; where they are in a folder they are in any case.

    Returns:
        The tasks' names, groups expanded.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
    """
    if not spec.tasks:
        return []
    request = request_evaluation(spec, Path(), teacher=None, students=[])
    names = request.task_names()
    overrides = parse_overrides(request.overrides, request.short_names())
    if request.data is not None and not request.data.is_dir():
        raise CorpusError(f"The data folder '{request.data}' does not exist.")
    planner = Planner(
        models=(),
        protocol=PROTOCOLS[spec.preset],
        overrides=overrides,
        seeds=spec.seeds,
        data=request.data,
        cache_dir=default_cache_dir(),
        bf16=False,
        finished=(),
    )
    for name in names if read or request.data is not None else ():
        planner.plan(name)
    return names


def evaluate_students(
    spec: MeasuresSpec, folder: Path, *, teacher: str, students: Sequence[Path], report: Report
) -> EvaluationOutcome | None:
    """Evaluate students on the plan's tasks; cells that are finished are not run again.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The teacher.
        students: The students' folders.
        report: Is told how far it is.

    Returns:
        None without tasks or students.
    """
    if not spec.tasks or not students:
        return None
    compared = teacher if spec.teacher else None
    return run_evaluation(request_evaluation(spec, folder, teacher=compared, students=students), report)


def measure_costs_once(
    spec: SpeedSpec, folder: Path, *, teacher: str, students: Mapping[str, Path], report: Report
) -> dict[str, Any] | None:
    """Measure the teacher and a student of each shape, unless that has been done.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The teacher; speedups refer to it.
        students: A student's folder for each title.
        report: Is told how far it is.

    Returns:
        As `measure_costs`, with the students' titles in place of their folders; None where it was not asked for.
    """
    if not spec.enabled or not students:
        return None
    shapes = {title: str(shape_of(load_config(path))) for title, path in students.items()}
    asked = {**spec.model_dump(exclude={"enabled"}), "teacher": teacher, "students": shapes}
    path = folder / COSTS
    if path.is_file():
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if saved["asked"] == asked:
            return saved["costs"]
    found = measure_costs(
        [teacher, *map(str, students.values())],
        device=choose_device(spec.device),
        batch_sizes=spec.batch_sizes,
        lengths=spec.lengths,
        seconds=spec.seconds,
        report=report,
    )
    titles = {str(path): title for title, path in students.items()}
    for row in (*found["models"], *found["timings"]):
        row["model"] = titles.get(row["model"], row["model"])
    write_atomically(path, json.dumps({"asked": asked, "costs": found}, indent=2) + "\n")
    return found
