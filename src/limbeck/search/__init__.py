"""Searches for layer mappings, shapes and teacher layers: spaces, the genetic algorithm, studies that workers share."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limbeck.core.callable_packages import make_callable

if TYPE_CHECKING:
    from limbeck.search.generations import Candidate, GenerationRow, generation_rows, run_search
    from limbeck.search.genetic import default_population
    from limbeck.search.genetic_sampler import GeneticSampler
    from limbeck.search.mapping_space import MappingSpace, MappingTuple, elm_space
    from limbeck.search.pareto import pareto_front
    from limbeck.search.requests import GeneticSettings
    from limbeck.search.shape_space import shape_reward
    from limbeck.search.study import open_study
    from limbeck.search.teacher_layer import Rung, halving_rungs, survivors

make_callable(__name__)  # `limbeck.search(...)`

__all__ = [
    "Candidate",
    "GenerationRow",
    "GeneticSampler",
    "GeneticSettings",
    "MappingSpace",
    "MappingTuple",
    "Rung",
    "default_population",
    "elm_space",
    "generation_rows",
    "halving_rungs",
    "open_study",
    "pareto_front",
    "run_search",
    "shape_reward",
    "survivors",
]

_HOMES = (
    "requests", "mapping_space", "pareto", "genetic", "genetic_sampler", "study", "shape_space", "generations",
    "teacher_layer",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: requests describe the options of a help, without torch."""
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
