"""Checkpoints of a stage: written aside and shown by one rename, found again by step, and removed when too many.

A checkpoint is a folder `checkpoint-STEP` in the folder of its stage, sealed by a manifest (`limbeck.training.seals`).
A new checkpoint is written in the *staging* folder beside the checkpoints, and then renamed. An old one is renamed into
it, and then removed. A process that is killed half-way therefore never leaves part of a checkpoint under its name.
"""

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from limbeck.core.files import read_json, remove, sync
from limbeck.core.paths import MANIFEST
from limbeck.core.ranks import on_all_ranks, on_main_rank
from limbeck.errors import TrainingError
from limbeck.training.best_step import has_stopped
from limbeck.training.disk_failures import saving
from limbeck.training.seals import find_damage, seal
from limbeck.training.training_facts import training_facts
from limbeck.training.warn import Warn

STAGING = ".saving"
"""Name of the staging folder."""
_REPLACED_SUFFIX = ".replaced"
"""Suffix of an old checkpoint in the staging folder, while a new one of the same name takes its place."""
# The name of a checkpoint, such as `checkpoint-500`.
_CHECKPOINT_NAME = re.compile(r"^checkpoint-(\d+)$")


class Checkpoints:
    """Writes the checkpoints of a stage aside, seals them, and makes them visible by one rename.

    What the loop writes with pickle (optimizer, schedule, random streams, loss scale) it reads with `weights_only`,
    which takes tensors and plain values and runs no code.

    Args:
        arguments: The training arguments; their `output_dir` is the stage's folder.

    Attributes:
        staging: The folder that a checkpoint is being written in; None between checkpoints.
        best_step: The best step so far, whose checkpoint stays beyond the limit; None where no step is chosen.
    """

    def __init__(self, arguments: TrainingArguments) -> None:
        self.arguments = arguments
        self.folder = Path(arguments.output_dir)
        self.staging: Path | None = None
        self.best_step: int | None = None

    def write(self, step: int, save: Callable[[], None]) -> None:
        """Write the checkpoint of a step in all processes, and then remove the oldest ones beyond the limit.

        Args:
            step: The optimizer step.
            save: Writes its files below `staging`.

        Raises:
            TrainingError: if it cannot be written; checkpoints that were saved before are intact.
        """
        # A decorator, by which an error of the disk becomes one line. Each of the three parts below is decorated: an
        # empty staging folder is made, all processes write files into it, and the checkpoint is made visible.
        in_one_line = saving(f"The checkpoint of step {step}", self.folder)

        def seal_and_publish() -> None:
            checkpoint = self.folder / STAGING / f"checkpoint-{step}"
            seal(checkpoint, {"step": step, **training_facts(self.arguments)})
            publish(checkpoint, self.folder)
            keep_newest(self.folder, step, self.arguments.save_total_limit, best=self.best_step)

        try:
            on_main_rank(in_one_line(partial(prepare_staging, self.folder)))
            self.staging = self.folder / STAGING
            on_all_ranks(in_one_line(save))
            on_main_rank(in_one_line(seal_and_publish))
        except TrainingError:
            # The part that was written is removed. A full disk then has room for the run's record.
            if self.arguments.should_save:
                remove_leftovers(self.folder)
            raise
        finally:
            self.staging = None


def rewrite(checkpoint: Path, change: Callable[[Path], None]) -> None:
    """Change files of a checkpoint; a process that is killed meanwhile leaves it as it was.

    Args:
        checkpoint: A whole checkpoint.
        change: Changes files in the folder that it receives.

    Raises:
        TrainingError: if the disk fails.
    """
    folder = checkpoint.parent
    with saving(f"The checkpoint '{checkpoint.name}'", folder):
        # A copy is changed, and then takes the place of the checkpoint.
        staged = prepare_staging(folder) / checkpoint.name
        shutil.copytree(checkpoint, staged)
        facts = read_json(staged / MANIFEST)
        del facts["files"]
        (staged / MANIFEST).unlink()
        change(staged)
        seal(staged, facts)
        publish(staged, folder)


