"""The latency of a student's shape on the device that it is meant for, beside its teacher's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.errors import RecipeError
from limbeck.models.blueprint import build_student
from limbeck.models.families import Shape
from limbeck.search.shape_timing import pass_timer, time_in_turns

USUAL_LENGTH = 128


@dataclass(frozen=True)
class LatencySetting:
    """How latencies are measured.

    Args:
        device: Where.
        length: Tokens a text, all of them real.
        batch: Texts a pass.
        seconds: For each shape, and again where the machine is too busy; see `time_in_turns`.
        dtype: Of weights and activations.
    """

    device: torch.device
    length: int = USUAL_LENGTH
    batch: int = 1
    seconds: float = 4.0
    dtype: torch.dtype = torch.float32

    @property
    def identity(self) -> dict[str, Any]:
        """What latencies must have in common to be compared, as JSON holds it."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return {
            "device": name,
            "length": self.length,
            "batch": self.batch,
            "dtype": str(self.dtype)[6:],
            "of": "least disturbed pass",
        }


@dataclass(frozen=True)
class ShapeLatency:
    """What was measured of one shape.

    Args:
        share: The student's latency as a share of the teacher's.
        student_ms: Milliseconds of the student's least disturbed pass.
        teacher_ms: The teacher's, measured in turns with it.
        threads: PyTorch's threads.
        busy: The machine was too busy for wall times, and these are processor times.
    """

    share: float
    student_ms: float
    teacher_ms: float
    threads: int
    busy: bool = False


MeasureLatency = Callable[[PreTrainedConfig], ShapeLatency]


def usual_length(teacher: Shape) -> int:
    """Return the tokens of a text where no number is given: 128, or all that a shorter teacher takes."""
    return USUAL_LENGTH if teacher.positions is None else min(USUAL_LENGTH, teacher.positions)


def check_length(setting: LatencySetting, teacher: Shape) -> None:
    """Refuse texts that are longer than teacher and students can take.

    Raises:
        RecipeError: naming the longest.
    """
    if teacher.positions is not None and setting.length > teacher.positions:
        raise RecipeError(
            f"--measure-length {setting.length} is longer than the {teacher.positions} tokens that the teacher takes; "
            "use less."
        )


class LatencyBench:
    """Measures students of any shape against one teacher.

    Weights decide no latency, so a student is made with random ones and let go again.

    Args:
        teacher: The whole teacher; moved and cast as the setting says.
        setting: How to measure.
    """

    def __init__(self, teacher: PreTrainedModel, setting: LatencySetting) -> None:
        self._teacher = teacher.to(device=setting.device, dtype=setting.dtype).eval()
        self._setting = setting

    def __call__(self, config: PreTrainedConfig) -> ShapeLatency:
        """Measure a student of this configuration and the teacher in turns."""
        setting = self._setting
        student = build_student(config, seed=0).to(device=setting.device, dtype=setting.dtype).eval()
        generator = torch.Generator().manual_seed(0)
        size = (setting.batch, setting.length)
        input_ids = torch.randint(config.vocab_size, size, generator=generator).to(setting.device)
        times = time_in_turns(pass_timer(self._teacher, input_ids), pass_timer(student, input_ids), setting.seconds)
        return ShapeLatency(
            share=times.student / times.teacher,
            student_ms=1000 * times.student,
            teacher_ms=1000 * times.teacher,
            threads=torch.get_num_threads(),
            busy=times.busy,
        )
