"""Generations of layer mappings: the first, and the next from those whose fitnesses are known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from limbeck.errors import RecipeError
from limbeck.search.genetic_operators import (
    Pair,
    crossover,
    mutate,
    random_genome,
    roulette_probabilities,
    select_pair,
)
from limbeck.search.genetic_settings import GeneticSettings
from limbeck.search.genome import Genome
from limbeck.search.mapping_space import MappingSpace

Scored: TypeAlias = tuple[Genome, float]
PAIRS_PER_CHILD = 50
"""Pairs bred for each place of a generation of new genomes, before the rest of it is drawn from the space."""


@dataclass
class Breeding:
    """How often the operators acted while a generation was bred, and how often they drew.

    Draws beyond the number of crossings, or of mutations, were illegal children.
    """

    pairs: int = 0
    crossings: int = 0
    crossing_draws: int = 0
    mutations: int = 0
    mutation_draws: int = 0


def draw_new(
    space: MappingSpace, count: int, random: np.random.Generator, known: Collection[Genome] = ()
) -> list[Genome]:
    """Draw genomes uniformly from the space, no two alike and none of the known ones.

    Args:
        space: The legal genomes.
        count: How many; fewer come back where the space has no more.
        random: Where chance comes from.
        known: Members of the space.
    """
    seen = set(known)
    drawn: list[Genome] = []
    while len(drawn) < count and len(seen) < space.size:
        genome = random_genome(space, random)
        if genome not in seen:
            seen.add(genome)
            drawn.append(genome)
    return drawn


def first_generation(space: MappingSpace, settings: GeneticSettings, random: np.random.Generator) -> list[Genome]:
    """Draw the first generation, uniformly from the space and no two alike.

    Raises:
        RecipeError: for a population larger than the space.
    """
    if settings.population > space.size:
        raise RecipeError(
            f"A population of {settings.population} is more than the {space.size} layer mappings there are; give at "
            f"most {space.size}, or search a larger space."
        )
    return draw_new(space, settings.population, random)


def next_generation(
    space: MappingSpace, history: Sequence[Sequence[Scored]], settings: GeneticSettings, random: np.random.Generator
) -> tuple[list[Genome], Breeding]:
    """Breed a generation: select pairs by roulette, cross, mutate, until it is full.

    The last child of a full generation is dropped where the population is odd.

    Args:
        space: The legal genomes.
        history: The generations so far with their fitnesses, at least one genome in all.
        settings: The size of the generation, its parents and the rates.
        random: Where chance comes from.

    Returns:
        The genomes and how they were bred. With parents `generation` a genome may come more than once, and parents may
        come back. With parents `best` all are new, and fewer than the population where the space has no more.

    Source:
        ELM (arXiv 2012.06153) algorithm 1, lines 4 to 10.
    """
    if settings.parents == "best":
        return _breed_new(space, history, settings, random)
    last = next(generation for generation in reversed(history) if generation)
    counts = Breeding()
    children = [genome for genome, _ in _best(last, settings.elite)]
    wheel = _Wheel(last)
    while len(children) < settings.population:
        children.extend(_breed(space, wheel.pair(random), settings, random, counts))
    return children[: settings.population], counts


def _breed_new(
    space: MappingSpace, history: Sequence[Sequence[Scored]], settings: GeneticSettings, random: np.random.Generator
) -> tuple[list[Genome], Breeding]:
    scored = [one for generation in history for one in generation]
    seen = {genome for genome, _ in scored}
    wheel = _Wheel(_best(scored, settings.population))
    counts = Breeding()
    children: dict[Genome, None] = {}
    for _ in range(PAIRS_PER_CHILD * settings.population):
        if len(children) >= settings.population:
            break
        pair = _breed(space, wheel.pair(random), settings, random, counts)
        children.update(dict.fromkeys(genome for genome in pair if genome not in seen))
    missing = settings.population - len(children)
    return [*children, *draw_new(space, missing, random, seen | children.keys())][: settings.population], counts


class _Wheel:
    """Selects pairs of parents, each in proportion to its fitness above the lowest."""

    def __init__(self, parents: Sequence[Scored]) -> None:
        self._genomes = [genome for genome, _ in parents]
        self._probabilities = roulette_probabilities([fitness for _, fitness in parents])

    def pair(self, random: np.random.Generator) -> Pair:
        return select_pair(self._genomes, self._probabilities, random)


def _best(scored: Sequence[Scored], count: int) -> list[Scored]:
    best_first = sorted(scored, key=lambda one: -one[1])
    return list(dict(best_first).items())[:count]


def _breed(
    space: MappingSpace, pair: Pair, settings: GeneticSettings, random: np.random.Generator, counts: Breeding
) -> Pair:
    counts.pairs += 1
    if random.random() < settings.crossover:
        crossed = crossover(space, pair, settings.exchange, random)
        counts.crossings += 1
        counts.crossing_draws += crossed.draws
        pair = crossed.pair
    first, second = (_perhaps_mutated(space, genome, settings, random, counts) for genome in pair)
    return first, second


def _perhaps_mutated(
    space: MappingSpace, genome: Genome, settings: GeneticSettings, random: np.random.Generator, counts: Breeding
) -> Genome:
    if random.random() >= settings.mutation:
        return genome
    child = mutate(space, genome, settings.flip, random)
    counts.mutations += 1
    counts.mutation_draws += child.draws
    return child.genome
