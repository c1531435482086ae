"""The least disturbed pass is what is compared, on a machine that is busy or idle."""

from itertools import chain, repeat

import pytest
import torch

from limbeck.search.latency import FEWEST_PASSES, MOST_PASSES, WARM_UP, PassTime, pass_timer, time_in_turns
from tests.support.word_models import tiny_bert

EACH = WARM_UP + FEWEST_PASSES


class Passes:
    """Passes of known times; counts how many were asked for."""

    def __init__(self, *times):
        self.asked = 0
        self._times = iter(times)

    def __call__(self):
        self.asked += 1
        return next(self._times)


def test_a_long_pass_that_is_mostly_interrupted_is_judged_by_the_one_that_was_not():
    busy = [PassTime(0.2 + 0.01 * n, 0.1) for n in range(EACH - 1)]
    teacher = Passes(*busy, PassTime(0.1, 0.1))
    student = Passes(*repeat(PassTime(0.01, 0.01), EACH))
    found = time_in_turns(teacher, student, seconds=0)
    assert (found.teacher, found.student, found.busy) == (0.1, 0.01, False)
    assert teacher.asked == student.asked == EACH


def test_a_disturbed_measurement_is_made_again():
    teacher = Passes(*chain(repeat(PassTime(0.2, 0.1), EACH), repeat(PassTime(0.11, 0.1), EACH)))
    student = Passes(*chain(repeat(PassTime(0.01, 0.01), EACH), repeat(PassTime(0.02, 0.01), EACH)))
    found = time_in_turns(teacher, student, seconds=0)
    assert (found.teacher, found.student, found.busy) == (0.11, 0.01, False)
    assert teacher.asked == 2 * EACH


def test_where_every_attempt_is_disturbed_processor_times_are_compared():
    teacher, student = Passes(*repeat(PassTime(0.2, 0.1), 3 * EACH)), Passes(*repeat(PassTime(0.01, 0.01), 3 * EACH))
    found = time_in_turns(teacher, student, seconds=0)
    assert (found.teacher, found.student, found.busy) == (0.1, 0.01, True)
    assert teacher.asked == student.asked == 3 * EACH


def test_without_a_processor_clock_wall_times_stand():
    found = time_in_turns(Passes(*repeat(PassTime(0.2), EACH)), Passes(*repeat(PassTime(0.1), EACH)), seconds=0)
    assert (found.teacher, found.student, found.busy) == (0.2, 0.1, False)


def test_short_passes_are_not_repeated_for_ever():
    teacher, student = Passes(*repeat(PassTime(1.0, 1.0), 1000)), Passes(*repeat(PassTime(1.0, 1.0), 1000))
    time_in_turns(teacher, student, seconds=60)
    assert teacher.asked == student.asked == WARM_UP + MOST_PASSES


@pytest.mark.parametrize("texts", [1, 3])
def test_a_pass_is_timed_by_both_clocks(texts):
    found = pass_timer(tiny_bert(2).eval(), torch.ones(texts, 16, dtype=torch.long))()
    assert 0 < found.cpu <= found.wall * 1.05
