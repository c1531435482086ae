"""Searching for layer mappings: the space, the genetic algorithm, and studies that many workers share."""

from limbeck.search.genetic import GeneticSettings, default_population
from limbeck.search.genetic_sampler import GeneticSampler
from limbeck.search.layer_race import Rung, halving_rungs, survivors
from limbeck.search.mapping import GenerationRow, generation_rows
from limbeck.search.mapping_space import MappingSpace, MappingTuple, elm_space
from limbeck.search.mapping_trials import Candidate, run_search
from limbeck.search.shape_space import pareto_front, shape_reward
from limbeck.search.study import open_study

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
