"""`load_plan`: a comparison's plan from YAML, with overrides and errors in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.comparison.plan import ComparisonPlan
from limbeck.errors import RecipeError
from limbeck.recipe.explaining import explain
from limbeck.recipe.load import apply_overrides, parse_yaml


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
    changed = apply_overrides(given, overrides)
    if data is not None:
        evaluation = changed.get("evaluation")
        changed["evaluation"] = {**(evaluation if isinstance(evaluation, dict) else {}), "data": str(data)}
    try:
        return ComparisonPlan.model_validate(changed)
    except ValidationError as error:
        problem = explain(error)
        raise RecipeError(f"plan: {problem.removeprefix('recipe: ')}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"Plan '{path}' does not exist; give a YAML file, see docs/comparison.md.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"Plan '{path}' cannot be read: {error}.") from None
    found = parse_yaml(text, f"Plan '{path}'")
    if not isinstance(found, dict):
        raise RecipeError(f"Plan '{path}' must be a mapping with teacher, corpus, students, methods and budget.")
    return found
