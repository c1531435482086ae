"""`ArchitectureRequest`: what is asked of a search of shapes, checked before any text is read or weight loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from limbeck.core.machine import choose_device
from limbeck.errors import RecipeError
from limbeck.recipe.plan import RunPlan
from limbeck.search.last_layer_loss import BLOCKS, LossKind, loss_kind
from limbeck.search.proxy_request import (
    MOST_WORKERS,
    ProxyRequest,
    check_positive,
    check_text_only,
    steps_of_only_stage,
)
from limbeck.search.shape_latency import LatencySetting, check_length, usual_length
from limbeck.search.shape_limits import ShapeLimits, check_some_small_enough
from limbeck.search.shape_samplers import make_sampler
from limbeck.search.shape_space import ShapeSizes, ShapeSpace, shape_space
from limbeck.search.shape_training import cut_steps


@dataclass(frozen=True)
class MeasuringRequest:
    """How latencies are to be measured; see `LatencySetting`. No length is `usual_length` of the teacher."""

    device: str = "auto"
    length: int | None = None
    batch: int = 1
    seconds: float = 4.0


@dataclass(frozen=True)
class ArchitectureRequest:
    """A search for a student's shape.

    Args:
        proxy: The run, the proxy and the study.
        sizes: The sizes to choose from.
        limits: What the student may be at most.
        measuring: How latencies are measured.
        trials: Shapes to train in all, by all workers.
        batch: Shapes that a worker trains at once.
        sampler: Optuna's, by name.
        prune: Stop shapes without hope early.
        workers: Processes on this machine.
    """

    proxy: ProxyRequest
    sizes: ShapeSizes
    limits: ShapeLimits = field(default_factory=ShapeLimits)
    measuring: MeasuringRequest = field(default_factory=MeasuringRequest)
    trials: int = 24
    batch: int = 4
    sampler: str = "tpe"
    prune: bool = True
    workers: int = 1

    def check(self) -> ArchitectureSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        for name in ("trials", "batch"):
            check_positive(f"--{name}", getattr(self, name))
        check_positive("--workers", self.workers, MOST_WORKERS)
        check_positive("--measure-batch", self.measuring.batch)
        check_positive("--measure-length", self.measuring.length)
        share = self.limits.latency_share
        if share is not None and not share > 0:  # NaN too.
            raise RecipeError(f"--max-latency-share {share:g} is no share of the teacher's latency; give more than 0.")
        make_sampler(self.sampler, seed=0)
        space = shape_space(self.proxy.proxy_recipe, self.sizes)
        check_some_small_enough(self.limits, space.shapes.values())
        plan = next(iter(space.shapes.values())).plan
        check_text_only(plan)
        latency = LatencySetting(
            device=choose_device(self.measuring.device),
            length=usual_length(plan.teacher) if self.measuring.length is None else self.measuring.length,
            batch=self.measuring.batch,
            seconds=self.measuring.seconds,
        )
        check_length(latency, plan.teacher)
        cuts = cut_steps(steps_of_only_stage(plan, "--no-prune")) if self.prune else []
        return ArchitectureSearch(self, space, plan, latency, loss_kind(plan), cuts)


@dataclass(frozen=True)
class ArchitectureSearch:
    """A checked search.

    Args:
        request: What was asked.
        space: The shapes.
        plan: Of the proxy's recipe, with one of the shapes.
        latency: How latencies are measured.
        loss: What shapes are compared by.
        cuts: After how many steps shapes without hope are looked for.
    """

    request: ArchitectureRequest
    space: ShapeSpace
    plan: RunPlan
    latency: LatencySetting
    loss: LossKind
    cuts: list[int]

    @property
    def identity(self) -> dict[str, Any]:
        """What rewards must have in common to be compared, besides the run: by dotted names, as JSON holds it."""
        limits = self.request.limits
        return {
            **{f"space.{name}": sizes for name, sizes in self.space.description.items()},
            "space.embedding": self.plan.blueprint.embedding,
            "limit.parameters": limits.parameters,
            "limit.latency_share": limits.latency_share,
            **{f"latency.{name}": value for name, value in self.latency.identity.items()},
            "loss": self.loss,
            "loss.blocks": BLOCKS,
        }
