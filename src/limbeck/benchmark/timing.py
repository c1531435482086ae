"""Repeated measurements: warm-up, variants in turns, device synchronisation, median and spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import torch

from limbeck.core.machine import synchronise
from limbeck.evaluation.costs import FEWEST_ROUNDS, MOST_ROUNDS, Times

T = TypeVar("T")
Tell: TypeAlias = Callable[[float, int], None]
"""Is told which share of a measurement is done, 0 to 1, and how many rounds are."""


def say_nothing(share: float, rounds: int) -> None:
    """Be told, and keep it."""


def stopwatch(run: Callable[[], object], device: torch.device) -> Callable[[], float]:
    """Return a callable that runs `run` once and returns its seconds, the device's work included."""

    def timed() -> float:
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        return time.perf_counter() - start

    return timed


def take_turns(
    variants: Mapping[str, Callable[[], T]],
    *,
    seconds: float,
    warmup: int = 1,
    fewest: int = FEWEST_ROUNDS,
    most: int = MOST_ROUNDS,
    tell: Tell = say_nothing,
) -> dict[str, list[T]]:
    """Run variants in turns (A B, B A, A B …), so that whatever else the machine does falls on all alike.

    Args:
        variants: What to run, by name; usually made by `stopwatch`.
        seconds: For everything together, warm-up included. `fewest` rounds are made whatever they take.
        warmup: Rounds that are not counted.
        fewest: Least number of counted rounds.
        most: Greatest number of counted rounds.
        tell: Is told the share that is done, and the rounds, without those of the warm-up.

    Returns:
        What each variant returned, round by round: the entries at one place are of neighbouring runs.
    """
    start = time.perf_counter()
    for _ in range(warmup):
        for run in variants.values():
            run()
    found: dict[str, list[T]] = {name: [] for name in variants}
    for turn in range(most):
        elapsed = time.perf_counter() - start
        if turn >= fewest and elapsed >= seconds:
            break
        tell(min(1.0, elapsed / max(seconds, 1e-9), turn / fewest if turn < fewest else 1.0), turn)
        for name in list(variants) if turn % 2 == 0 else reversed(list(variants)):
            found[name].append(variants[name]())
    tell(1.0, len(next(iter(found.values()), [])))
    return found


def summarise(seconds: Sequence[float]) -> Times:
    """Reduce repeated measurements to milliseconds: median, 10th and 90th percentile."""
    p10, median, p90 = np.percentile(np.asarray(seconds) * 1000, [10, 50, 90])
    return Times(median_ms=float(median), p10_ms=float(p10), p90_ms=float(p90))


def speedup(first: Sequence[float], other: Sequence[float]) -> float:
    """Return how many times faster `other` is than `first`: the median over rounds of first / other."""
    return float(np.median(np.asarray(first) / np.asarray(other)))
