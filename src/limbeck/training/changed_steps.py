"""Changes of `max_steps` in a resumed run: more steps, or fewer, down to those that are done.

They may change in a stage that is not finished. Nothing that was trained changes then, but under most schedules the
learning rate of every step depends on how many there are. The run's record says so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.core import paths
from limbeck.core.records import StepsChange
from limbeck.errors import OutputError
from limbeck.training.run_checkpoints import checkpoints_of


def steps_changes(folder: Path, saved_recipe: Mapping[str, Any], new_recipe: Mapping[str, Any]) -> list[StepsChange]:
    """Find the stages that go on with another number of steps than they began with.

    Args:
        folder: The run's folder.
        saved_recipe: The document of the recipe that the run began with.
        new_recipe: The document of the recipe to go on with.

    Returns:
        The changes that are possible; others are left to the comparison of the recipes.

    Raises:
        OutputError: for fewer steps than a stage has done.
    """
    changes: list[StepsChange] = []
    # Where the recipes differ in the number of stages, the comparison of the recipes refuses them.
    pairs = zip(saved_recipe.get("stages") or [], new_recipe.get("stages") or [], strict=False)
    for number, (saved_stage, new_stage) in enumerate(pairs, start=1):
        old_steps = steps_of(saved_stage)
        new_steps = steps_of(new_stage)
        if old_steps is None or new_steps is None:
            continue  # The stage counts epochs.
        title = title_of(saved_stage)
        if old_steps == new_steps or not can_change_steps(folder, number, saved_stage):
            continue
        reached = _step_reached(folder, number)
        if new_steps < reached:
            raise OutputError(
                f"Stage '{title}' of the run in '{folder}' has already reached step {reached:,}, so max_steps "
                f"cannot become {new_steps:,}; give {reached:,} or more, or end the run there: limbeck finish "
                f"{folder}"
            )
        changes.append(StepsChange(stage=title, step=reached, before=old_steps, after=new_steps))
    return changes


def can_change_steps(folder: Path, number: int, stage: Mapping[str, Any]) -> bool:
    """Whether a stage that a run began with may go on with another number of steps.

    Args:
        folder: The run's folder.
        number: The number of the stage, from 1.
        stage: The document of the stage.
    """
    is_finished = (folder / paths.STAGES / f"{number}-{title_of(stage)}" / paths.STAGE_RECORD).is_file()
    # A schedule of lengths has shares of the steps: with other steps the rows that were read would be others.
    has_lengths = bool((stage.get("text") or {}).get("lengths"))
    # A stage that does not count steps counts epochs.
    return steps_of(stage) is not None and not is_finished and not has_lengths


def with_changed_steps(recipe: Mapping[str, Any], changes: Sequence[StepsChange]) -> dict[str, Any]:
    """Return the document of a recipe with the new numbers of steps.

    Args:
        recipe: The document that the run began with.
        changes: The changes.
    """
    steps_by_stage = {change.stage: change.after for change in changes}
    stages: list[dict[str, Any]] = []
    for stage in recipe.get("stages") or []:
        steps = steps_by_stage.get(title_of(stage))
        if steps is not None:
            stage = {**stage, "training": {**stage["training"], "max_steps": steps}}
        stages.append(stage)
    return {**recipe, "stages": stages}


def steps_of(stage: Mapping[str, Any]) -> int | None:
    """Return the `max_steps` of a stage's document; None where it counts epochs."""
    steps = (stage.get("training") or {}).get("max_steps")
    is_number = isinstance(steps, int) and steps > 0
    return steps if is_number else None


def title_of(stage: Mapping[str, Any]) -> str:
    """Return the name of a stage in logs and folders, by its document."""
    return str(stage.get("name") or stage["method"]["name"])


def _step_reached(folder: Path, stage_number: int) -> int:
    """Return the step of the newest checkpoint of a stage; 0 without one."""
    steps = [checkpoint.step for checkpoint in checkpoints_of(folder) if checkpoint.stage_number == stage_number]
    return max(steps, default=0)
