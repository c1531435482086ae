"""What a stage does about steps that go wrong."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from limbeck.core.yaml import Strict
from limbeck.recipe.value_types import MOST


class GuardSpec(Strict):
    """Policies for losses that are no use and for memory that does not suffice.

    They decide what happens to a run, not what it computes as long as nothing happens: a resumed run may change them.
    """

    on_bad_loss: Literal["stop", "skip"] = Field(
        default="stop",
        description="At a step whose loss or gradient is infinite or no number, or whose loss explodes: stop the run, "
        "or skip the step, which leaves weights and optimizer as they are. The batch is saved either way.",
    )
    explosion_factor: float | None = Field(
        default=None,
        gt=1,
        le=MOST,
        description="A loss above so many times the median of the last 64 good steps explodes; default: none does.",
    )
    skips_in_a_row: int = Field(
        default=10, ge=1, le=MOST, description="How many steps in a row may be skipped before the run stops."
    )
    on_out_of_memory: Literal["stop", "split"] = Field(
        default="stop",
        description="When a batch does not fit the device: stop the run, or run it, and all that follow, in smaller "
        "pieces whose gradients are summed.",
    )
