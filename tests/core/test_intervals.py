"""Intervals against published and computed values."""

import math

import numpy as np
import pytest
from scipy import stats

from limbeck.core import intervals


def test_of_share_is_wilsons():
    for right, rows in ((0, 10), (7, 10), (736, 872), (57, 57)):
        expected = stats.binomtest(right, rows).proportion_ci(method="wilson")
        assert intervals.of_share(right / rows, rows) == pytest.approx((expected.low, expected.high))


def test_of_correlation_is_fishers():
    generator = np.random.default_rng(1)
    x = generator.normal(size=80)
    y = x + generator.normal(size=80)
    correlation = stats.pearsonr(x, y)
    expected = correlation.confidence_interval()
    interval = intervals.of_correlation(correlation.statistic, 80, ranked=False)
    assert interval == pytest.approx((expected.low, expected.high))


def test_of_correlation_of_ranks_has_their_variance():
    low, high = intervals.of_correlation(0.8, 103, ranked=True)
    variance = (1 + 0.8**2 / 2) / (103 - 3)
    assert np.arctanh(high) - np.arctanh(0.8) == pytest.approx(1.959964 * variance**0.5)
    assert low < 0.8


def test_of_correlation_needs_five_rows_and_some_spread():
    assert intervals.of_correlation(1.0, 80, ranked=True) is None
    assert intervals.of_correlation(0.5, 4, ranked=True) is None


def test_of_resampled_is_near_the_shares():
    is_right = [1] * 70 + [0] * 30

    def accuracy(rows):
        return sum(is_right[row] for row in rows) / len(rows)

    interval = intervals.of_resampled(accuracy, len(is_right))
    assert interval == pytest.approx(intervals.of_share(0.7, 100), abs=0.03)
    assert interval == intervals.of_resampled(accuracy, len(is_right)), "the draws are always the same"


def test_scores_that_are_equal_in_all_draws_have_no_interval():
    assert intervals.of_resampled(lambda draw: 1.0, 30) is None

    def scores(draw):
        return {"all": 1.0, "undefined": math.nan, "some": sum(draw)}

    assert list(intervals.each_of_resampled(scores, 30)) == ["some"]


def test_of_mean_is_students():
    values = [81.0, 82.5, 80.2, 81.9]
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert intervals.of_mean(values) == pytest.approx(expected)
    assert intervals.of_mean(values[:1]) is None


def test_runs_that_agree_have_no_interval():
    assert intervals.of_mean([50.0, 50.0, 50.0]) is None
    assert intervals.of_mean([0.0, 0.0]) is None
    low, high = intervals.of_mean([50.0, 50.0, 50.001])
    assert low < 50.0003 < high


def test_of_mean_share_is_the_normal_approximation_within_0_and_1():
    values = [0.5, 1.0, 0.25, 0.0, 0.63]
    expected = stats.norm.interval(0.95, loc=np.mean(values), scale=stats.sem(values))
    assert intervals.of_mean_share(values) == pytest.approx(expected)
    low, high = intervals.of_mean_share([1.0, 1.0, 0.5])
    assert 0 < low < 2.5 / 3 and high == 1


def test_of_mean_share_of_right_and_wrong_is_wilsons_also_where_all_are_right():
    assert intervals.of_mean_share([1, 0.0, 1.0]) == intervals.of_share(2 / 3, 3)
    assert intervals.of_mean_share([1.0] * 20) == intervals.of_share(1.0, 20)


@pytest.mark.parametrize("count", [1, 40])
def test_of_mean_share_of_equal_values_between_0_and_1_is_unknown(count: int):
    assert intervals.of_mean_share([0.5] * count) is None


def test_is_greater_pairs_by_seed():
    first = {1: 50.0, 2: 60.0, 3: 70.0}
    second = {3: 69.0, 1: 49.1, 2: 58.9}
    assert intervals.is_greater(first, second)
    assert not intervals.is_greater(second, first)
    assert not intervals.is_greater({1: 90.0}, {1: 1.0}), "one seed tells nothing"
    assert not intervals.is_greater({1: 90.0, 2: 91.0}, {3: 1.0, 4: 2.0}), "no seed in common"


def test_equal_differences_are_not_beyond_chance():
    assert not intervals.is_greater({1: 62.5, 2: 62.5}, {1: 50.0, 2: 50.0})
    assert not intervals.is_greater({1: 62.3, 2: 61.3}, {1: 50.1, 2: 49.1}), "equal up to rounding"
    assert intervals.is_greater({1: 62.5, 2: 62.6}, {1: 50.0, 2: 50.0})
