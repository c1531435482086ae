"""The genetic algorithm: its operators against their distributions over many draws, and the generations they breed."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from limbeck.search import GeneticSettings, MappingSpace, default_population, elm_space, genetic
from limbeck.search.genetic import crossover, draw_new, mutate, next_generation, roulette_probabilities, select_pair

LEAST_LIKELY = 1e-3
SPACE = elm_space(6, 12)


def assert_drawn_from(counts, probabilities):
    """Chi-square, with what is expected less than five times in one bin."""
    assert set(counts) <= {key for key, probability in probabilities.items() if probability}
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


def test_new_genomes_are_uniform_over_the_unknown():
    space, random = elm_space(4, 12), np.random.default_rng(1)
    known = list(space)[:48]
    counts = Counter(draw_new(space, 1, random, known)[0] for _ in range(8000))
    assert_drawn_from(counts, dict.fromkeys(set(space) - set(known), 1 / 1000))


def test_roulette_is_in_proportion_to_fitness_above_the_lowest():
    expected = np.array([1.0, 2.5, 0.0, 4.0]) / 7.5
    probabilities = roulette_probabilities([80.0, 81.5, 79.0, 83.0])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)
    genomes, random = [(i,) for i in range(4)], np.random.default_rng(3)
    pairs = Counter(select_pair(genomes, probabilities, random) for _ in range(20_000))
    assert_drawn_from(pairs, {((i,), (j,)): expected[i] * expected[j] for i in range(4) for j in range(4)})


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
    for bad in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError, match="finite"):
            roulette_probabilities([*fitnesses, bad])


def exchanges(pair):
    for swap in itertools.product((False, True), repeat=4):
        first = tuple(b if s else a for a, b, s in zip(*pair, swap, strict=True))
        second = tuple(a if s else b for a, b, s in zip(*pair, swap, strict=True))
        yield (first, second), 0.4 ** sum(swap) * 0.6 ** (4 - sum(swap))


def flips(pair):
    for codes in itertools.product(range(8), repeat=4):
        ones = sum(code.bit_count() for code in codes)
        yield (tuple(a ^ b for a, b in zip(pair[0], codes, strict=True)),), 0.1**ones * 0.9 ** (12 - ones)


BREEDING = {
    "crossover": (lambda space, pair, random: crossover(space, pair, 0.4, random), exchanges),
    "mutation": (lambda space, pair, random: mutate(space, pair[0], 0.1, random), flips),
}


@pytest.mark.parametrize("kind", BREEDING)
def test_illegal_children_are_drawn_again_and_nothing_else_changes(kind):
    breed, outcomes = BREEDING[kind]
    space, random, draws = elm_space(4, 12), np.random.default_rng(6), 8000
    pair = (space.encode((1, 3, 5, 12)), space.encode((4, 6, 9, 10)))
    legal = Counter()
    for children, probability in outcomes(pair):
        legal[children] += probability * all(child in space for child in children)
    rate = legal.total()
    assert 0 < rate < 1
    result = [breed(space, pair, random) for _ in range(draws)]
    assert_drawn_from(Counter(item.genomes for item in result), {item: legal[item] / rate for item in legal})
    assert_rate(draws, sum(item.draws for item in result), rate)


def test_parents_stay_where_no_child_can_be_legal():
    space = MappingSpace(teacher=2, bits=1, choices=({0: 0}, {0: 1, 1: 2}))
    assert mutate(space, (0, 0), 1.0, np.random.default_rng(9)) == genetic.Children(((0, 0),), genetic.MOST_DRAWS)


# Generations: how often the operators act, who the parents are, and that chance comes from the generator alone.


def scored(generation):
    """A fitness that tells genomes apart."""
    return [(genome, float(sum((i + 1) * code for i, code in enumerate(genome)))) for genome in generation]


def history(settings, generations=1, seed=1):
    random, result = np.random.default_rng(seed), []
    for _ in range(generations):
        result.append(scored(next_generation(SPACE, result, settings, random)[0]))
    return result


def test_the_papers_settings_are_the_defaults():
    assert GeneticSettings() == GeneticSettings(
        population=12, crossover=0.2, exchange=0.2, mutation=0.8, flip=0.05, elite=0, parents="generation"
    )
    assert (default_population(4), default_population(6)) == (12, 20)


def test_the_first_generation_has_no_two_alike():
    space = elm_space(3, 4)
    genomes, _ = next_generation(space, [], GeneticSettings(population=space.size), np.random.default_rng(2))
    assert sorted(genomes) == list(space)


def test_operators_act_at_their_rates():
    settings = GeneticSettings(population=8000)
    _, counts = next_generation(SPACE, history(GeneticSettings(population=20)), settings, np.random.default_rng(3))
    assert counts.pairs == 4000
    assert_rate(counts.crossings, counts.pairs, 0.2)
    assert_rate(counts.mutations, 2 * counts.pairs, 0.8)
    assert counts.crossing_draws > counts.crossings
    assert counts.mutation_draws > counts.mutations


def test_without_operators_a_generation_is_roulette():
    parents = history(GeneticSettings(population=6))[-1]
    settings = GeneticSettings(population=12_000, crossover=0.0, mutation=0.0)
    generation, _ = next_generation(SPACE, [parents], settings, np.random.default_rng(4))
    genomes, fitnesses = zip(*parents, strict=True)
    assert_drawn_from(Counter(generation), dict(zip(genomes, roulette_probabilities(fitnesses), strict=True)))


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
    best = [genome for genome, _ in sorted(before[-1], key=lambda item: -item[1])[:3]]
    random = np.random.default_rng(8)
    plain, _ = next_generation(SPACE, before, GeneticSettings(**always), random)
    assert not {*best} & {*plain}
    kept, counts = next_generation(SPACE, before, GeneticSettings(**always, elite=3), random)
    assert (kept[:3], len(kept), counts.pairs) == (best, 12, 5)


def test_best_parents_come_from_all_generations_and_children_are_new():
    settings = GeneticSettings(population=10, parents="best")
    generations = history(settings, generations=6, seed=9)
    genomes = {genome for generation in generations for genome, _ in generation}
    assert len(genomes) == 60
    # Without change only parents could come, and these are known: all are drawn from the space.
    still = GeneticSettings(population=10, parents="best", crossover=0.0, mutation=0.0)
    drawn, counts = next_generation(SPACE, generations, still, np.random.default_rng(10))
    assert len({*drawn} - genomes) == 10
    assert counts.pairs == 500
    # A bit or two from one of the ten best, not from the last generation, which is made the worst.
    *earlier, last = generations[:3]
    one_bit = GeneticSettings(population=10, parents="best", crossover=0.0, mutation=1.0, flip=0.02)
    best = sorted((item for generation in earlier for item in generation), key=lambda item: -item[1])[:10]
    worst = [(genome, -100.0) for genome, _ in last]
    children, counts = next_generation(SPACE, [*earlier, worst], one_bit, np.random.default_rng(11))
    assert counts.pairs < 500
    for child in children:
        assert min(sum((a ^ b).bit_count() for a, b in zip(child, item, strict=True)) for item, _ in best) <= 2


def test_a_space_that_is_used_up_gives_what_is_left():
    space = elm_space(2, 3)
    members = list(space)
    settings = GeneticSettings(population=4, parents="best")
    left, _ = next_generation(space, [scored(members[:-2])], settings, np.random.default_rng(12))
    assert sorted(left) == sorted(members[-2:])
    assert next_generation(space, [scored(members)], settings, np.random.default_rng(12))[0] == []
