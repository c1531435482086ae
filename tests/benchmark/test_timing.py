"""Turns, spread, devices, the ceiling and the peak: what is measured, not how long it takes."""

from functools import partial
from types import SimpleNamespace

import psutil
import pytest
import torch

from limbeck.benchmark import peak_memory
from limbeck.benchmark.loss import measure_peak
from limbeck.benchmark.loss_case import LossCase
from limbeck.benchmark.peak_memory import Peak, peak_of, watch_peak
from limbeck.benchmark.peak_rates import measure_ceiling
from limbeck.core import timing
from limbeck.core.devices import choose_device
from limbeck.core.timing import FEWEST_ROUNDS, TooSlowError, speedup, stopwatch, summarise, take_turns
from limbeck.errors import RecipeError


def test_variants_take_turns_in_changing_order_after_the_warm_up():
    order = []
    variants = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    result = take_turns(variants, seconds=0, warmup=1, fewest=3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert result == {"a": [3, 6, 7], "b": [4, 5, 8]}


def test_rounds_end_with_the_time_or_the_most():
    assert len(take_turns({"a": lambda: 0}, seconds=60, most=7)["a"]) == 7
    assert len(take_turns({"a": lambda: 0}, seconds=0, warmup=0)["a"]) == FEWEST_ROUNDS


def test_progress_only_grows_and_ends_with_all():
    reports = []
    result = take_turns({"a": lambda: 0}, seconds=1e-3, most=50, tell=lambda *now: reports.append(now))
    assert reports == sorted(reports)
    assert reports[0] == (0, 0)
    # The first two are before and after the warm-up.
    assert [rounds for _, rounds in reports] == [0, *range(len(result["a"]) + 1)]
    assert reports[-1][0] == 1


def test_the_warm_up_is_of_the_measurement_that_is_told():
    events = []
    take_turns({"a": lambda: events.append("round")}, seconds=0, fewest=1, tell=lambda *now: events.append(now))
    assert events == [(0, 0), "round", (0.5, 0), "round", (1, 1)]


def test_rounds_that_take_longer_than_the_time_are_equal_shares_with_those_of_the_warm_up():
    reports = []
    take_turns({"a": lambda: 0}, seconds=0, warmup=3, fewest=5, tell=lambda *now: reports.append(now))
    assert [share for share, _ in reports] == [done / 8 for done in range(9)]
    assert [rounds for _, rounds in reports] == [0, 0, 0, 0, 1, 2, 3, 4, 5]


def test_rounds_that_would_take_too_long_end_with_the_first_of_the_warm_up(monkeypatch):
    clock = SimpleNamespace(now=0.0, runs=0)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)

    def run():
        clock.now += 10.0
        clock.runs += 1

    variants = {"a": run, "b": run}
    with pytest.raises(TooSlowError) as error:
        take_turns(variants, seconds=6, warmup=2, fewest=5, most_seconds=99)
    assert (error.value.seconds, clock.runs) == (100, 2)
    assert len(take_turns(variants, seconds=6, warmup=2, fewest=5, most_seconds=100)["a"]) == 5


def test_spread_and_speedup_by_hand():
    times = summarise([0.001 * n for n in range(1, 12)])  # 1 to 11 ms
    assert times == pytest.approx({"p10_ms": 2, "median_ms": 6, "p90_ms": 10})
    assert speedup([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == 2.0  # ratios 2, 3, 1
    calls = []
    assert stopwatch(lambda: calls.append(1), torch.device("cpu"))() >= 0 and calls == [1]


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", ""])
def test_devices_that_are_not_here_are_refused(name):
    with pytest.raises(RecipeError, match="use cpu"):
        choose_device(name)
    assert choose_device("cpu").type == "cpu"


def test_the_ceiling_counts_two_operations_for_each_product(monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.peak_rates.take_turns", lambda *_, **__: {"matmul": [0.5, 0.25, 1.0]})
    assert measure_ceiling(torch.device("cpu"), torch.float32, size=10) == 2 * 10**3 / 0.25


def test_the_peak_sees_what_was_held_for_a_moment_only():
    numbers = 20_000_000  # more than an allocator keeps back

    def run():
        held = torch.ones(numbers)
        del held

    peak = watch_peak(run, torch.device("cpu"))
    assert peak.extra_mb > 0.8 * numbers * 4 / 1e6
    assert peak.total_mb > peak.extra_mb


def test_a_process_measures_only_its_own_memory():
    case = LossCase(objective="soft_label_kl", batch=4, length=32, classes=20_000, student_width=8, teacher_width=8)
    ballast = torch.ones(100_000_000)  # 400 MB that must not count
    peak = peak_of(partial(measure_peak, case, "materialised"), torch.device("cpu"))
    assert peak.note == ""
    logits = 4 * 32 * 20_000 * 4 / 1e6
    assert 2 * logits < peak.extra_mb < 20 * logits
    assert peak.total_mb < psutil.Process().memory_info().rss / 1e6 - 200
    del ballast


def test_a_process_that_fails_says_why(monkeypatch):
    problem = "A worker ended with code -9; out of memory, or killed?"
    monkeypatch.setattr(peak_memory, "run_tasks", lambda *_, ended, **more: ended(None, problem))
    assert peak_of(list, torch.device("cpu")) == Peak(note=f"memory: {problem}")
