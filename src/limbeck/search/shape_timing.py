"""The time that a pass of a model takes where nothing disturbs it, found on a machine that may be busy.

A pass that is longer than a slice of the scheduler is interrupted on a busy machine and a shorter one is not, so that
medians of a slow and a fast model are not disturbed alike and their ratio is wrong. The least disturbed pass of each is
what is compared, and the processor's time says whether even that one waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from limbeck.evaluation.inference import encoder_of

FEWEST_PASSES, MOST_PASSES = 10, 100
WARM_UP = 2
MOST_ATTEMPTS = 3
DISTURBED = 1.5
"""A pass whose wall time is above this many times its processor time waited for the machine."""


@dataclass(frozen=True)
class PassTime:
    """What one forward pass took.

    Args:
        wall: Seconds on the clock.
        cpu: Seconds that the thread which called the model ran; None where another device computed.
    """

    wall: float
    cpu: float | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether the pass waited for the machine; a processor clock too coarse to show it says nothing."""
        return bool(self.cpu) and self.wall > DISTURBED * (self.cpu or 0.0)


@dataclass(frozen=True)
class PairTimes:
    """The seconds of one pass of teacher and of student, on the same clock.

    Args:
        teacher: The teacher's.
        student: The student's.
        busy: Every attempt was disturbed, and these are processor times.
    """

    teacher: float
    student: float
    busy: bool


TimePass = Callable[[], PassTime]


def time_in_turns(teacher: TimePass, student: TimePass, seconds: float) -> PairTimes:
    """Time both in turns and return the least disturbed pass of each, or the least processor times on a busy machine.

    Where the shortest pass of either is disturbed, all is measured again, up to `MOST_ATTEMPTS` times in all; passes of
    earlier attempts count.

    Args:
        teacher: Makes and times one pass.
        student: The same.
        seconds: For each attempt; `FEWEST_PASSES` of each are made whatever they take, and `MOST_PASSES` at most.
    """
    teachers: list[PassTime] = []
    students: list[PassTime] = []
    for _ in range(MOST_ATTEMPTS):
        found = _take_turns(teacher, student, seconds)
        teachers += [pair[0] for pair in found]
        students += [pair[1] for pair in found]
        shortest = [min(passes, key=lambda one: one.wall) for passes in (teachers, students)]
        if not any(one.is_disturbed for one in shortest):
            return PairTimes(shortest[0].wall, shortest[1].wall, busy=False)
    return PairTimes(_least_cpu(teachers), _least_cpu(students), busy=True)


def pass_timer(model: nn.Module, input_ids: torch.Tensor) -> TimePass:
    """Return what times a pass of a model's encoder over texts without padding.

    Args:
        model: In eval mode, on the device of the texts.
        input_ids: Of shape (texts, tokens).
    """
    encoder, valid, device = encoder_of(model), torch.ones_like(input_ids), input_ids.device

    def time_pass() -> PassTime:
        _synchronise(device)
        wall, cpu = time.perf_counter(), time.thread_time()
        with torch.inference_mode():
            encoder(input_ids=input_ids, attention_mask=valid)
        _synchronise(device)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        return PassTime(wall, cpu if device.type == "cpu" else None)

    return time_pass


def _take_turns(teacher: TimePass, student: TimePass, seconds: float) -> list[tuple[PassTime, PassTime]]:
    deadline = time.perf_counter() + seconds
    for _ in range(WARM_UP):
        teacher()
        student()
    found: list[tuple[PassTime, PassTime]] = []
    while len(found) < FEWEST_PASSES or (len(found) < MOST_PASSES and time.perf_counter() < deadline):
        found.append((teacher(), student()))
    return found


def _least_cpu(passes: Sequence[PassTime]) -> float:
    """Return the least processor time; wall time counts for a pass too short for the processor's clock."""
    return min(one.cpu or one.wall for one in passes)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
