"""`plan` a run, and hold its stages in memory, without a run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from limbeck.api.calls import python_call
from limbeck.api.distilling import carry_out_validation
from limbeck.api.requests.distil import ValidateRequest

if TYPE_CHECKING:
    from limbeck.recipe.plan import RunPlan
    from limbeck.training.held_stage import HeldStage


@dataclass(frozen=True, repr=False)
class Plan:
    """A checked recipe, whose stages can be held.

    Args:
        run: The recipe, resolved for its models.
    """

    run: RunPlan

    def __len__(self) -> int:
        """Number of stages."""
        return len(self.run.stages)

    def __repr__(self) -> str:
        """The plan in a few lines, as `limbeck validate` prints it."""
        return repr(self.run)

    def stage(self, index: int = 0) -> HeldStage:
        """Hold a stage: its `module`, its `batches()`, the `loss(batch)` of one, and its `trainer`.

        Each part is made when it is first asked for. Nothing is written but the cache of the text.

        Args:
            index: Which stage, from 0.

        Raises:
            RecipeError: for a stage that the plan does not have, or one that needs the result of an earlier one.
        """
        from limbeck.training.held_stage import HeldStage

        return HeldStage(self.run, index)


def carry_out_planning(request: ValidateRequest) -> Plan:
    """Check a recipe as `validate` does, and give its stages to hold: module, batches and loss, without a run's folder.

    Returns:
        The plan. `plan.stage(0)` is the first stage.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> stage = limbeck.plan(recipe).stage(0)
        >>> batch = next(stage.batches())
        >>> stage.loss(batch).backward()
    """
    return Plan(carry_out_validation(request))


plan = python_call("plan", ValidateRequest, carry_out_planning)
