"""Searches for layer mappings, shapes and teacher layers: spaces, the genetic algorithm, studies that workers share."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used
from limbeck.core.callable_packages import make_callable

if TYPE_CHECKING:
    from limbeck.search.generations import Candidate, run_search
    from limbeck.search.genetic import default_population
    from limbeck.search.genetic_sampler import GeneticSampler
    from limbeck.search.mapping_results import GenerationRow, generation_rows
    from limbeck.search.mapping_space import MappingSpace, MappingTuple, elm_space
    from limbeck.search.pareto import pareto_front
    from limbeck.search.requests import GeneticSettings
    from limbeck.search.reward import shape_reward
    from limbeck.search.rungs import Rung, halving_rungs, survivors
    from limbeck.search.study import open_study

# Requests describe the options of a help, without torch.
__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "generations": "Candidate run_search",
        "genetic": "default_population",
        "genetic_sampler": "GeneticSampler",
        "mapping_results": "GenerationRow generation_rows",
        "mapping_space": "MappingSpace MappingTuple elm_space",
        "pareto": "pareto_front",
        "requests": "GeneticSettings",
        "rungs": "Rung halving_rungs survivors",
        "reward": "shape_reward",
        "study": "open_study",
    },
)

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
