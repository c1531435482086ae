"""The latency of a student's shape beside its teacher's, on a machine that may be busy.

A *pass* is one forward of a model. On a busy machine a pass that is longer than a time slice of the scheduler is
interrupted, and a shorter one is not. The medians of a slow and a fast model are then disturbed differently, and their
ratio is wrong. So the shortest passes of both are compared. The processor time of a pass, which does not count waiting,
shows whether even the shortest had to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.core.devices import choose_device, device_name
from limbeck.errors import RecipeError
from limbeck.evaluation.latency import PassTime, time_passes, wall_times
from limbeck.models import families, students
from limbeck.models.inference import encoder_of
from limbeck.search.requests import MeasuringRequest

FEWEST_PASSES = 10
"""Fewest passes of each model in an attempt, however long they take."""
MOST_PASSES = 100
"""Most passes of each model in an attempt."""
WARM_UP = 2
"""Passes before an attempt that are not timed."""
MOST_ATTEMPTS = 3
"""Most attempts to measure while the machine is idle."""
DISTURBED = 1.5
"""A pass whose wall time is above this many times its processor time waited for the machine."""
USUAL_LENGTH = 128
"""Tokens a text, where nothing else is asked for."""


@dataclass(frozen=True)
class ShapeLatency:
    """The latency of one shape, by the least disturbed pass.

    Args:
        share: The student's latency as a share of the teacher's.
        student_ms: Milliseconds of the student's pass.
        teacher_ms: The teacher's, measured alternately with it.
        threads: PyTorch's threads.
        busy: Whether the machine was too busy for wall times, so that these are processor times.
    """

    share: float
    student_ms: float
    teacher_ms: float
    threads: int
    busy: bool = False


@dataclass(frozen=True)
class LatencySetting:
    """How latencies are measured.

    Args:
        device: The device that computes.
        length: Tokens a text, all of them real.
        batch: Texts a pass.
        seconds: Time for each shape, and again where the machine is too busy; see `compare_latency`.
    """

    device: torch.device
    length: int
    batch: int
    seconds: float

    @classmethod
    def of(cls, request: MeasuringRequest, teacher: families.Shape) -> LatencySetting:
        """Return the setting of a request; texts without a length have 128 tokens, or all that a teacher takes.

        Raises:
            RecipeError: for texts that are longer than teacher and students can take.
        """
        longest = teacher.positions
        length = request.length
        if length is None:
            length = USUAL_LENGTH
            if longest is not None:
                length = min(USUAL_LENGTH, longest)
        if longest is not None and length > longest:
            raise RecipeError(
                f"--measure-length {length} is longer than the {longest} tokens that the teacher takes; use a "
                "smaller number."
            )
        return cls(choose_device(request.device), length, request.batch, request.seconds)

    @property
    def identity(self) -> dict[str, Any]:
        """What latencies must have in common to be compared, as JSON holds it."""
        return {
            "device": device_name(self.device),
            "length": self.length,
            "batch": self.batch,
            "dtype": "float32",
            "of": "least disturbed pass",
        }


class LatencyBench:
    """Measures students of any shape against one teacher.

    A latency does not depend on the weights, so a student is made with random ones for each measurement.

    Args:
        teacher: The whole teacher; moved to the device of the setting, in float32.
        setting: The setting of the measurements.
    """

    def __init__(self, teacher: PreTrainedModel, setting: LatencySetting) -> None:
        self._teacher = teacher.to(device=setting.device, dtype=torch.float32).eval()
        self._setting = setting

    def __call__(self, config: PreTrainedConfig) -> ShapeLatency:
        """Measure a student of this configuration and the teacher alternately."""
        setting = self._setting
        student = students.build_student(config, seed=0).to(device=setting.device, dtype=torch.float32).eval()
        generator = torch.Generator().manual_seed(0)
        size = (setting.batch, setting.length)
        input_ids = torch.randint(config.vocab_size, size, generator=generator).to(setting.device)
        return compare_latency(self._teacher, student, input_ids, setting.seconds)


def compare_latency(teacher: nn.Module, student: nn.Module, input_ids: torch.Tensor, seconds: float) -> ShapeLatency:
    """Time both models alternately, and compare the shortest pass of each.

    If the shortest pass of either model had to wait for the machine, both are measured again, up to `MOST_ATTEMPTS`
    times in all; passes of earlier attempts count too. If one still had to wait, processor times are compared instead.

    Args:
        teacher: The teacher in evaluation mode, on the device of the texts.
        student: The student, likewise.
        input_ids: Token ids `[texts, tokens]`, without padding.
        seconds: Time for each attempt. Each model runs `FEWEST_PASSES` at least, however long they take, and
            `MOST_PASSES` at most.
    """
    encoders = {"teacher": encoder_of(teacher), "student": encoder_of(student)}
    passes: dict[str, list[PassTime]] = {"teacher": [], "student": []}
    busy = True
    for _ in range(MOST_ATTEMPTS):
        attempt = time_passes(
            encoders, input_ids, seconds=seconds, warmup=WARM_UP, fewest=FEWEST_PASSES, most=MOST_PASSES
        )
        for name, passes_of_model in attempt.items():
            passes[name].extend(passes_of_model)
        busy = _is_busy(passes)
        if not busy:
            break

    # Processor times do not count the time in which a pass waited.
    if busy:
        student_seconds = min(_cpu_times(passes["student"]))
        teacher_seconds = min(_cpu_times(passes["teacher"]))
    else:
        student_seconds = min(wall_times(passes["student"]))
        teacher_seconds = min(wall_times(passes["teacher"]))
    return ShapeLatency(
        share=student_seconds / teacher_seconds,
        student_ms=1000 * student_seconds,
        teacher_ms=1000 * teacher_seconds,
        threads=torch.get_num_threads(),
        busy=busy,
    )


def _is_busy(passes: Mapping[str, Sequence[PassTime]]) -> bool:
    """Whether the shortest pass of any model waited for the machine."""
    shortest = [min(passes_of_model, key=lambda one_pass: one_pass.wall) for passes_of_model in passes.values()]
    return any(_is_disturbed(one_pass) for one_pass in shortest)


def _is_disturbed(one_pass: PassTime) -> bool:
    """Whether a pass waited for the machine; False where its processor time is not known."""
    # The processor time of a very short pass may be 0, since that clock is coarse.
    if not one_pass.cpu:
        return False
    return one_pass.wall > DISTURBED * one_pass.cpu


def _cpu_times(passes: Sequence[PassTime]) -> list[float]:
    """Return the processor seconds of each pass; its wall time where the processor time is 0 or not known."""
    return [one_pass.cpu or one_pass.wall for one_pass in passes]
