"""The corpus says how far it is: amounts and rates in the unit of each step, bars or lines."""

import io
import re

import pytest
from rich.console import Console

from limbeck.core import progress as corpus_progress
from limbeck.core.progress import CorpusProgress, describe_amount


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(corpus_progress.time, "monotonic", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ((1200, 34_000, "rows"), "1,200 of 34,000 rows"),
        ((1200, None, "documents"), "1,200 documents"),
        ((1_500_000, 3_000_000, "bytes"), "1.5 MB of 3.0 MB"),
        ((900, None, "bytes"), "900 bytes"),
    ],
)
def test_amounts(amount, said):
    assert describe_amount(*amount) == said


def test_lines_without_a_terminal_have_amount_rate_and_time_left(clock):
    stream, told = io.StringIO(), []
    with CorpusProgress(Console(file=stream, width=40), lambda *now: told.append(now)) as progress:
        for done in range(4):
            progress("reading my [texts]", done * 10**8, 10**9, "bytes")
            clock.now += 20
        progress("waiting for another process", 0, None, "")
    assert stream.getvalue().splitlines() == [
        "reading my [texts] …",
        "reading my [texts]: 200.0 MB of 1.0 GB, 5.0 MB/s, about 160 s left",
        "waiting for another process …",
    ]
    assert told[2:] == [
        ("reading my [texts]", 2 * 10**8, 10**9),
        ("reading my [texts]", 3 * 10**8, 10**9),
        ("waiting for another process", 0, None),
    ]


def test_each_step_has_a_bar_with_its_own_rate(clock):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=110, color_system=None)
    with CorpusProgress(console) as progress:
        progress("reading a", 0, None, "documents")
        clock.now += 10
        progress("reading a", 50, None, "documents")
        progress("tokenising", 0, 400, "characters")
        clock.now += 2
        progress("tokenising", 200, 400, "characters")
        progress.bars.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(r"reading a +\S+ +50 documents +5.0 documents/s", shown)
    assert re.search(r"tokenising +\S+.* 200 of 400 characters +100 characters/s", shown)
