"""Generations: how often the operators act, who the parents are, and that chance comes from the generator alone."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from limbeck.errors import RecipeError
from limbeck.search.genetic import GeneticSettings, default_population, draw_new, first_generation, next_generation
from limbeck.search.mapping_space import MappingSpace, elm_space

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
    assert binomtest(counts.crossings, counts.pairs, 0.2).pvalue > 1e-3
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
