"""The latency of a student's shape on the device that it is meant for, beside its teacher's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.errors import RecipeError
from limbeck.evaluation.latency import measure_latency
from limbeck.models.building import build_student
from limbeck.models.families import Shape


@dataclass(frozen=True)
class LatencySetting:
    """How latencies are measured.

    Args:
        device: Where.
        length: Tokens a text, all of them real.
        batch: Texts a pass.
        seconds: For each shape; at least three passes are made whatever they take.
        dtype: Of weights and activations.
    """

    device: torch.device
    length: int = 128
    batch: int = 1
    seconds: float = 4.0
    dtype: torch.dtype = torch.float32

    @property
    def identity(self) -> dict[str, Any]:
        """What latencies must have in common to be compared, as JSON holds it."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return {"device": name, "length": self.length, "batch": self.batch, "dtype": str(self.dtype)[6:]}


@dataclass(frozen=True)
class ShapeLatency:
    """What was measured of one shape.

    Args:
        share: The student's latency as a share of the teacher's: the median over neighbouring passes.
        student_ms: The student's median milliseconds.
        teacher_ms: The teacher's, measured in turns with it.
        threads: PyTorch's threads.
    """

    share: float
    student_ms: float
    teacher_ms: float
    threads: int


MeasureLatency = Callable[[PreTrainedConfig], ShapeLatency]


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
        student = build_student(config, seed=0).to(device=setting.device, dtype=setting.dtype)
        found = measure_latency(
            self._teacher,
            student,
            batch_sizes=(setting.batch,),
            length=setting.length,
            seconds=setting.seconds,
            dtype=setting.dtype,
        )
        (times,) = found.batches
        return ShapeLatency(
            share=1 / times.speedup,
            student_ms=times.student.median_ms,
            teacher_ms=times.teacher.median_ms,
            threads=found.threads,
        )
