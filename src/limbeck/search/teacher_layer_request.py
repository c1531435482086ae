"""`TeacherLayerRequest`: what is asked of a search of teacher layers, checked before text is read or weights loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from limbeck.errors import RecipeError
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.search.layer_candidates import choose_layers, layer_stage, with_teacher_layer
from limbeck.search.layer_rungs import LayerRung, rungs_of_budget, rungs_of_training
from limbeck.search.layer_scores import describe_layer_scores
from limbeck.search.proxy_request import ProxyRequest, check_steps, check_text_only, steps_of_only_stage


@dataclass(frozen=True)
class TeacherLayerRequest:
    """A search for the teacher layer to learn from.

    Args:
        proxy: The run, the proxy and the study; its steps are those of a candidate that is never dropped.
        layers: The candidates; None for every layer of the teacher.
        steps_total: Steps of all candidates together, in place of the proxy's steps; None for those.
        halving: Of how many candidates one goes on after each round; None trains all to the end.
    """

    proxy: ProxyRequest
    layers: tuple[int, ...] | None = None
    steps_total: int | None = None
    halving: int | None = 2

    def check(self) -> TeacherLayerSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        check_steps("--steps-total", self.steps_total)
        if self.proxy.steps is not None and self.steps_total is not None:
            raise RecipeError("--steps and --steps-total both say how long candidates train; give one of them.")
        recipe = self.proxy.proxy_recipe
        layer_stage(recipe)
        plan = plan_run(recipe)
        check_text_only(plan)
        _check_depth(plan)
        layers = choose_layers(self.layers, plan)
        rungs = self._rungs(plan, len(layers))
        if rungs:
            recipe = replace(self.proxy, steps=rungs[-1].end).proxy_recipe
        plans = [plan_run(with_teacher_layer(recipe, layer)) for layer in layers]
        return TeacherLayerSearch(self, layers, rungs, plans)

    def _rungs(self, plan: RunPlan, candidates: int) -> Sequence[LayerRung]:
        """The rounds; none where all candidates are trained as long as the recipe says."""
        if self.halving is None:
            if self.steps_total is None:
                return ()
            if self.steps_total < candidates:
                raise RecipeError(
                    f"--steps-total {self.steps_total} leaves some of {candidates} candidates without a step; give at "
                    f"least {candidates}."
                )
            return (LayerRung(candidates, self.steps_total // candidates),)
        if self.steps_total is not None:
            if len(plan.stages) > 1:
                steps_of_only_stage(plan, "--no-halving")
            return rungs_of_budget(candidates, self.steps_total, self.halving)
        return rungs_of_training(candidates, steps_of_only_stage(plan, "--no-halving"), self.halving)


def _check_depth(plan: RunPlan) -> None:
    student, teacher = plan.student.layers, plan.teacher.layers
    if student > teacher:
        raise RecipeError(
            f"The student has {student} layers and its teacher {teacher}; give student.shape at most {teacher}."
        )


@dataclass(frozen=True)
class TeacherLayerSearch:
    """A checked search.

    Args:
        request: What was asked.
        layers: The candidates in order.
        rungs: The rounds; none where all are trained as long as the recipe says.
        plans: One for each candidate.
    """

    request: TeacherLayerRequest
    layers: tuple[int, ...]
    rungs: Sequence[LayerRung]
    plans: list[RunPlan]

    @property
    def plan(self) -> RunPlan:
        """The plan of the first candidate; the others differ in the teacher layer only."""
        return self.plans[0]

    @property
    def identity(self) -> dict[str, Any]:
        """What scores must have in common to be compared, besides the run: by dotted names, as JSON holds it."""
        rungs = [[rung.candidates, rung.end] for rung in self.rungs]
        return {"layers": list(self.layers), "rungs": rungs, **describe_layer_scores(self.plan)}
