"""The operators against the distributions that they are to have, over many draws."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from limbeck.search import genetic
from limbeck.search.genetic import crossover, mutate, random_genome, roulette_probabilities, select_pair
from limbeck.search.mapping_space import MappingSpace, elm_space

SPACES = [(4, 12), (6, 12), (4, 24), (6, 24)]
FREE = MappingSpace(
    teacher=10,
    bits=2,
    choices=({0: 0, 1: 1, 2: 2, 3: 3}, {0: 0, 1: 4, 2: 5, 3: 6}, {0: 7, 1: 8, 2: 9, 3: 10}),
)
"""Without illegal genomes: nothing is ever drawn again."""
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


def test_random_genomes_are_the_papers_fair_bits_until_legal():
    space, random = elm_space(3, 4), np.random.default_rng(2)
    counts = Counter()
    while sum(counts.values()) < 3000:
        genome = tuple(random.integers(2**space.bits, size=3).tolist())
        counts[genome] += genome in space
    assert_drawn_from(+counts, dict.fromkeys(space, 1 / space.size))


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


def test_codes_are_exchanged_at_the_nominal_rate_where_all_is_legal():
    random, draws = np.random.default_rng(4), 20_000
    exchanged = np.zeros(3)
    for _ in range(draws):
        children = crossover(FREE, ((0, 0, 0), (3, 3, 3)), 0.2, random)
        assert children.draws == 1
        first, second = np.array(children.pair)
        assert (first + second == 3).all()
        exchanged += first == 3
    for count in exchanged:
        assert_rate(count, draws, 0.2)


def test_bits_are_flipped_at_the_nominal_rate_where_all_is_legal():
    random, draws = np.random.default_rng(5), 20_000
    counts = Counter()
    for _ in range(draws):
        child = mutate(FREE, (0, 1, 2), 0.05, random)
        assert child.draws == 1
        counts[child.genome] += 1
    flips = {tuple(bits): 0.05 ** sum(bits) * 0.95 ** (6 - sum(bits)) for bits in itertools.product((0, 1), repeat=6)}
    expected = {
        (0 ^ (2 * b[0] + b[1]), 1 ^ (2 * b[2] + b[3]), 2 ^ (2 * b[4] + b[5])): probability
        for b, probability in flips.items()
    }
    assert_drawn_from(counts, expected)


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


@pytest.mark.parametrize(("exchange", "swapped"), [(0.0, False), (1.0, True)])
def test_certain_exchanges(exchange, swapped):
    pair, random = ((0, 1, 2), (3, 2, 1)), np.random.default_rng(8)
    assert crossover(FREE, pair, exchange, random).pair == (pair[::-1] if swapped else pair)


def test_parents_stay_where_no_child_can_be_legal(monkeypatch):
    space = MappingSpace(teacher=2, bits=1, choices=({0: 0}, {0: 1, 1: 2}))
    child = mutate(space, (0, 0), 1.0, np.random.default_rng(9))
    assert (child.genome, child.draws) == ((0, 0), genetic.MOST_DRAWS)
