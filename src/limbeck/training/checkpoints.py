"""Checkpoints of a stage: the newest that is whole, and how many are kept."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule
from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from limbeck.core.devices import device_name
from limbeck.core.files import atomic_text, read_json, remove, sync
from limbeck.core.paths import MANIFEST
from limbeck.core.permissions import give_ordinary_mode
from limbeck.core.ranks import on_all_ranks, on_main_rank
from limbeck.errors import OutputError, TrainingError
from limbeck.recipe.training_fields import keeps_bfloat16_moments

# A checkpoint's files: grown aside, sealed with a manifest of their hashes, and made visible by one rename.


REPLACED = ".replaced"
STAGING = ".saving"
"""Where checkpoints grow and are taken apart, beside those that are whole."""


def file_facts(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def prepare_staging(folder: Path) -> Path:
    """Make an empty place for a checkpoint to grow in; what a killed write left there goes.

    Args:
        folder: The stage's folder.
    """
    staging = folder / STAGING
    remove(staging)
    staging.mkdir(parents=True)
    return staging


def seal(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Bring every file of a checkpoint to the disk, and list them with size and hash in its manifest.

    Args:
        checkpoint: Its folder, complete but for the manifest.
        facts: What else the manifest says.
    """
    sync_tree(checkpoint)
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    listed = {path.relative_to(checkpoint).as_posix(): file_facts(path) for path in files}
    atomic_text(checkpoint / MANIFEST, json.dumps({**facts, "files": listed}, indent=2) + "\n")
    sync(checkpoint)


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


def find_damage(checkpoint: Path) -> str | None:
    """Compare a checkpoint with its manifest.

    Returns:
        What is wrong, with the file that it is wrong with; None for a checkpoint as it was written.
    """
    if checkpoint.is_symlink():
        return "it is a link, and checkpoints are folders; it is removed once a newer one is written, its target is not"
    listed = read_json(checkpoint / MANIFEST).get("files")
    if not isinstance(listed, dict) or not listed:
        return f"'{MANIFEST}' is missing or unreadable"
    for name, facts in listed.items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            return f"'{MANIFEST}' lists {name!r:.80}, which lies outside the checkpoint"
        damage = file_damage(checkpoint / name, facts)
        if damage is not None:
            return damage
    return None


def file_damage(path: Path, facts: Any) -> str | None:
    """Compare a file with its size and hash; None if it is as it was written."""
    try:
        if path.exists() and not path.is_file():  # Of a pipe or a device there is no end.
            return f"'{path.name}' is not a file"
        found = file_facts(path)
    except (OSError, ValueError) as error:
        return f"{path.name!r:.80} cannot be read ({getattr(error, 'strerror', None) or error})"
    if not isinstance(facts, dict) or found["bytes"] != facts.get("bytes"):
        return f"'{path.name}' has {found['bytes']:,} bytes, not the number it was written with"
    return None if found["sha256"] == facts.get("sha256") else f"'{path.name}' has changed since it was written (hash)"


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
    found = all_checkpoints(folder)
    kept = [path for step, path in found if step <= newest][: limit or None]
    for _, path in found:
        if path not in kept:
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


# What a checkpoint was trained on, since results are the same to the last bit only on the same.


_TITLES = {"processes": "number of processes", "threads": "number of threads", "torch": "version of torch"}


