"""Checkpoints on disk: which of them is complete, and the newest."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

_NAME = re.compile(r"^checkpoint-(\d+)$")


def is_last(checkpoint: Path) -> bool:
    """Whether a checkpoint was made at the last step of its stage."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    return state.max_steps > 0 and state.global_step >= state.max_steps


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a stage."""
    for path in folder.iterdir():
        if _NAME.match(path.name):
            shutil.rmtree(path)


def newest_checkpoint(folder: Path) -> Path | None:
    """Find the newest complete checkpoint of a stage.

    The trainer's state is the last file that a checkpoint gets, so its presence means that the rest is there.

    Args:
        folder: The stage's folder.

    Returns:
        The checkpoint with the highest step, or None.
    """
    if not folder.is_dir():
        return None
    found = [
        (int(match.group(1)), path)
        for path in folder.iterdir()
        if (match := _NAME.match(path.name)) and (path / TRAINER_STATE_NAME).is_file()
    ]
    return max(found)[1] if found else None
