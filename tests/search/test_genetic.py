"""The genetic algorithm: its operators against their distributions over many draws, and the generations they breed."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from limbeck.errors import RecipeError
from limbeck.search import genetic
from limbeck.search.genetic import (
    GeneticSettings,
    crossover,
    default_population,
    draw_new,
    first_generation,
    mutate,
    next_generation,
    random_genome,
    roulette_probabilities,
    select_pair,
)
from limbeck.search.mapping_space import MappingSpace, elm_space

SPACES = [(4, 12), (6, 12), (4, 24), (6, 24)]
LEAST_LIKELY = 1e-3


def assert_drawn_from(counts, probabilities):
    """Chi-square, with what is expected less than five times in one bin."""
    assert set(counts) <= set(probabilities)
    draws = sum(counts.values())
    often = [key for key, probability in probabilities.items() if probability * draws >= 5]
    observed = np.array([counts[key] for key in often] + [draws - sum(counts[key] for key in often)], dtype=float)
    expected = np.array([probabilities[key] * draws for key in often], dtype=float)
    expected = np.append(expected, draws - expected.sum())
    if expected[-1] < 1e-6:
        observed, expected = observed[:-1], expected[:-1]
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > LEAST_LIKELY


def assert_rate(successes, trials, rate):
    assert binomtest(int(successes), int(trials), rate).pvalue > LEAST_LIKELY


def conditional(outcomes, is_legal):
    """Probabilities of outcomes given that they are legal, from (outcome, probability) pairs."""
    found = Counter()
    for outcome, probability in outcomes:
        if is_legal(outcome):
            found[outcome] += probability
    total = sum(found.values())
    return {outcome: probability / total for outcome, probability in found.items()}


def test_random_genomes_are_uniform_over_the_space():
    space, random = elm_space(4, 12), np.random.default_rng(1)
    counts = Counter(random_genome(space, random) for _ in range(8000))
    assert_drawn_from(counts, dict.fromkeys(space, 1 / 1048))


def test_roulette_is_in_proportion_to_fitness_above_the_lowest():
    fitnesses = [80.0, 81.5, 79.0, 83.0]
    expected = np.array([1.0, 2.5, 0.0, 4.0]) / 7.5
    probabilities = roulette_probabilities(fitnesses)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)
    genomes, random = [(i,) for i in range(4)], np.random.default_rng(3)
    pairs = Counter(select_pair(genomes, probabilities, random) for _ in range(20_000))
    both = {((i,), (j,)): expected[i] * expected[j] for i in (0, 1, 3) for j in (0, 1, 3)}
    assert_drawn_from(pairs, both)


@pytest.mark.parametrize(
    ("fitnesses", "expected"),
    [
        ([2.0, 2.0, 2.0], [1 / 3] * 3),
        ([-1.0], [1.0]),
        ([0.0, 5e-324], [0.0, 1.0]),
        ([-8e307, 8e307, 8e307], [0.0, 0.5, 0.5]),
    ],
    ids=str,
)
def test_roulette_of_extreme_fitnesses(fitnesses, expected):
    np.testing.assert_allclose(roulette_probabilities(fitnesses), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_roulette_refuses_what_is_not_finite(bad):
    with pytest.raises(ValueError, match="finite"):
        roulette_probabilities([1.0, bad])


def test_illegal_children_are_drawn_again_and_nothing_else_changes():
    space, random, draws = elm_space(4, 12), np.random.default_rng(6), 8000
    pair = (space.encode((1, 3, 5, 12)), space.encode((4, 6, 9, 10)))

    def exchanges():
        for swap in itertools.product((False, True), repeat=4):
            first = tuple(b if s else a for a, b, s in zip(*pair, swap, strict=True))
            second = tuple(a if s else b for a, b, s in zip(*pair, swap, strict=True))
            yield (first, second), 0.4 ** sum(swap) * 0.6 ** (4 - sum(swap))

    expected = conditional(exchanges(), lambda children: all(child in space for child in children))
    assert len(expected) < 16
    found = [crossover(space, pair, 0.4, random) for _ in range(draws)]
    assert_drawn_from(Counter(children.pair for children in found), expected)
    legal = sum(p for children, p in exchanges() if all(child in space for child in children))
    assert_rate(draws, sum(children.draws for children in found), legal)

    def flips():
        for codes in itertools.product(range(8), repeat=4):
            ones = sum(code.bit_count() for code in codes)
            yield tuple(a ^ b for a, b in zip(pair[0], codes, strict=True)), 0.1**ones * 0.9 ** (12 - ones)

    found = [mutate(space, pair[0], 0.1, random) for _ in range(draws)]
    assert_drawn_from(Counter(child.genome for child in found), conditional(flips(), lambda genome: genome in space))
    assert_rate(draws, sum(child.draws for child in found), sum(p for genome, p in flips() if genome in space))


@pytest.mark.parametrize("case", SPACES, ids=str)
def test_every_child_is_legal(case):
    space, random = elm_space(*case), np.random.default_rng(7)
    for _ in range(300):
        pair = (random_genome(space, random), random_genome(space, random))
        children = crossover(space, pair, 0.5, random).pair
        for genome in (*pair, *children, *(mutate(space, child, 0.2, random).genome for child in children)):
            layers = [layer for layer in space.decode(genome) if layer]
            assert layers == sorted(set(layers))


def test_parents_stay_where_no_child_can_be_legal(monkeypatch):
    space = MappingSpace(teacher=2, bits=1, choices=({0: 0}, {0: 1, 1: 2}))
    child = mutate(space, (0, 0), 1.0, np.random.default_rng(9))
    assert (child.genome, child.draws) == ((0, 0), genetic.MOST_DRAWS)


# Generations: how often the operators act, who the parents are, and that chance comes from the generator alone.

SPACE = elm_space(6, 12)


def scored(generation):
    """A fitness that tells genomes apart."""
    return [(genome, float(sum((i + 1) * code for i, code in enumerate(genome)))) for genome in generation]


def history(settings, generations=1, seed=1):
    random = np.random.default_rng(seed)
    found = [scored(first_generation(SPACE, settings, random))]
    for _ in range(generations - 1):
        found.append(scored(next_generation(SPACE, found, settings, random)[0]))
    return found


def test_the_papers_settings_are_the_defaults():
    assert GeneticSettings() == GeneticSettings(
        population=12, crossover=0.2, exchange=0.2, mutation=0.8, flip=0.05, elite=0, parents="generation"
    )
    assert (default_population(4), default_population(6)) == (12, 20)


def test_the_first_generation_has_no_two_alike():
    settings = GeneticSettings(population=90)
    space = elm_space(3, 4)
    genomes = first_generation(space, GeneticSettings(population=space.size), np.random.default_rng(2))
    assert sorted(genomes) == list(space)
    assert len(set(first_generation(SPACE, settings, np.random.default_rng(2)))) == 90
    with pytest.raises(RecipeError, match=f"more than the {space.size} layer mappings"):
        first_generation(space, GeneticSettings(population=space.size + 1), np.random.default_rng(2))


def test_operators_act_at_their_rates():
    settings = GeneticSettings(population=8000)
    _, counts = next_generation(SPACE, history(GeneticSettings(population=20)), settings, np.random.default_rng(3))
    assert counts.pairs == 4000
    assert binomtest(counts.crossings, counts.pairs, 0.2).pvalue > LEAST_LIKELY
    assert binomtest(counts.mutations, 2 * counts.pairs, 0.8).pvalue > 1e-3
    assert counts.crossing_draws > counts.crossings
    assert counts.mutation_draws > counts.mutations


def test_without_operators_a_generation_is_roulette():
    parents = history(GeneticSettings(population=6))[-1]
    settings = GeneticSettings(population=12_000, crossover=0.0, mutation=0.0)
    generation, _ = next_generation(SPACE, [parents], settings, np.random.default_rng(4))
    counts = Counter(generation)
    lowest = min(fitness for _, fitness in parents)
    total = sum(fitness - lowest for _, fitness in parents)
    for genome, fitness in parents:
        assert binomtest(counts[genome], len(generation), (fitness - lowest) / total).pvalue > 1e-3


@pytest.mark.parametrize("population", [2, 7, 12])
@pytest.mark.parametrize("parents", ["generation", "best"])
def test_generations_are_full_legal_and_repeatable(population, parents):
    settings = GeneticSettings(population=population, parents=parents)
    runs = [history(settings, generations=4, seed=5) for _ in range(2)]
    assert runs[0] == runs[1] != history(settings, generations=4, seed=6)
    for generation in runs[0]:
        assert len(generation) == population
        assert all(genome in SPACE for genome, _ in generation)


def test_only_an_elite_that_is_asked_for_goes_on_unchanged():
    # Every genome is mutated, and in every bit on average: nothing survives by chance.
    always = {"population": 12, "mutation": 1.0, "flip": 0.5}
    before = history(GeneticSettings(**always), seed=7)
    best_first = sorted(before[-1], key=lambda one: -one[1])
    random = np.random.default_rng(8)
    plain, _ = next_generation(SPACE, before, GeneticSettings(**always), random)
    assert not {genome for genome, _ in best_first[:3]} & set(plain)
    kept, counts = next_generation(SPACE, before, GeneticSettings(**always, elite=3), random)
    assert kept[:3] == [genome for genome, _ in best_first[:3]]
    assert (len(kept), counts.pairs) == (12, 5)


def test_best_parents_come_from_all_generations_and_children_are_new():
    settings = GeneticSettings(population=10, parents="best")
    generations = history(settings, generations=6, seed=9)
    genomes = [genome for generation in generations for genome, _ in generation]
    assert len(set(genomes)) == 60
    # Without change only parents could come, and these are known: all are drawn from the space.
    still = GeneticSettings(population=10, parents="best", crossover=0.0, mutation=0.0)
    drawn, counts = next_generation(SPACE, generations, still, np.random.default_rng(10))
    assert len(set(drawn) - set(genomes)) == 10
    assert counts.pairs == 500
    # A bit or two from one of the ten best, not from the last generation, which is made the worst.
    generations = generations[:3]
    worst = [(genome, -100.0) for genome, _ in generations[-1]]
    one_bit = GeneticSettings(population=10, parents="best", crossover=0.0, mutation=1.0, flip=0.02)
    best = sorted((one for generation in generations[:-1] for one in generation), key=lambda one: -one[1])[:10]
    children, counts = next_generation(SPACE, [*generations[:-1], worst], one_bit, np.random.default_rng(11))
    assert counts.pairs < 500
    near = [
        min(sum((a ^ b).bit_count() for a, b in zip(child, parent, strict=True)) for parent, _ in best)
        for child in children
    ]
    assert max(near) <= 2


def test_a_space_that_is_used_up_gives_what_is_left():
    space = elm_space(2, 3)
    members = list(space)
    settings = GeneticSettings(population=4, parents="best")
    left, _ = next_generation(space, [scored(members[:-2])], settings, np.random.default_rng(12))
    assert sorted(left) == sorted(members[-2:])
    assert next_generation(space, [scored(members)], settings, np.random.default_rng(12))[0] == []


def test_new_draws_are_uniform_over_the_unknown():
    space = MappingSpace(teacher=4, bits=2, choices=({0: 1, 1: 2, 2: 3, 3: 4},))
    random = np.random.default_rng(13)
    counts = Counter(draw_new(space, 1, random, known=[(2,)])[0] for _ in range(6000))
    assert set(counts) == {(0,), (1,), (3,)}
    assert all(binomtest(count, 6000, 1 / 3).pvalue > 1e-3 for count in counts.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"crossover": 1.2}, "crossover 1.2 is no probability"),
        ({"flip": float("nan")}, "flip nan is no probability"),
        ({"population": 1}, "A population of 1 cannot breed"),
        ({"population": 4, "elite": 4}, "give 0 to 3"),
        ({"parents": "bets"}, "Did you mean 'best'?"),
        ({"parents": "best", "elite": 1}, "leave it out"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused(values, message):
    with pytest.raises(RecipeError) as caught:
        GeneticSettings(**values)
    assert message in str(caught.value)
