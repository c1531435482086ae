"""ELM's genetic algorithm: its operators, and the generations that they breed, pure functions of a random generator.

A child that is illegal (its teacher layers cross, or a code means nothing) is drawn again from the same parents.
The alternatives are worse: repairing it, say by dropping a layer that crosses, makes mappings of few layers
likelier than the operator does, and putting the parent in its place makes no change likelier still. Drawn again, a
child has exactly the operator's own distribution, given that it is legal. That does make changes rarer than the
nominal q_C and q_M, since no change is always legal; how many draws were needed is returned, so that a search can
tell.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.4. It asks for legal genomes and leaves open how.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.search.mapping_space import Genome, MappingSpace
from limbeck.search.requests import GeneticSettings

Pair: TypeAlias = tuple[Genome, Genome]
Scored: TypeAlias = tuple[Genome, float]
"""A genome and its fitness."""
MOST_DRAWS = 1000
"""After so many illegal children the parents go on unchanged; only rates near 1 come near it."""
PAIRS_PER_CHILD = 50
"""Pairs bred for each place of a generation of new genomes, before the rest of it is drawn from the space."""


def default_population(student: int) -> int:
    """Return the paper's population for a student's depth: 12 up to 4 layers, 20 for deeper ones.

    Source: ELM section 5.2 for depths 4 and 6; other depths are ours.
    """
    if student <= 4:
        return 12
    return 20


@dataclass(frozen=True)
class Children:
    """Legal genomes and the draws they took, at least 1."""

    genomes: tuple[Genome, ...]
    draws: int


def random_genome(space: MappingSpace, random: np.random.Generator) -> Genome:
    """Draw a legal genome, every member of the space as likely as any other.

    The codes are drawn in order, each as likely as its share of the members that go on with it. That is the paper's
    initialisation, fair bits until they are legal, without the illegal draws.
    """
    codes: list[int] = []
    floor = 0
    for settled in range(space.student):
        steps = space.steps(settled, floor)
        members = np.array([step.members for step in steps], dtype=np.float64)
        step = steps[random.choice(len(steps), p=members / members.sum())]
        codes.append(step.code)
        floor = max(floor, step.layer)
    return tuple(codes)


def roulette_probabilities(fitnesses: Sequence[float]) -> NDArray[np.float64]:
    """Return how likely each genome is to be a parent: in proportion to fitness - min; all alike if all are equal.

    Args:
        fitnesses: At least one finite number; more is better.

    Raises:
        ValueError: for a fitness that is not finite.
    """
    values = np.asarray(fitnesses, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"roulette needs finite fitnesses, not {list(fitnesses)}")
    above_lowest = values - values.min()
    if not above_lowest.any():
        return np.full(len(values), 1 / len(values))
    # Divided twice: the sum of differences may overflow, or be too small to divide by.
    shares = above_lowest / above_lowest.max()
    return shares / shares.sum()


def select_pair(genomes: Sequence[Genome], probabilities: NDArray[np.float64], random: np.random.Generator) -> Pair:
    """Draw two parents, each on its own, so that they may be the same genome."""
    first, second = random.choice(len(genomes), size=2, p=probabilities)
    return genomes[first], genomes[second]


def crossover(space: MappingSpace, pair: Pair, exchange: float, random: np.random.Generator) -> Children:
    """Exchange each code of two parents with probability `exchange`, again until both children are legal.

    Args:
        space: The legal genomes.
        pair: The parents, both legal.
        exchange: q_C in [0, 1].
        random: The generator of random numbers.
    """

    def draw_children() -> Pair:
        is_swapped = random.random(space.student) < exchange
        first = list(pair[0])
        second = list(pair[1])
        for layer in np.flatnonzero(is_swapped):
            first[layer] = pair[1][layer]
            second[layer] = pair[0][layer]
        return tuple(first), tuple(second)

    return _draw_until_legal(space, pair, draw_children)


def mutate(space: MappingSpace, genome: Genome, flip: float, random: np.random.Generator) -> Children:
    """Flip each bit of a parent with probability `flip`, again until the child is legal.

    Args:
        space: The legal genomes.
        genome: The parent, legal.
        flip: q_M in [0, 1].
        random: The generator of random numbers.
    """
    value_of_bit = 1 << np.arange(space.bits)

    def draw_child() -> tuple[Genome]:
        is_flipped = random.random((space.student, space.bits)) < flip
        # The flipped bits of each student layer as one number.
        masks = is_flipped @ value_of_bit
        child = tuple(code ^ int(mask) for code, mask in zip(genome, masks, strict=True))
        return (child,)

    return _draw_until_legal(space, (genome,), draw_child)


def _draw_until_legal(
    space: MappingSpace, parents: tuple[Genome, ...], draw: Callable[[], tuple[Genome, ...]]
) -> Children:
    """Draw children until all are legal; the parents, after `MOST_DRAWS` illegal draws."""
    for draws in range(1, MOST_DRAWS + 1):
        children = draw()
        if all(child in space for child in children):
            return Children(children, draws)
    return Children(parents, MOST_DRAWS)


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
        count: Number of genomes; fewer are returned where the space has no more.
        random: The generator of random numbers.
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


def next_generation(
    space: MappingSpace, history: Sequence[Sequence[Scored]], settings: GeneticSettings, random: np.random.Generator
) -> tuple[list[Genome], Breeding]:
    """Breed the generation that follows; the first is drawn uniformly from the space, no two alike.

    Args:
        space: The legal genomes.
        history: The generations so far with their fitnesses; of an empty one none came to a fitness.
        settings: The size of the generation, its parents and the rates.
        random: The generator of random numbers.

    Returns:
        The genomes and how they were bred. With parents `generation` a genome may come more than once, and parents may
        come back. With parents `best` all are new, and fewer than the population where the space has no more.

    Source:
        ELM (arXiv 2012.06153) algorithm 1, lines 4 to 10.
    """
    scored = [genome_and_fitness for generation in history for genome_and_fitness in generation]
    if not scored:
        return draw_new(space, settings.population, random), Breeding()
    if settings.parents == "best":
        breeder = _Breeder(space, _best(scored, settings.population), settings, random)
        known = {genome for genome, _ in scored}
        return _breed_new(breeder, known), breeder.counts

    # The last generation that came to a fitness has the parents, and its best go on unchanged.
    last = next(generation for generation in reversed(history) if generation)
    breeder = _Breeder(space, last, settings, random)
    genomes = [genome for genome, _ in _best(last, settings.elite)]
    while len(genomes) < settings.population:
        genomes.extend(breeder.breed())
    return genomes[: settings.population], breeder.counts


@dataclass
class _Breeder:
    """Breeds pairs of children, whose parents are selected in proportion to their fitness above the lowest."""

    space: MappingSpace
    parents: Sequence[Scored]
    settings: GeneticSettings
    random: np.random.Generator
    counts: Breeding = field(default_factory=Breeding)

    @cached_property
    def _wheel(self) -> NDArray[np.float64]:
        """The probability of each parent."""
        return roulette_probabilities([fitness for _, fitness in self.parents])

    def breed(self) -> tuple[Genome, ...]:
        """Select two parents, and breed their children."""
        genomes = [genome for genome, _ in self.parents]
        parents = select_pair(genomes, self._wheel, self.random)
        children: tuple[Genome, ...] = parents
        self.counts.pairs += 1
        if self.random.random() < self.settings.crossover:
            crossed = crossover(self.space, parents, self.settings.exchange, self.random)
            self.counts.crossings += 1
            self.counts.crossing_draws += crossed.draws
            children = crossed.genomes
        return tuple(self._perhaps_mutated(child) for child in children)

    def _perhaps_mutated(self, genome: Genome) -> Genome:
        """Mutate a child with the probability of the settings."""
        if self.random.random() >= self.settings.mutation:
            return genome
        mutated = mutate(self.space, genome, self.settings.flip, self.random)
        self.counts.mutations += 1
        self.counts.mutation_draws += mutated.draws
        return mutated.genomes[0]


def _breed_new(breeder: _Breeder, known: Collection[Genome]) -> list[Genome]:
    """Breed a generation without known genomes; what breeding does not find is drawn from the space."""
    size = breeder.settings.population
    # A dictionary, so that a child that comes twice keeps its first place.
    children: dict[Genome, None] = {}
    for _ in range(PAIRS_PER_CHILD * size):
        if len(children) >= size:
            break
        for child in breeder.breed():
            if child not in known:
                children[child] = None
    drawn = draw_new(breeder.space, size - len(children), breeder.random, {*known, *children})
    return [*children, *drawn][:size]


def _best(scored: Sequence[Scored], count: int) -> list[Scored]:
    """Return the genomes of highest fitness, each once; of equals the first."""
    best_first = sorted(scored, key=lambda genome_and_fitness: genome_and_fitness[1], reverse=True)
    fitness_by_genome = dict(best_first)
    return list(fitness_by_genome.items())[:count]
