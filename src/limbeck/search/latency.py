"""The latency of a student's shape beside its teacher's, on a machine that may be busy.

A pass that is longer than a slice of the scheduler is interrupted on a busy machine and a shorter one is not, so
that medians of a slow and a fast model are not disturbed alike and their ratio is wrong. The least disturbed passes
of both are compared, and the processor's time says whether even those waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.core.devices import choose_device, device_name, synchronise
from limbeck.core.timing import take_turns
from limbeck.errors import RecipeError
from limbeck.models import families, students
from limbeck.models.inference import encoder_of
from limbeck.search.requests import MeasuringRequest

FEWEST_PASSES, MOST_PASSES = 10, 100
WARM_UP = 2
MOST_ATTEMPTS = 3
DISTURBED = 1.5
"""A pass whose wall time is above this many times its processor time waited for the machine."""


@dataclass(frozen=True)
class PassTime:
    """The time of one forward pass.

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
class ShapeLatency:
    """The latency of one shape, by the least disturbed pass.

    Args:
        share: The student's latency as a share of the teacher's.
        student_ms: Milliseconds of the student's pass.
        teacher_ms: The teacher's, measured alternately with it.
        threads: PyTorch's threads.
        busy: The machine was too busy for wall times, and these are processor times.
    """

    share: float
    student_ms: float
    teacher_ms: float
    threads: int
    busy: bool = False


TimePass = Callable[[], PassTime]


def time_in_turns(teacher: TimePass, student: TimePass, seconds: float) -> ShapeLatency:
    """Time both alternately; of each the least disturbed pass counts, on a busy machine the least processor time.

    Where the shortest pass of either is disturbed, all is measured again, up to `MOST_ATTEMPTS` times in all; passes of
    earlier attempts count.

    Args:
        teacher: Makes and times one pass.
        student: The same.
        seconds: For each attempt; `FEWEST_PASSES` of each are made whatever they take, and `MOST_PASSES` at most.
    """
    runs_by_model = {"teacher": teacher, "student": student}
    passes: dict[str, list[PassTime]] = {name: [] for name in runs_by_model}
    busy = True
    for _ in range(MOST_ATTEMPTS):
        new_passes = take_turns(runs_by_model, seconds=seconds, warmup=WARM_UP, fewest=FEWEST_PASSES, most=MOST_PASSES)
        passes = {name: passes[name] + new_passes[name] for name in runs_by_model}
        busy = any(min(times, key=lambda one: one.wall).is_disturbed for times in passes.values())
        if not busy:
            break
    # Wall time counts for a pass too short for the processor's clock.
    least = {name: min(one.cpu if busy and one.cpu else one.wall for one in passes[name]) for name in runs_by_model}
    return ShapeLatency(
        share=least["student"] / least["teacher"],
        student_ms=1000 * least["student"],
        teacher_ms=1000 * least["teacher"],
        threads=torch.get_num_threads(),
        busy=busy,
    )


def pass_timer(model: nn.Module, input_ids: torch.Tensor) -> TimePass:
    """Return a timer of passes of a model's encoder over texts without padding.

    Args:
        model: In eval mode, on the device of the texts.
        input_ids: Of shape (texts, tokens).
    """
    encoder, valid, device = encoder_of(model), torch.ones_like(input_ids), input_ids.device

    def time_pass() -> PassTime:
        synchronise(device)
        wall, cpu = time.perf_counter(), time.thread_time()
        with torch.inference_mode():
            encoder(input_ids=input_ids, attention_mask=valid)
        synchronise(device)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        return PassTime(wall, cpu if device.type == "cpu" else None)

    return time_pass


USUAL_LENGTH = 128


@dataclass(frozen=True)
class LatencySetting:
    """How latencies are measured.

    Args:
        device: Where.
        length: Tokens a text, all of them real.
        batch: Texts a pass.
        seconds: For each shape, and again where the machine is too busy; see `time_in_turns`.
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
        longest = USUAL_LENGTH if teacher.positions is None else teacher.positions
        length = min(USUAL_LENGTH, longest) if request.length is None else request.length
        if teacher.positions is not None and length > longest:
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

    Weights decide no latency, so a student is made with random ones and let go again.

    Args:
        teacher: The whole teacher; moved to the device of the setting, in float32.
        setting: How to measure.
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
        return time_in_turns(pass_timer(self._teacher, input_ids), pass_timer(student, input_ids), setting.seconds)
