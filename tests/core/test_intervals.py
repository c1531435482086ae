"""Intervals against published and computed values."""

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
    found = stats.pearsonr(x, y)
    expected = found.confidence_interval()
    assert intervals.of_correlation(found.statistic, 80, ranked=False) == pytest.approx((expected.low, expected.high))
    low, high = intervals.of_correlation(0.8, 103, ranked=True)
    assert np.arctanh(high) - np.arctanh(0.8) == pytest.approx(1.959964 * (1.32 / 100) ** 0.5) and low < 0.8
    assert intervals.of_correlation(1.0, 80, ranked=True) is None
    assert intervals.of_correlation(0.5, 4, ranked=True) is None


def test_of_resampled_is_near_the_shares():
    right = [1] * 70 + [0] * 30
    found = intervals.of_resampled(lambda rows: sum(right[row] for row in rows) / len(rows), len(right))
    assert found == pytest.approx(intervals.of_share(0.7, 100), abs=0.03)
    assert found == intervals.of_resampled(lambda rows: sum(right[row] for row in rows) / len(rows), len(right))


def test_of_mean_is_students():
    values = [81.0, 82.5, 80.2, 81.9]
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert intervals.of_mean(values) == pytest.approx(expected)
    assert intervals.of_mean(values[:1]) is None


def test_is_greater_pairs_by_seed():
    first, second = {1: 50.0, 2: 60.0, 3: 70.0}, {3: 69.0, 1: 49.1, 2: 58.9}
    assert intervals.is_greater(first, second) and not intervals.is_greater(second, first)
    assert not intervals.is_greater({1: 90.0}, {1: 1.0}), "one seed tells nothing"
    assert not intervals.is_greater({1: 90.0, 2: 91.0}, {3: 1.0, 4: 2.0}), "no seed in common"
