"""Epochs as the training loop counts them: fractions, which rounding leaves a little off."""

import math

_TOLERANCE = 1e-6
"""Largest distance of a whole count of epochs from a whole number, which rounding makes."""


def ends_epoch(epochs: float) -> bool:
    """Return whether a count of epochs is a whole number."""
    return abs(epochs - round(epochs)) < _TOLERANCE


def next_epoch(epochs: float) -> int:
    """Return the epoch, from 0, that the next step is in."""
    return int(epochs + _TOLERANCE)


def last_epoch(epochs: float) -> int:
    """Return the epoch, from 0, of the last finished step: at a whole count the epoch that has just ended."""
    return math.ceil(epochs - _TOLERANCE) - 1
