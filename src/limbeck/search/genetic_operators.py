"""The operators of ELM's genetic algorithm, pure functions of a random generator.

A child that is illegal (its teacher layers cross, or a code means nothing) is drawn again from the same parents. The
alternatives are worse: repairing it, say by dropping a layer that crosses, makes mappings of few layers likelier than
the operator does, and putting the parent in its place makes no change likelier still. Drawn again, a child has exactly
the operator's own distribution, given that it is legal. That does make changes rarer than the nominal q_C and q_M,
since no change is always legal; how many draws were needed is returned, so that a search can tell.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.4. It asks for legal genomes and leaves open how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.search.genome import Genome, flip_bits
from limbeck.search.mapping_space import MappingSpace

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
