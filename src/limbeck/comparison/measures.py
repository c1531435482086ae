"""What a plan measures: tasks, agreement with the teacher on held-out text, and what the students cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from limbeck.core.yaml import Strict
from limbeck.evaluation.protocols import PROTOCOLS


class HeldOutSpec(Strict):
    """Measures of what a student has of its teacher on text that was kept out of training; they need no labels."""

    enabled: bool = Field(default=True, description="Measure them.")
    blocks: int = Field(default=384, ge=3, description="Blocks for relations and hidden states.")
    pairs: int = Field(default=1500, ge=10, description="Sentence pairs for the agreement of similarities.")
    retrieval_pairs: int = Field(default=700, ge=10, description="Pool of the retrieval.")


class SpeedSpec(Strict):
    """What the students cost, one of each shape: parameters, operations, latency."""

    enabled: bool = Field(default=True, description="Measure it.")
    batch_sizes: list[int] = Field(default=[32], min_length=1, description="Texts a pass.")
    lengths: list[int] = Field(default=[128], min_length=1, description="Tokens a text.")
    seconds: float = Field(default=30.0, gt=0, le=3600, description="For all latencies together.")
    device: str = Field(default="auto", description="cpu, cuda …; auto: the accelerator where there is one.")


class MeasuresSpec(Strict):
    """What is measured of every student; tasks, preset, seeds, settings, workers as `limbeck evaluate` takes them."""

    tasks: list[str] = Field(default_factory=list, description="Tasks, groups and task files.")
    preset: str = Field(default="comparative_study", description="The protocol of the fine-tuning.")
    seeds: int | None = Field(default=None, ge=1, description="Fine-tunings of every point; default: the paper's.")
    data: str | None = Field(default=None, description="Folder with the tasks' files; default, or hub: the Hub.")
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Overrides of the preset, of all tasks or of one: {epochs: 3, cola: {epochs: 6}}.",
    )
    workers: int = Field(default=1, ge=1, description="Processes that fine-tune at once; one a GPU.")
    teacher: bool = Field(default=True, description="Evaluate the teacher too, so that retention can be said.")
    held_out: HeldOutSpec = Field(default_factory=HeldOutSpec)
    speed: SpeedSpec = Field(default_factory=SpeedSpec)

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_by_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        PROTOCOLS[value]
        return value

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings as `limbeck evaluate --set` takes them."""
        return tuple(f"{path}={json.dumps(value)}" for path, value in _flat(self.settings))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found