def training_facts(arguments: TrainingArguments) -> dict[str, Any]:
    """Return what decides the last bits of a training step."""
    return {
        "device": device_name(arguments.device),
        "precision": precision(arguments),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def precision(arguments: TrainingArguments) -> str:
    """Name the number format that training computes in, and that of the moments where it is not float32."""
    moments = ", moments in bfloat16" if keeps_bfloat16_moments(arguments.optim_args) else ""
    return ("bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else "float32") + moments


def warn_of_differences(checkpoint: Path, facts: Mapping[str, Any], warn: Warn) -> None:
    """Say in one line what has changed since a checkpoint was written.

    Args:
        checkpoint: The checkpoint that the run goes on from.
        facts: Those of this process, see `training_facts`.
        warn: Receives the line.
    """
    before = read_json(checkpoint / MANIFEST)
    changed = [
        f"{_TITLES.get(name, name)} ({before[name]}, now {fact})"
        for name, fact in facts.items()
        if name in before and before[name] != fact
    ]
    if changed:
        warn(
            f"Different from '{checkpoint.name}': {', '.join(changed)}; the run continues, but will not be "
            "identical to the last bit."
        )


# Saving what is trained, also where it is sharded over processes (FSDP2): gathered to be saved, and put back.


def whole_weights(module: nn.Module) -> dict[str, Tensor] | None:
    """Gather the state of a sharded module; every process has to ask, and gets all of it.

    Args:
        module: The module.

    Returns:
        Its state, each tensor once: a name that shares its tensor with an earlier one is left out. None of a module
        that is not sharded.
    """
    # Between a forward pass and a step its parameters may be whole all the same.
    if not isinstance(module, FSDPModule):
        return None
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
    whole: Mapping[str, Any] = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    second = _second_names(module)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in whole.items() if name not in second}


def save_weights(module: nn.Module, path: Path, whole: Mapping[str, Tensor] | None) -> None:
    """Write a module's state as safetensors, weights that share memory once, under the first of their names.

    safetensors lists the other names in an order that differs from process to process, and so would the file.

    Args:
        module: The module.
        path: The file.
        whole: See `whole_weights`.
    """
    if whole is None:
        second = _second_names(module)
        whole = {name: tensor.contiguous() for name, tensor in module.state_dict().items() if name not in second}
    save_file(dict(whole), str(path), metadata={"format": "pt"})
    give_ordinary_mode([path])


def load_weights(module: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote; of a sharded module every process has to do it.

    Raises:
        RuntimeError: for weights of another module.
    """
    if not isinstance(module, FSDPModule):
        load_model(module, str(path), strict=True)
        return
    weights = load_file(str(path))
    shared = {second: weights[first] for second, first in _second_names(module).items() if first in weights}
    everything: dict[str, Any] = {**weights, **shared}
    set_model_state_dict(module, everything, options=StateDictOptions(full_state_dict=True, strict=True))


def _second_names(module: nn.Module) -> dict[str, str]:
    """Return for every parameter that has another name already the name that it has."""
    first: dict[int, str] = {}
    second: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            second[name] = first[id(parameter)]
    return second


# Failures of saving, such as a full disk, and of loading, in one line that says what is still there.


_DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE}


@contextmanager
def saving(what: str, folder: Path) -> Iterator[None]:
    """Turn a failure of writing into a line for the user.

    Args:
        what: What is written, at the beginning of a sentence.
        folder: Where.

    Raises:
        TrainingError: with the reason, the room on the disk and the way out, for an error of the system, of
            safetensors or of PyTorch.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        problem = f"{what} could not be written to '{folder}': {_reason(error)}"
        raise TrainingError(problem + _way_out(folder)) from error


@contextmanager
def loading(checkpoint: Path) -> Iterator[None]:
    """Turn a failure of reading a checkpoint whose hashes are right into a line for the user.

    Raises:
        OutputError: for files of another version, of another student, or that hold code.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError) as error:
        raise OutputError(
            f"Checkpoint '{checkpoint}' cannot be resumed: {_first_line(error)}. Remove it to continue from the "
            "one before it, or start again with --overwrite."
        ) from error


def disk_problem(error: BaseException, folder: Path) -> str | None:
    """Say what is wrong with the disk that a run writes to, if that is what an error is about.

    Args:
        error: Of the system; others are about something else.
        folder: The run's folder.
    """
    if not isinstance(error, OSError) or error.errno not in _DISK_FAILURES:
        return None
    return f"A file of the run could not be written or read: {os.strerror(error.errno)}" + _way_out(folder)


def _reason(error: BaseException) -> str:
    """What went wrong first; PyTorch raises a second error when it closes a file that could not be written."""
    first = error
    while first.__context__ is not None and not isinstance(first, OSError):
        first = first.__context__
    if isinstance(first, OSError) and first.errno is not None:
        return os.strerror(first.errno)
    return _first_line(first)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _way_out(folder: Path) -> str:
    room = ""
    with suppress(OSError):
        room = f" ({shutil.disk_usage(folder).free / 1e6:,.0f} MB free)"
    return (
        f"{room}. What was saved before is intact; make room or repair the disk, and continue with the same command "
        "and --resume."
    )


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
