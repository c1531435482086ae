"""Checkpoints of a stage: the newest that is whole, and how many are kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from limbeck.training.checkpoint_files import REPLACED, STAGING, discard, find_damage

_NAME = re.compile(r"^checkpoint-(\d+)$")

Warn = Callable[[str], None]
"""Takes a line for the user."""


def all_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """List the checkpoints of a stage with their steps, the newest first, whole or not."""
    if not folder.is_dir():
        return []
    found = [(int(match.group(1)), path) for path in folder.iterdir() if (match := _NAME.match(path.name))]
    return sorted(found, reverse=True)


def newest_checkpoint(folder: Path, warn: Warn) -> Path | None:
    """Find the newest checkpoint of a stage that is as it was written.

    Args:
        folder: The stage's folder.
        warn: Told about every newer one that is damaged.

    Returns:
        The checkpoint with the highest step among those whose files all have the hashes of their manifest, or None.
    """
    for _, path in all_checkpoints(folder):
        damage = find_damage(path)
        if damage is None:
            return path
        warn(f"Checkpoint '{path}' is damaged and skipped: {damage}.")
    return None


def keep_newest(folder: Path, newest: int, limit: int | None) -> None:
    """Remove the checkpoints that are too many.

    One of a later step than the newest is a damaged one that the run has started again before.

    Args:
        folder: The stage's folder.
        newest: Step of the checkpoint that was just written.
        limit: How many to keep; None for all.
    """
    found = all_checkpoints(folder)
    later = [path for step, path in found if step > newest]
    others = [path for step, path in found if step <= newest]
    for path in later + (others[limit:] if limit else []):
        discard(path)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writes left in a stage's folder; a checkpoint that one was about to replace comes back."""
    for aside in (folder / STAGING).glob(f"*{REPLACED}"):
        target = folder / aside.name.removesuffix(REPLACED)
        if not target.exists():
            aside.rename(target)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    for path in folder.glob("*.partial"):
        path.unlink(missing_ok=True)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a stage, the oldest first, and what killed writes left."""
    for _, path in reversed(all_checkpoints(folder)):
        discard(path)
    remove_leftovers(folder)


def is_last(checkpoint: Path) -> bool:
    """Whether a checkpoint was made at the last step of its stage."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    return state.max_steps > 0 and state.global_step >= state.max_steps