def prepare_staging(folder: Path) -> Path:
    """Make an empty staging folder; files of a write that was killed are removed.

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
        checkpoint: The checkpoint, in a staging folder, which is removed.
        folder: The stage's folder.

    Returns:
        The new path of the checkpoint.
    """
    target = folder / checkpoint.name
    # An older checkpoint of the name is renamed first. If the process is killed before the new one is renamed,
    # `remove_leftovers` brings the older one back.
    if target.exists() or target.is_symlink():
        target.rename(checkpoint.with_name(checkpoint.name + _REPLACED_SUFFIX))
    checkpoint.rename(target)
    sync(folder)
    # This is the staging folder, with the older checkpoint.
    shutil.rmtree(checkpoint.parent, ignore_errors=True)
    return target


def discard(checkpoint: Path) -> None:
    """Remove a checkpoint: it is moved into the staging folder first, so that no part of it is left under its name."""
    staging = checkpoint.parent / STAGING
    if not staging.is_dir():
        prepare_staging(checkpoint.parent)
    aside = staging / (checkpoint.name + ".discarded")
    remove(aside)
    checkpoint.rename(aside)
    remove(aside)


def all_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """List the checkpoints of a stage with their steps, the newest first, whole or not."""
    if not folder.is_dir():
        return []
    checkpoints: list[tuple[int, Path]] = []
    for path in folder.iterdir():
        match = _CHECKPOINT_NAME.match(path.name)
        if match is not None:
            checkpoints.append((int(match[1]), path))
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


def keep_newest(folder: Path, newest: int, limit: int | None, *, best: int | None = None) -> None:
    """Remove the oldest checkpoints beyond a limit.

    Checkpoints of later steps than the one just written are removed too: they were damaged, and the run went on from an
    earlier one.

    Args:
        folder: The stage's folder.
        newest: Step of the checkpoint that was just written.
        limit: Number of checkpoints to keep; None or 0 keeps all.
        best: Step of a checkpoint that stays beyond the limit.
    """
    checkpoints = all_checkpoints(folder)
    paths_to_keep = [path for step, path in checkpoints if step <= newest]
    if limit:
        paths_to_keep = paths_to_keep[:limit]
    for step, path in checkpoints:
        if path not in paths_to_keep and step != best:
            discard(path)


def remove_leftovers(folder: Path) -> None:
    """Remove files of writes that were killed, and bring back a checkpoint that was about to be replaced."""
    for aside in (folder / STAGING).glob(f"*{_REPLACED_SUFFIX}"):
        target = folder / aside.name.removesuffix(_REPLACED_SUFFIX)
        if not target.exists():
            aside.rename(target)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    for path in folder.glob("*.partial"):
        path.unlink(missing_ok=True)


def remove_unneeded(folder: Path, limit: int | None) -> None:
    """Remove the checkpoints of a finished stage, unless the recipe keeps all, and files of writes that were killed.

    Args:
        folder: The stage's folder.
        limit: Number of checkpoints that the recipe keeps; None keeps all.
    """
    if limit is None:
        remove_leftovers(folder)
    else:
        remove_checkpoints(folder)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a stage, the oldest first, and files of writes that were killed."""
    for _, path in reversed(all_checkpoints(folder)):
        discard(path)
    remove_leftovers(folder)


def is_last(checkpoint: Path, max_steps: int) -> bool:
    """Whether a checkpoint was made at the last step of its stage, by number or by early stopping.

    Args:
        checkpoint: The checkpoint.
        max_steps: The steps of the stage; 0 or less for those that it had when the checkpoint was written.
    """
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    last_step = max_steps if max_steps > 0 else state.max_steps
    return 0 < last_step <= state.global_step or has_stopped(state)
