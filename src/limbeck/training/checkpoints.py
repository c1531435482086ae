"""Checkpoints of a stage: the newest that is whole, and how many are kept."""

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from limbeck.core.files import remove, sync
from limbeck.core.ranks import on_all_ranks, on_main_rank
from limbeck.errors import TrainingError
from limbeck.training.disk_failures import saving
from limbeck.training.seals import find_damage, seal
from limbeck.training.training_facts import training_facts
from limbeck.training.warn import Warn

REPLACED = ".replaced"
STAGING = ".saving"
"""Where checkpoints grow and are taken apart, beside those that are whole."""


def prepare_staging(folder: Path) -> Path:
    """Make an empty place for a checkpoint to grow in; what a killed write left there goes.

    Args:
        folder: The stage's folder.
    """
    staging = folder / STAGING
    remove(staging)
    staging.mkdir(parents=True)
    return staging


def publish(checkpoint: Path, folder: Path) -> Path:
    """Make a sealed checkpoint visible in a folder, in the place of one of the same name.

    Args:
        checkpoint: Where it has grown, in a folder of `prepare_staging`, which goes.
        folder: Where it belongs.

    Returns:
        Where it is now.
    """
    target = folder / checkpoint.name
    if target.exists() or target.is_symlink():
        target.rename(checkpoint.with_name(checkpoint.name + REPLACED))
    checkpoint.rename(target)
    sync(folder)
    shutil.rmtree(checkpoint.parent, ignore_errors=True)
    return target


def discard(path: Path) -> None:
    """Remove a checkpoint so that a kill half-way leaves no part of it under its name."""
    staging = path.parent / STAGING
    if not staging.is_dir():
        prepare_staging(path.parent)
    aside = staging / (path.name + ".discarded")
    remove(aside)
    path.rename(aside)
    remove(aside)


_NAME = re.compile(r"^checkpoint-(\d+)$")


def all_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """List the checkpoints of a stage with their steps, the newest first, whole or not."""
    if not folder.is_dir():
        return []
    checkpoints = [(int(match.group(1)), path) for path in folder.iterdir() if (match := _NAME.match(path.name))]
    return sorted(checkpoints, reverse=True)


def newest_checkpoint(folder: Path, warn: Warn) -> Path | None:
    """Find the newest checkpoint of a stage that is as it was written.

    Args:
        folder: The stage's folder.
        warn: Receives a line on every newer one that is damaged.

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
    checkpoints = all_checkpoints(folder)
    kept_paths = [path for step, path in checkpoints if step <= newest][: limit or None]
    for _, path in checkpoints:
        if path not in kept_paths:
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


class Checkpoints:
    """Writes the checkpoints of a stage aside, seals them, and makes them visible by one rename.

    What the loop writes with pickle (optimizer, schedule, random streams, loss scale) it reads with `weights_only`,
    which takes tensors and plain values and runs no code.

    Args:
        arguments: Of the training; its `output_dir` is the stage's folder.
    """

    def __init__(self, arguments: TrainingArguments) -> None:
        self.arguments = arguments
        self.folder = Path(arguments.output_dir)
        self.staging: Path | None = None
        """Where a checkpoint is being written; None between checkpoints."""

    def write(self, step: int, save: Callable[[], None]) -> None:
        """Write the checkpoint of a step in all processes, and once it is visible remove those that are too many.

        Args:
            step: The optimizer step.
            save: Writes its files below `staging`.

        Raises:
            TrainingError: if it cannot be written; what was saved before is intact.
        """

        staging = self.folder / STAGING
        in_one_line = saving(f"The checkpoint of step {step}", self.folder)

        def show() -> None:
            grown = staging / f"checkpoint-{step}"
            seal(grown, {"step": step, **training_facts(self.arguments)})
            publish(grown, self.folder)
            keep_newest(self.folder, step, self.arguments.save_total_limit)

        try:
            on_main_rank(in_one_line(partial(prepare_staging, self.folder)))
            self.staging = staging
            on_all_ranks(in_one_line(save))
            on_main_rank(in_one_line(show))
        except TrainingError:
            if self.arguments.should_save:
                remove_leftovers(self.folder)  # So that a full disk has room again for the record.
            raise
        finally:
            self.staging = None
