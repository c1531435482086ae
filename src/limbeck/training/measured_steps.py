"""The number of steps that the minutes of a stage came to, kept in its folder and in the run's recipe.

A stage with `max_minutes` measures its rate as it begins (`limbeck.training.rate`). From then on the number of steps
decides: the recipe in the run's folder has it as `max_steps`, and a resumed run takes it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from limbeck.core import paths, records
from limbeck.core.blocks import counted
from limbeck.core.files import atomic_text, read_json
from limbeck.errors import OutputError

_FILE = "measured_steps.json"


@dataclass(frozen=True)
class MeasuredSteps:
    """The steps that a stage takes for its minutes.

    Args:
        max_minutes: The minutes.
        max_steps: The steps.
        seconds_per_step: The measured time of a step.
    """

    max_minutes: float
    max_steps: int
    seconds_per_step: float

    def write(self, stage_folder: Path) -> None:
        """Write it into the folder of a stage."""
        stage_folder.mkdir(parents=True, exist_ok=True)
        atomic_text(stage_folder / _FILE, records.text_of(asdict(self)))

    @classmethod
    def read(cls, stage_folder: Path) -> "MeasuredSteps | None":
        """Read it from the folder of a stage; None where nothing was measured, or the file is damaged."""
        values = read_json(stage_folder / _FILE)
        try:
            return cls(float(values["max_minutes"]), int(values["max_steps"]), float(values["seconds_per_step"]))
        except (KeyError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        """A sentence without a subject, such as: 10 minutes at 0.482 s a step, measured as the stage began."""
        # A number of minutes may have decimals, as in `0.5 minutes`.
        unit = "minute" if self.max_minutes == 1 else "minutes"
        return f"{self.max_minutes:g} {unit} at {self.seconds_per_step:.3g} s a step, measured as the stage began"


def with_measured_steps(folder: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a recipe with the numbers of steps that its run has measured, in place of minutes.

    Args:
        folder: The run's folder.
        recipe: The document.

    Raises:
        OutputError: for a stage that was begun with another number of minutes.
    """
    stages: list[dict[str, Any]] = []
    reasons = dict(recipe.get("reasons") or {})
    for index, stage in enumerate(recipe.get("stages") or []):
        training = dict(stage.get("training") or {})
        title = str(stage.get("name") or stage["method"]["name"])
        # None before the stage has begun, and for a stage that counts steps or epochs itself.
        measured = MeasuredSteps.read(folder / paths.STAGES / f"{index + 1}-{title}")
        if "max_minutes" in training and measured is not None:
            minutes = float(training.pop("max_minutes"))
            if minutes != measured.max_minutes:
                raise OutputError(
                    f"Stage '{title}' of the run in '{folder}' was begun with max_minutes "
                    f"{measured.max_minutes:g}, which was converted to {counted(measured.max_steps, 'step')}, so "
                    f"max_minutes cannot become {minutes:g}; give max_steps in its place."
                )
            training["max_steps"] = measured.max_steps
            stage = {**stage, "training": training}
            reasons[f"stages.{index}.training.max_steps"] = str(measured)
        stages.append(stage)
    return {**recipe, "stages": stages, "reasons": reasons or None}
