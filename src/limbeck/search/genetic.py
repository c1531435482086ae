"""ELM's genetic algorithm: its operators, and the generations that they breed, pure functions of a random generator.

A *genome* is a layer mapping as codes, one for each student layer; see `mapping_space.py`. It is *legal* if every code
means something and the teacher layers increase strictly (do not cross). Its *fitness* is the score of its student. A
*generation* is a list of genomes; two operators breed the next from its better members. *Crossover* exchanges each code
of two parents with probability q_C, *mutation* flips each bit of a parent with probability q_M.

A child that is illegal is drawn again from the same parents. The alternatives are worse: repairing it, say by dropping
a layer that crosses, makes mappings of few layers likelier than the operator does, and putting the parent in its place
makes an unchanged child likelier still. Drawn again, a child has exactly the operator's own distribution, given that it
is legal. Changes are then rarer than q_C and q_M say, since an unchanged child is always legal. The number of draws is
returned, so that a search can report this.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.4. It asks for legal genomes and leaves open how.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.search.mapping_space import Genome, MappingSpace, raise_floor
from limbeck.search.requests import GeneticSettings

Pair: TypeAlias = tuple[Genome, Genome]
"""Two parents, or their two children."""
Scored: TypeAlias = tuple[Genome, float]
"""A genome and its fitness."""
MOST_DRAWS = 1000
"""Most draws of a child; if all of them are illegal, the parents go on unchanged. Only rates near 1 take so many."""
PAIRS_PER_CHILD = 50
"""Most pairs that are bred for each place of a generation of new genomes; what is missing then is drawn at random."""


def default_population(student: int) -> int:
    """Return the paper's population for a student's depth: 12 up to 4 layers, 20 for deeper ones.

    Source: ELM section 5.2 for depths 4 and 6; other depths are ours.
    """
    if student <= 4:
        return 12
    return 20


@dataclass(frozen=True)
class Children:
    """Legal children of one crossover or mutation.

    Attributes:
        genomes: The children.
        draws: The number of draws that they took, at least 1.
    """

    genomes: tuple[Genome, ...]
    draws: int


def random_genome(space: MappingSpace, generator: np.random.Generator) -> Genome:
    """Draw a legal genome, each as likely as any other.

    The codes are drawn from the first layer to the last. Of the legal genomes that begin with the codes so far, a part
    goes on with a certain code: this part is the code's probability. The paper draws fair bits until they make a legal
    genome, which has the same distribution.
    """
    codes: list[int] = []
    # The highest teacher layer so far, 0 for none: the layers that follow must lie above it.
    floor = 0
    for layers_settled in range(space.student):
        # A step is a possible code of the next layer; `members` is the number of legal genomes that go on with it.
        steps = space.steps(layers_settled, floor)
        members = np.array([step.members for step in steps], dtype=np.float64)
        index = generator.choice(len(steps), p=members / members.sum())
        step = steps[index]
        codes.append(step.code)
        floor = raise_floor(floor, step.layer)
    return tuple(codes)


def roulette_probabilities(fitnesses: Sequence[float]) -> NDArray[np.float64]:
    """Return the probability of each genome to be a parent, in proportion to its fitness above the lowest.

    If all fitnesses are equal, so are the probabilities.

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
    # Dividing by the largest first keeps the sum from overflowing, and from being too small to divide by.
    shares = above_lowest / above_lowest.max()
    return shares / shares.sum()


def select_pair(genomes: Sequence[Genome], probabilities: NDArray[np.float64], generator: np.random.Generator) -> Pair:
    """Draw two parents independently of each other, so that they may be the same genome."""
    first, second = generator.choice(len(genomes), size=2, p=probabilities)
    return genomes[first], genomes[second]


def crossover(space: MappingSpace, pair: Pair, exchange: float, generator: np.random.Generator) -> Children:
    """Exchange the code of each layer between two parents with probability `exchange`, until both children are legal.

    Args:
        space: The legal genomes.
        pair: The parents, both legal.
        exchange: q_C of ELM (arXiv 2012.06153), in [0, 1].
        generator: Draws the random numbers.
    """
    first_parent, second_parent = pair

    def draw_children() -> Pair:
        # One number for each student layer.
        is_exchanged = generator.random(space.student) < exchange
        first_child = list(first_parent)
        second_child = list(second_parent)
        for layer in np.flatnonzero(is_exchanged):
            first_child[layer] = second_parent[layer]
            second_child[layer] = first_parent[layer]
        return tuple(first_child), tuple(second_child)

    return _draw_until_legal(space, pair, draw_children)


def mutate(space: MappingSpace, genome: Genome, flip: float, generator: np.random.Generator) -> Children:
    """Flip each bit of a parent's codes with probability `flip`, until the child is legal.

    Args:
        space: The legal genomes.
        genome: The parent, legal.
        flip: q_M of ELM (arXiv 2012.06153), in [0, 1].
        generator: Draws the random numbers.
    """
    # 1, 2, 4, …: [bits].
    value_of_bit = 1 << np.arange(space.bits)

    def draw_child() -> tuple[Genome]:
        # [student layers, bits].
        is_flipped = generator.random((space.student, space.bits)) < flip
        # The bits to flip in each code as one number, [student layers]: bits 0 and 2 make 1 + 4 = 5.
        masks = is_flipped @ value_of_bit
        # XOR flips the bits of a code that its mask has.
        child = tuple(code ^ int(mask) for code, mask in zip(genome, masks, strict=True))
        return (child,)

    # Parents and children are tuples here as in `crossover`, though there is only one of each.
    return _draw_until_legal(space, (genome,), draw_child)


