"""The demand for cores while something is timed: a neighbour that takes a core is seen, and idle cores are not."""

import os
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from limbeck.core import timing
from limbeck.core.timing import CoreDemand, is_unsteady

Times = namedtuple("Times", ["user", "system", "idle", "iowait", "guest"])
BEFORE = {"user": 100.0, "system": 10.0, "idle": 500.0, "iowait": 3.0, "guest": 20.0}


@pytest.mark.parametrize(
    ("changes", "own_seconds", "demand", "is_busy"),
    [
        # Two threads of this process on two cores, in ten seconds.
        ({"user": 20.0}, 20.0, 1.0, False),
        # A neighbour that has a third of the machine.
        ({"user": 18.0, "system": 2.0}, 13.4, 1.33, True),
        # Waiting for a disk, and guests, which are counted as the programs that run them, want no core.
        ({"user": 20.0, "iowait": 9.0, "guest": 9.0}, 20.0, 1.0, False),
        # Clocks of the system and of the process differ by a little.
        ({"user": 19.99}, 20.0, 1.0, False),
    ],
)
def test_the_demand_is_that_of_this_process_and_its_neighbours(monkeypatch, changes, own_seconds, demand, is_busy):
    now = SimpleNamespace(seconds=50.0, machine=dict(BEFORE), own=7.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now.seconds)
    monkeypatch.setattr(psutil, "cpu_times", lambda: Times(**now.machine))
    own_times = SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=now.own, system=0.0))
    monkeypatch.setattr(psutil, "Process", lambda: own_times)

    measured = CoreDemand(threads=2)
    now.seconds += 10.0
    now.own += own_seconds
    for name, seconds in changes.items():
        now.machine[name] += seconds
    assert measured.for_each_core() == pytest.approx(demand)
    assert is_unsteady(10.0, 11.0, demand=measured.for_each_core()) is is_busy


def test_a_system_that_tells_nothing_has_no_demand(monkeypatch):
    def refuse():
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert CoreDemand(threads=1).for_each_core() is None
    assert not is_unsteady(10.0, 11.0, demand=None)
