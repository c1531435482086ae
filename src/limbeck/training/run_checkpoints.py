"""The checkpoints of a run, over all of its stages, found in its folder without torch."""

import re
from dataclasses import dataclass
from pathlib import Path

from limbeck.core import paths, records

_STAGE_NAME = re.compile(r"^(\d+)-(.+)$")
"""The name of a stage's folder, such as `1-minilmv2`: its number and its title."""
_CHECKPOINT_NAME = re.compile(r"^checkpoint-(\d+)$")
"""The name of a checkpoint's folder, such as `checkpoint-500`: its step."""


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint of a run.

    Attributes:
        run: The run's folder.
        stage_number: The number of its stage, from 1.
        stage: The title of its stage.
        step: The optimizer step of the stage at which it was written.
        folder: Its folder.
    """

    run: Path
    stage_number: int
    stage: str
    step: int
    folder: Path

    @property
    def name(self) -> str:
        """The name of its folder, such as `checkpoint-500`."""
        return self.folder.name


def checkpoints_of(run: Path) -> list[RunCheckpoint]:
    """List the checkpoints of a run, whole or not, in the order in which they were written."""
    checkpoints = []
    for stage_folder in _subfolders(run / paths.STAGES):
        stage_match = _STAGE_NAME.match(stage_folder.name)
        if stage_match is None:
            continue
        number, title = stage_match.groups()
        for folder in _subfolders(stage_folder):
            checkpoint_match = _CHECKPOINT_NAME.match(folder.name)
            if checkpoint_match is None:
                continue
            step = int(checkpoint_match[1])
            checkpoints.append(RunCheckpoint(run, int(number), stage=title, step=step, folder=folder))
    return sorted(checkpoints, key=lambda checkpoint: (checkpoint.stage_number, checkpoint.step))


def has_state(stage_folder: Path) -> bool:
    """Whether a stage is finished or has a checkpoint."""
    if (stage_folder / paths.STAGE_RECORD).is_file():
        return True
    return any(_CHECKPOINT_NAME.match(folder.name) for folder in _subfolders(stage_folder))


def has_saved(folder: Path) -> bool:
    """Whether a run has a checkpoint or a finished stage.

    Args:
        folder: The run's folder, or that of a stage.
    """
    stages = folder / paths.STAGES
    if not stages.is_dir() and folder.parent.name == paths.STAGES:
        stages = folder.parent
    return any(has_state(stage) for stage in _subfolders(stages))


def has_saved_assistants_alone(run: Path) -> bool:
    """Whether all that a run has saved is of stages with a student of their own, such as a teacher assistant.

    Then `limbeck finish` has no student to keep.
    """
    saved = [stage.name for stage in _subfolders(run / paths.STAGES) if has_state(stage)]
    of_assistants = []
    for number, stage in enumerate(records.load(records.Run, run).recipe.stages, start=1):
        if stage.student is not None:
            of_assistants.append(f"{number}-{stage.title}")
    return bool(saved) and set(saved) <= set(of_assistants)


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder; none where it does not exist."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir()]
