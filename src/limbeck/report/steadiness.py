"""Which measured ratios of times can be told: not those of few rounds, or of rounds that say different things."""

from __future__ import annotations

from limbeck.evaluation.costs import FEWEST_ROUNDS

_MOST_APART = 1.1
"""The median of the ratios over the ratio of the medians; on an idle machine they are within 2 percent."""


def is_doubtful(first: float | None, second: float | None, ratio: float | None, rounds: float | None) -> bool:
    """Return whether a speedup was measured on a machine too busy, or too few times, to be told as a figure.

    Args:
        first: Median time of the model that the other is compared with.
        second: Median time of the other.
        ratio: Median over rounds of the first's time by the second's.
        rounds: How many rounds there were.
    """
    if rounds is not None and rounds < FEWEST_ROUNDS:
        return True
    if not first or not second or not ratio:
        return False
    apart = ratio * second / first
    return not 1 / _MOST_APART <= apart <= _MOST_APART
