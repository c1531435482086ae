"""Reward, Pareto front and successive halving against their definitions."""

import math

import numpy as np
import pytest

from limbeck.errors import RecipeError
from limbeck.search.shape_space import pareto_front, shape_reward
from limbeck.search.teacher_layer import Rung, halving_rungs, survivors


def test_reward_is_equation_12():
    assert shape_reward(0.3, 5.41, 64.91) == pytest.approx(0.7 * (5.41 / (0.6 * 64.91)) ** -0.06, rel=1e-12)
    assert shape_reward(0.0, 6.0, 10.0) == 1.0
    assert shape_reward(0.2, 3.0, 10.0) > shape_reward(0.2, 6.0, 10.0) > shape_reward(0.3, 6.0, 10.0)
    for latency, teacher in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0)]:
        with pytest.raises(ValueError, match="above 0"):
            shape_reward(0.1, latency, teacher)


def naive_front(points):
    def beats(a, b):
        return a[0] <= b[0] and a[1] <= b[1] and a != b

    numbers = [point for point in points if not any(math.isnan(value) for value in point)]
    on = [i for i, p in enumerate(points) if p in numbers and not any(beats(q, p) for q in numbers)]
    return sorted(on, key=lambda i: points[i][1])


def test_front_is_what_no_point_beats():
    random = np.random.default_rng(1)
    for size in range(40):
        points = [tuple(point) for point in random.integers(0, 8, size=(size, 2)).astype(float).tolist()]
        points += [(math.nan, 0.0), (0.0, math.nan)] * (size % 2)
        front = pareto_front(points)
        assert sorted(front) == sorted(naive_front(points))
        assert [points[i][1] for i in front] == sorted(points[i][1] for i in front)


@pytest.mark.parametrize(
    ("candidates", "steps", "factor", "expected"),
    [
        (8, 240, 2, [(8, 10), (4, 20), (2, 40)]),
        (12, 360, 2, [(12, 10), (6, 20), (3, 40)]),
        (12, 120, 3, [(12, 5), (4, 15)]),
        (24, 1000, 4, [(24, 20), (6, 83)]),
        (2, 10, 2, [(2, 5)]),
        (1, 10, 2, [(1, 10)]),
    ],
    ids=str,
)
def test_halving_divides_the_budget_evenly_over_rounds(candidates, steps, factor, expected):
    rungs = halving_rungs(candidates, steps, factor)
    assert rungs == [Rung(*rung) for rung in expected]
    assert sum(rung.candidates * rung.steps for rung in rungs) <= steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 10), "0 candidates leave nothing to choose from"),
        ((4, 10, 1), "factor of 1 drops no candidate"),
        ((8, 23), "give at least 24"),
    ],
    ids=str,
)
def test_halving_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(RecipeError, match=message):
        halving_rungs(*arguments)


def test_the_budget_that_a_refusal_names_is_enough():
    for candidates in range(1, 30):
        for factor in (2, 3, 4):
            with pytest.raises(RecipeError, match=r"give at least (\d+)") as caught:
                halving_rungs(candidates, 0, factor)
            least = int(str(caught.value).rstrip(".").split()[-1])
            assert all(rung.steps >= 1 for rung in halving_rungs(candidates, least, factor))


def test_survivors_are_those_of_lowest_loss():
    losses = {"a": 0.5, "b": math.nan, "c": 0.1, "d": 0.5, "e": math.inf}
    assert survivors(losses, 3) == ["c", "a", "d"]
    assert survivors(losses, 9) == ["c", "a", "d", "b", "e"]
