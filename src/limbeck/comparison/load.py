"""`load_plan`: a comparison's plan from YAML, with overrides and errors in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.comparison.plan import ComparisonPlan
from limbeck.core.yaml import read_document
from limbeck.errors import RecipeError
from limbeck.recipe.load import apply_overrides, check_plain
from limbeck.recipe.schema import explain


def load_plan(
    plan: ComparisonPlan | Mapping[str, Any] | str | Path,
    overrides: Sequence[str] = (),
    *,
    data: str | Path | None = None,
) -> ComparisonPlan:
    """Make a checked plan of a path, a dict or a plan.

    Args:
        plan: The plan.
        overrides: `path.to.key=value` each, applied before checking.
        data: Folder with the tasks' files; wins over the plan's.

    Raises:
        RecipeError: one line for the first thing that is wrong, with its place in the plan.
    """
    if isinstance(plan, str | Path):
        given = _read(Path(plan))
    elif isinstance(plan, ComparisonPlan):
        given = plan.model_dump(exclude_unset=True)
    else:
        given = dict(plan)
    check_plain(given)
    changed = apply_overrides(given, overrides)
    check_plain(changed)
    if data is not None:
        evaluation = changed.get("evaluation")
        changed["evaluation"] = {**(evaluation if isinstance(evaluation, dict) else {}), "data": str(data)}
    try:
        return ComparisonPlan.model_validate(changed)
    except ValidationError as error:
        problem = explain(error)
        raise RecipeError(f"plan: {problem.removeprefix('recipe: ')}") from None


def _read(path: Path) -> dict[str, Any]:
    found = read_document(path, f"Plan '{path}'", "give a YAML file, see docs/comparison.md.")
    if not isinstance(found, dict):
        raise RecipeError(f"Plan '{path}' must be a mapping with teacher, corpus, students, methods and budget.")
    return found
