"""`MappingRequest`: what is asked of a mapping search, checked before any text is read or weight loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from limbeck.comparison.plan import MeasuresSpec
from limbeck.errors import RecipeError, suggestion
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.recipe.load import apply_overrides
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.search.genetic_sampler import GeneticSampler
from limbeck.search.genetic_settings import GeneticSettings, default_population
from limbeck.search.mapping_candidates import check_searchable
from limbeck.search.mapping_space import MappingSpace, elm_space
from limbeck.search.proxy_request import MOST_WORKERS, ProxyRequest, check_positive

PAPER_TASKS = ("sst2", "mnli", "squad")
"""ELM's proxy tasks (arXiv 2012.06153, section 5.2)."""


def task_measures(
    tasks: str | None, *, data: str | None, preset: str, seeds: int, settings: Sequence[str] = ()
) -> MeasuresSpec:
    """Return what candidates are fine-tuned on.

    Args:
        tasks: Names by commas; `none` for held-out text instead; None for the paper's where `data` is given.
        data: Folder with the tasks' files; None or `hub` for the Hub.
        preset: Name of a protocol.
        seeds: Fine-tunings of every student on every task.
        settings: `setting=value` or `task.setting=value` each, over the protocol's.

    Raises:
        RecipeError: for an unknown protocol, no fine-tuning, settings that cannot be read, or those of no task.
    """
    if tasks is None:
        tasks = ",".join(PAPER_TASKS) if data is not None else "none"
    names = [] if tasks.strip().lower() == "none" else [name.strip() for name in tasks.split(",") if name.strip()]
    if not names and tasks.strip().lower() != "none":
        raise RecipeError("--tasks names no task; give some by commas, or none for held-out text.")
    if not names and settings:
        raise RecipeError("--set-task changes how tasks are fine-tuned, and there is none; give --tasks or --data.")
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}; give 1 or more.")
    changed = apply_overrides({}, settings)
    return MeasuresSpec(tasks=names, data=data, preset=PROTOCOLS[preset].name, seeds=seeds, settings=changed)


@dataclass(frozen=True)
class MappingRequest:
    """A search for a layer mapping.

    Args:
        proxy: The run, of which a stage takes a layer mapping; the proxy; the study. The paper's share is 0.1.
        generations: Asked for in all; a finished study goes on where they are more than it has.
        genetic: Fields of `GeneticSettings` that differ from the paper's.
        teacher_layers: That may be learned from; None for all.
        measures: Proxy tasks, and how students are fine-tuned on them; without tasks held-out text decides.
        batch: Candidates that a worker trains at once; None for its part of a generation.
        workers: Processes on this machine.
    """

    proxy: ProxyRequest
    generations: int = 5
    genetic: Mapping[str, Any] = field(default_factory=dict)
    teacher_layers: tuple[int, ...] | None = None
    measures: MeasuresSpec = field(default_factory=lambda: MeasuresSpec(preset="quick", seeds=1))
    batch: int | None = None
    workers: int = 1

    def check(self) -> MappingSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        for name in ("generations", "batch"):
            check_positive(f"--{name}", getattr(self, name))
        check_positive("--workers", self.workers, MOST_WORKERS)
        plan = plan_run(self.proxy.proxy_recipe)
        space = elm_space(plan.student.layers, plan.teacher.layers, self.teacher_layers)
        check_searchable(plan, space)
        return MappingSearch(self, plan, space, self._settings(space))

    def _settings(self, space: MappingSpace) -> GeneticSettings:
        known = [one.name for one in fields(GeneticSettings)]
        for name in self.genetic:
            if name not in known:
                raise RecipeError(f"Unknown genetic setting '{name}'.{suggestion(name, known)}")
        population = min(default_population(space.student), space.size)
        settings = GeneticSettings(**{"population": population, **self.genetic})
        if settings.population > space.size:
            raise RecipeError(
                f"A population of {settings.population} is more than the {space.size} layer mappings there are; give "
                f"at most {space.size}, or let more teacher layers be learned from."
            )
        return settings


@dataclass(frozen=True)
class MappingSearch:
    """A checked search.

    Args:
        request: What was asked.
        plan: Of the proxy's recipe.
        space: The mappings.
        settings: Of the genetic algorithm.
    """

    request: MappingRequest
    plan: RunPlan
    space: MappingSpace
    settings: GeneticSettings

    @property
    def batch(self) -> int:
        """Candidates that one worker trains at once."""
        return self.request.batch or -(-self.settings.population // self.request.workers)

    def sampler(self) -> GeneticSampler:
        """Return what proposes mappings; every worker brings one, all alike."""
        return GeneticSampler(self.space, self.settings, self.plan.recipe.seed)
