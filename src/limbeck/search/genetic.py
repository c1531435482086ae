"""ELM's genetic algorithm: its operators, and the generations that they breed, pure functions of a random generator.

A child that is illegal (its teacher layers cross, or a code means nothing) is drawn again from the same parents.
The alternatives are worse: repairing it, say by dropping a layer that crosses, makes mappings of few layers
likelier than the operator does, and putting the parent in its place makes no change likelier still. Drawn again, a
child has exactly the operator's own distribution, given that it is legal. That does make changes rarer than the
nominal q_C and q_M, since no change is always legal; how many draws were needed is returned, so that a search can
tell.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.4. It asks for legal genomes and leaves open how.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import RecipeError
from limbeck.search.mapping_space import Genome, MappingSpace, flip_bits
from limbeck.search.requests import GeneticSettings


def default_population(student: int) -> int:
    """Return the paper's population for a student's depth: 12 up to 4 layers, 20 for deeper ones.

    Source: ELM section 5.2 for depths 4 and 6; other depths are ours.
    """
    return 12 if student <= 4 else 20


Pair: TypeAlias = tuple[Genome, Genome]
MOST_DRAWS = 1000
"""After so many illegal children the parents go on unchanged; only rates near 1 come near it."""


@dataclass(frozen=True)
class Child:
    """A legal genome and the draws it took, at least 1."""

    genome: Genome
    draws: int


@dataclass(frozen=True)
class Children:
    """Two legal genomes of one crossing and the draws they took, at least 1."""

    pair: Pair
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
        members = np.array([count for _, _, count in steps], dtype=np.float64)
        code, layer, _ = steps[random.choice(len(steps), p=members / members.sum())]
        codes.append(code)
        floor = max(floor, layer)
    return tuple(codes)


def roulette_probabilities(fitnesses: Sequence[float]) -> NDArray[np.float64]:
    """Return how likely each genome is to be a parent: in proportion to fitness - min; all alike if all are equal.

    Args:
        fitnesses: At least one finite number; more is better.

    Raises:
        ValueError: for a fitness that is not finite.
    """
    above = np.asarray(fitnesses, dtype=np.float64)
    if not np.isfinite(above).all():
        raise ValueError(f"roulette needs finite fitnesses, not {list(fitnesses)}")
    above = above - above.min()
    if not above.any():
        return np.full(len(above), 1 / len(above))
    # Divided twice: the sum of differences may overflow, or be too small to divide by.
    above /= above.max()
    return above / above.sum()


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
        random: Where chance comes from.
    """
    for draw in range(1, MOST_DRAWS + 1):
        swap = random.random(space.student) < exchange
        first = tuple(b if s else a for a, b, s in zip(*pair, swap, strict=True))
        second = tuple(a if s else b for a, b, s in zip(*pair, swap, strict=True))
        if first in space and second in space:
            return Children((first, second), draw)
    return Children(pair, MOST_DRAWS)


def mutate(space: MappingSpace, genome: Genome, flip: float, random: np.random.Generator) -> Child:
    """Flip each bit of a parent with probability `flip`, again until the child is legal.

    Args:
        space: The legal genomes.
        genome: The parent, legal.
        flip: q_M in [0, 1].
        random: Where chance comes from.
    """
    weights = 1 << np.arange(space.bits)
    for draw in range(1, MOST_DRAWS + 1):
        flips = (random.random((space.student, space.bits)) < flip) @ weights
        child = flip_bits(genome, tuple(int(code) for code in flips))
        if child in space:
            return Child(child, draw)
    return Child(genome, MOST_DRAWS)


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
