"""The run's folder: never written over by accident, continued only with the same recipe."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from limbeck.core.files import HEARTBEAT, RECORD, read_record, write_atomically
from limbeck.core.folders import LOCK, FolderLock
from limbeck.core.ranks import everywhere, from_main, process_count
from limbeck.core.yaml import parse_yaml, read_document
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.load import dump_recipe
from limbeck.recipe.schema import Recipe
from limbeck.recipe.training_arguments import DEFAULTS

RECIPE = "recipe.yaml"
# Arguments that may change in a resumed run: when to save, measure and log, and where to.
_FREE = (
    "save_steps", "save_strategy", "save_total_limit", "eval_steps", "eval_strategy", "logging_steps",
    "logging_strategy", "report_to",
)  # fmt: skip
# What may lie in a folder that no run has trained anything in yet.
_NOTHING_YET = {RECIPE, RECORD, HEARTBEAT, LOCK, *(f"{name}.partial" for name in (RECIPE, RECORD, HEARTBEAT))}


@contextmanager
def claimed_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have the run's folder for this process alone, made or taken up, with the resolved recipe in it.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Returns:
        The folder.

    Raises:
        OutputError: if the folder holds something and neither was asked for, if it is to be removed but is no
            run, if the run there was made by another recipe, or if another process has it.
    """
    folder = _check_folder(recipe, resume=resume, overwrite=overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None
    with FolderLock(folder):
        _prepare(folder, recipe, resume=resume, overwrite=overwrite)
        yield folder


@contextmanager
def claimed_together(recipe: Recipe, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have the run's folder for the processes of a run: the main one claims it, and all can see it.

    Arguments, result and errors are those of `claimed_output`; an `OutputError` also if it is on a disk of one machine
    that the others cannot see.
    """
    with ExitStack() as stack:

        def claim() -> Path:
            return stack.enter_context(claimed_output(recipe, resume=resume, overwrite=overwrite))

        folder = from_main(claim)

        def see() -> None:
            if not (folder / RECIPE).is_file():
                raise OutputError(
                    f"Output folder '{folder}' is not to be seen on {socket.gethostname()}; a run on several machines "
                    "needs a folder that all of them share."
                )

        everywhere(see)
        yield folder


def _check_folder(recipe: Recipe, *, resume: bool, overwrite: bool) -> Path:
    """Refuse what can be refused without touching the folder."""
    if recipe.output is None:
        raise OutputError("The run has no output folder; give output: in the recipe, or --output DIR.")
    folder = Path(recipe.output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if resume and overwrite:
        raise OutputError("--resume and --overwrite exclude each other: continue the run, or replace it.")
    if _is_occupied(folder) and not any((folder / name).is_file() for name in (RECIPE, RECORD)):
        if overwrite:
            raise OutputError(
                f"Output folder '{folder}' was not made by limbeck, so --overwrite does not remove it; "
                "empty it yourself or choose another folder."
            )
        if resume:
            raise OutputError(f"Output folder '{folder}' holds no run to resume; choose an empty or new folder.")
        raise OutputError(f"Output folder '{folder}' is not empty; choose another folder.")
    return folder


def _prepare(folder: Path, recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Take up, remove or begin the run in a folder that is locked."""
    occupied = _is_occupied(folder)
    if occupied and not resume and not overwrite:
        raise OutputError(
            f"Output folder '{folder}' is not empty; continue that run with --resume, replace it with --overwrite, "
            "or choose another folder."
        )
    if occupied and resume:
        _check_same_recipe(folder, recipe)
    try:
        if occupied and overwrite:
            _remove_run(folder)
        if not occupied or overwrite:
            for name in (RECORD, HEARTBEAT):
                (folder / name).unlink(missing_ok=True)
        write_atomically(folder / RECIPE, dump_recipe(recipe))
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None


def _is_occupied(folder: Path) -> bool:
    """Whether a folder holds more than a run leaves that failed before it trained anything."""
    return folder.is_dir() and any(path.name not in _NOTHING_YET for path in folder.iterdir())


def _remove_run(folder: Path) -> None:
    """Remove a run; what tells it from other folders goes last, so that a kill half-way leaves a run to remove."""
    for path in folder.iterdir():
        if path.name in (RECIPE, RECORD, LOCK):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_same_recipe(folder: Path, recipe: Recipe) -> None:
    try:
        saved = read_document(folder / RECIPE, RECIPE, "replace the run.")
    except RecipeError:
        saved = None
    if not isinstance(saved, dict):
        raise OutputError(
            f"The run in '{folder}' cannot be resumed, since its '{RECIPE}' is missing or damaged; replace the run "
            "with --overwrite, or choose another folder."
        )
    asked = parse_yaml(dump_recipe(recipe), RECIPE)
    counts = (int(read_record(folder).get("processes") or 1), process_count())
    for data, processes in zip((saved, asked), counts, strict=True):
        for key in ("output", "evaluation", "name"):  # These change nothing that was computed.
            data.pop(key, None)
        for stage in data.get("stages") or []:
            stage.pop("guard", None)  # What a run that it stopped may need to go on.
            stage["training"] = _deciding(stage.get("training") or {}, processes)
    difference = _first_difference(saved, asked)
    if difference is not None:
        place, old, new = difference
        raise OutputError(
            f"The run in '{folder}' has {place} = {old!r}, this recipe {new!r}; resume with the same recipe "
            f"('{folder / RECIPE}'), or start anew elsewhere or with --overwrite."
        )


def _deciding(training: dict[str, Any], processes: int) -> dict[str, Any]:
    """Return what of a stage's training arguments decides its result, however many processes share its steps."""
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps")
    batch, accumulation = (training.get(name, DEFAULTS.get(name, 1)) for name in sizes)
    kept = {name: value for name, value in training.items() if name not in (*sizes, *_FREE)}
    return kept | {
        "rows a step (per_device_train_batch_size x gradient_accumulation_steps x processes)": (
            batch * accumulation * processes
        )
    }


def _first_difference(saved: Any, asked: Any, place: str = "recipe") -> tuple[str, Any, Any] | None:
    """Find the first place where two documents differ."""
    if isinstance(saved, dict) and isinstance(asked, dict):
        for key in [*saved, *(key for key in asked if key not in saved)]:
            below = _first_difference(saved.get(key), asked.get(key), f"{place}.{key}")
            if below is not None:
                return below
        return None
    if isinstance(saved, list) and isinstance(asked, list) and len(saved) == len(asked):
        for index, pair in enumerate(zip(saved, asked, strict=True)):
            below = _first_difference(*pair, f"{place}.{index}")
            if below is not None:
                return below
        return None
    return None if saved == asked else (place.removeprefix("recipe."), saved, asked)