def _draw_until_legal(
    space: MappingSpace, parents: tuple[Genome, ...], draw: Callable[[], tuple[Genome, ...]]
) -> Children:
    """Draw children until all of them are legal; return the parents after `MOST_DRAWS` illegal draws."""
    for draws in range(1, MOST_DRAWS + 1):
        children = draw()
        if all(child in space for child in children):
            return Children(children, draws)
    return Children(parents, MOST_DRAWS)


@dataclass
class Breeding:
    """Counts of the operators' work while a generation was bred.

    The draws beyond the number of crossings, or of mutations, gave illegal children.

    Attributes:
        pairs: Pairs of parents that were selected.
        crossings: Pairs that were crossed.
        crossing_draws: Draws of the crossings.
        mutations: Children that were mutated.
        mutation_draws: Draws of the mutations.
    """

    pairs: int = 0
    crossings: int = 0
    crossing_draws: int = 0
    mutations: int = 0
    mutation_draws: int = 0


def draw_new(
    space: MappingSpace, count: int, generator: np.random.Generator, known: Collection[Genome] = ()
) -> list[Genome]:
    """Draw genomes uniformly from the space, no two alike and none of the known ones.

    Args:
        space: The legal genomes.
        count: Number of genomes; fewer are returned where the space has no more.
        generator: Draws the random numbers.
        known: Members of the space that are not drawn.
    """
    seen = set(known)
    drawn: list[Genome] = []
    while len(drawn) < count and len(seen) < space.size:
        genome = random_genome(space, generator)
        if genome not in seen:
            seen.add(genome)
            drawn.append(genome)
    return drawn


def next_generation(
    space: MappingSpace, history: Sequence[Sequence[Scored]], settings: GeneticSettings, generator: np.random.Generator
) -> tuple[list[Genome], Breeding]:
    """Breed the next generation; the first is drawn uniformly from the space, no two alike.

    Args:
        space: The legal genomes.
        history: Of each generation so far its genomes that have a fitness; empty for a generation where none has.
        settings: The size of the generation, its parents (`generation` or `best`, see `GeneticSettings`) and the rates.
        generator: Draws the random numbers.

    Returns:
        The genomes and how they were bred. With parents `generation` a genome may come more than once, and parents may
        come back. With parents `best` all are new, and fewer than the population where the space has no more.

    Source:
        ELM (arXiv 2012.06153) algorithm 1, lines 4 to 10.
    """
    scored = [genome_and_fitness for generation in history for genome_and_fitness in generation]
    if not scored:
        return draw_new(space, settings.population, generator), Breeding()
    if settings.parents == "best":
        breeder = _Breeder(space, _best(scored, settings.population), settings, generator)
        known = {genome for genome, _ in scored}
        return _breed_new(breeder, known), breeder.counts

    # The parents are those of the last generation that has fitnesses, and its best members go on unchanged.
    last = next(generation for generation in reversed(history) if generation)
    breeder = _Breeder(space, last, settings, generator)
    genomes = [genome for genome, _ in _best(last, settings.elite)]
    while len(genomes) < settings.population:
        genomes.extend(breeder.breed())
    # Children come in pairs, of which the last may be one too many.
    return genomes[: settings.population], breeder.counts


@dataclass
class _Breeder:
    """Breeds pairs of children, and counts the work in `counts`.

    Parents are selected in proportion to their fitness above the lowest.
    """

    space: MappingSpace
    parents: Sequence[Scored]
    settings: GeneticSettings
    generator: np.random.Generator
    counts: Breeding = field(default_factory=Breeding)

    @cached_property
    def _probabilities(self) -> NDArray[np.float64]:
        """The probability of each parent."""
        return roulette_probabilities([fitness for _, fitness in self.parents])

    def breed(self) -> tuple[Genome, ...]:
        """Select two parents, perhaps cross them, and perhaps mutate each child."""
        genomes = [genome for genome, _ in self.parents]
        parents = select_pair(genomes, self._probabilities, self.generator)
        children: tuple[Genome, ...] = parents
        self.counts.pairs += 1
        if self.generator.random() < self.settings.crossover:
            crossed = crossover(self.space, parents, self.settings.exchange, self.generator)
            self.counts.crossings += 1
            self.counts.crossing_draws += crossed.draws
            children = crossed.genomes
        return tuple(self._perhaps_mutated(child) for child in children)

    def _perhaps_mutated(self, genome: Genome) -> Genome:
        """Mutate a child with the probability of the settings."""
        if self.generator.random() >= self.settings.mutation:
            return genome
        mutated = mutate(self.space, genome, self.settings.flip, self.generator)
        self.counts.mutations += 1
        self.counts.mutation_draws += mutated.draws
        return mutated.genomes[0]


def _breed_new(breeder: _Breeder, known: Collection[Genome]) -> list[Genome]:
    """Breed a generation that has none of the known genomes; the genomes that breeding lacks are drawn at random."""
    size = breeder.settings.population
    # A dictionary, so that a child that comes twice keeps its first place.
    children: dict[Genome, None] = {}
    for _ in range(PAIRS_PER_CHILD * size):
        if len(children) >= size:
            break
        for child in breeder.breed():
            if child not in known:
                children[child] = None
    drawn = draw_new(breeder.space, size - len(children), breeder.generator, {*known, *children})
    return [*children, *drawn][:size]


def _best(scored: Sequence[Scored], count: int) -> list[Scored]:
    """Return the genomes of highest fitness, each once; of equals the first."""
    # Sorting is stable. A genome that comes twice has the same fitness, and keeps its first place in a dictionary.
    best_first = sorted(scored, key=lambda genome_and_fitness: genome_and_fitness[1], reverse=True)
    fitness_by_genome = dict(best_first)
    return list(fitness_by_genome.items())[:count]
