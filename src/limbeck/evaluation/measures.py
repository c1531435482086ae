"""`MeasuresSpec`, the options of what is measured of every student of a comparison or a search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from limbeck.core.strict import Strict
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.protocols.settings import FineTuning


class HeldOutSpec(Strict):
    """Measures of what a student has of its teacher on text that was kept out of training; they need no labels.

    Attributes:
        enabled: Measure them.
        blocks: Blocks for relations and hidden states.
        pairs: Sentence pairs for the agreement of similarities.
        retrieval_pairs: Pool of the retrieval.
    """

    enabled: bool = True
    blocks: int = Field(default=384, ge=3)
    pairs: int = Field(default=1500, ge=10)
    retrieval_pairs: int = Field(default=700, ge=10)


class SpeedSpec(Strict):
    """What the students cost, one of each shape: parameters, operations, latency.

    Attributes:
        enabled: Measure it.
        batch_sizes: Texts a pass.
        lengths: Tokens a text.
        seconds: For all latencies together.
        device: cpu, cuda …; auto: the accelerator where there is one.
    """

    enabled: bool = True
    batch_sizes: list[int] = Field(default=[32], min_length=1)
    lengths: list[int] = Field(default=[128], min_length=1)
    seconds: float = Field(default=30.0, gt=0, le=3600)
    device: str = "auto"


class MeasuresSpec(Strict):
    """What is measured of every student; tasks, preset, seeds, settings, workers as `limbeck evaluate` takes them.

    Attributes:
        tasks: Tasks, groups and task files.
        preset: The protocol of the fine-tuning.
        seeds: Fine-tunings of every point; default: the paper's.
        data: Folder with the tasks' files; default, or hub: the Hub.
        settings: Overrides of the preset, of all tasks or of one: {epochs: 3, cola: {epochs: 6}}.
        workers: Processes that fine-tune at once; one per GPU.
        teacher: Evaluate the teacher too, so that retention can be said.
    """

    tasks: list[str] = Field(default_factory=list)
    preset: str = "comparative_study"
    seeds: int | None = Field(default=None, ge=1)
    data: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    workers: int = Field(default=1, ge=1)
    teacher: bool = True
    held_out: HeldOutSpec = Field(default_factory=HeldOutSpec)
    speed: SpeedSpec = Field(default_factory=SpeedSpec)

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_by_commas(cls, value: Any) -> Any:
        """Take one text for several names between commas."""
        if isinstance(value, str):
            return [part.strip() for part in value.split(",")]
        return value

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        """Refuse an unknown preset."""
        _ = PROTOCOLS[value]
        return value

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings as `limbeck evaluate --set` takes them."""
        overrides: list[str] = []
        for name, value in self.settings.items():
            # The settings of one task. But the value of a setting may be a mapping too, as the weights of classes are.
            if isinstance(value, Mapping) and name not in FineTuning.model_fields:
                for setting, value_for_task in value.items():
                    overrides.append(f"{name}.{setting}={json.dumps(value_for_task)}")
            else:
                overrides.append(f"{name}={json.dumps(value)}")
        return tuple(overrides)
