"""`load_plan`, which reads the plan of a comparison: YAML, overrides, and mistakes in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.comparison.plan import ComparisonPlan
from limbeck.core.mistakes import mistakes_of
from limbeck.core.yaml import read_document
from limbeck.errors import RecipeError, together
from limbeck.recipe.load import expand_shorthands, with_paths_beside
from limbeck.recipe.overrides import apply_overrides
from limbeck.recipe.plain_values import check_plain


def load_plan(
    plan: ComparisonPlan | Mapping[str, Any] | str | Path,
    overrides: str | Sequence[str] = (),
    *,
    data: str | Path | None = None,
) -> ComparisonPlan:
    """Return a checked plan from the path of a YAML file, a dictionary or a plan.

    Args:
        plan: The plan.
        overrides: One or several changes `path.to.key=value`, which are made before the plan is checked.
        data: Folder with the tasks' files, which takes precedence over the plan's; None leaves the plan's.

    Raises:
        RecipeError: one line that names each mistake with its place in the plan.
    """
    if isinstance(plan, str | Path):
        document = _read(Path(plan))
    elif isinstance(plan, ComparisonPlan):
        document = plan.model_dump(exclude_unset=True)
    else:
        document = dict(plan)
    check_plain(document)
    document = apply_overrides(expand_shorthands(document), overrides)
    # The overrides too may have brought values that no plan may hold.
    check_plain(document)

    if data is not None:
        evaluation = document.get("evaluation")
        if evaluation is None:
            evaluation = {}
        # An `evaluation` that is no mapping stays as it is, and is refused below.
        if isinstance(evaluation, dict):
            document["evaluation"] = {**evaluation, "data": str(data)}
    try:
        return ComparisonPlan.model_validate(document)
    except ValidationError as error:
        # `mistakes_of` gives a mistake without a place in the document the place `recipe`; here it is a plan.
        errors = [RecipeError(f"plan: {line.removeprefix('recipe: ')}") for line in mistakes_of(error)]
        raise together(errors) from None


def _read(path: Path) -> dict[str, Any]:
    """Read the YAML file of a plan; paths in it are beside the file."""
    document = read_document(path, f"Plan '{path}'", "give a YAML file, see docs/comparison.md.")
    if not isinstance(document, dict):
        raise RecipeError(
            f"Plan '{path}' must be a mapping with the keys teacher, corpus, students, methods and budget."
        )
    return {key: with_paths_beside(value, path.parent, key) for key, value in document.items()}
