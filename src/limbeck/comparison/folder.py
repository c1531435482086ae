"""The folder of a comparison, and what its plan names: all that is checked before torch is imported."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.comparison.plan import ComparisonPlan
from limbeck.core import folders, paths, studies
from limbeck.errors import OutputError
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.models.weight_files import check_not_pickled
from limbeck.recipe.facts import check_corpus, check_student
from limbeck.recipe.known_by_content import without_places

EVALUATION = "evaluation"
"""Folder of the evaluation in that of the comparison."""
_MEANINGS = {
    "training": "training arguments common to all runs",
    "evaluation": "evaluation (preset and settings)",
    "teacher_weights": "teacher's weights",
    "text": "text of the corpus",
    "content": "text of the corpus",
}
"""Titles of what all runs share, by its name in the record; other names are their own titles."""


def check_fixed(folder: Path, saved: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to put runs beside others that they cannot be compared with.

    Args:
        folder: The folder of the comparison.
        saved: Its record, plain values.
        asked: What has to be the same for all runs in it, by name; plain values.

    Raises:
        OutputError: naming the first difference, and the way out.
    """
    fixed = saved.get("fixed", {})
    if not isinstance(fixed, dict):
        raise OutputError(
            f"'{folder / studies.Comparison.FILE}' is not the record of a comparison; choose another folder."
        )
    common = [name for name in fixed if name in asked]
    before = {name: fixed[name] for name in common}
    now = {name: asked[name] for name in common}
    if fixed_at_first(saved):
        # Models and text are known by their content, so their folders may have moved.
        before = without_places(before)
        now = without_places(now)
    difference = folders.first_difference(before, now)
    if difference is None:
        return
    name, _, setting = difference.place.partition(".")
    prefix = f"{setting} = " if setting else ""
    raise OutputError(
        f"The {_MEANINGS.get(name, name)} of the comparison in '{folder}' was {prefix}{_shown(difference.old)} and is "
        f"now {prefix}{_shown(difference.new)}, so new runs could not be compared with its own; put it back, or give "
        "another --output."
    )


def known_teacher(saved: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the teacher in a comparison's record; None in records without it."""
    fixed = saved.get("fixed")
    if not isinstance(fixed, dict):
        return None
    fingerprint = fixed.get("teacher_weights")
    return fingerprint if isinstance(fingerprint, str) else None


def fixed_at_first(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return teacher and corpus as a comparison that knows them by their content began with them; else nothing."""
    fixed = saved.get("fixed")
    if not isinstance(fixed, dict) or not {"content", "teacher_weights"} <= fixed.keys():
        return {}
    return {name: fixed[name] for name in ("teacher", "corpus") if name in fixed}


def _shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)


COMPARISON = folders.FolderKind(
    "comparison",
    studies.Comparison.FILE,
    check_fixed,
    way_out="put it back, or choose another folder",
    beside=frozenset({paths.INPUTS}),
)


def request_evaluation(
    spec: MeasuresSpec, folder: Path, *, teacher: str | None, students: Sequence[Path]
) -> EvaluationRequest:
    """Return the request for `limbeck evaluate`.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The model to compare with, if it is evaluated.
        students: The students' folders.
    """
    data = None  # The Hub's.
    if spec.data is not None and spec.data.lower() != "hub":
        data = Path(spec.data).expanduser()
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


def check_places(plan: ComparisonPlan, output: Path | None) -> None:
    """Refuse what a plan names and is nowhere: models, text, tasks, their files; and a folder of something else.

    Args:
        plan: The plan.
        output: The comparison's folder; None where nothing is run.

    Raises:
        LimbeckError: one line for the first.
    """
    check_not_pickled(plan.teacher.model)
    for student in plan.students:
        check_student(student)
    check_corpus(plan.corpus)
    if plan.evaluation.tasks:
        request_evaluation(plan.evaluation, Path(), teacher=None, students=[]).check_tasks()
    if output is not None:
        COMPARISON.look(output.expanduser())
