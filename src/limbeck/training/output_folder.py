"""The run's folder: never written over by accident, continued only with the same recipe."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from limbeck.core import files, paths, ranks, yaml
from limbeck.core.files import atomic_text
from limbeck.core.folders import FolderKind, claim, folder_lock, writing
from limbeck.core.paths import HEARTBEAT, LOCK, RECIPE, RUN_RECORD
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.load import dump_recipe
from limbeck.recipe.schema import Recipe
from limbeck.training.run_identity import check_same_recipe

# What may lie in a folder that no run has trained anything in yet.
_NOTHING_YET = frozenset(
    (RECIPE, RUN_RECORD, HEARTBEAT, LOCK, paths.INPUTS, f"{RUN_RECORD}.partial", f"{HEARTBEAT}.partial")
)


@contextmanager
def claimed_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have the run's folder for the processes of this run alone, new or continued, with the resolved recipe in it.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Returns:
        The folder.

    Raises:
        OutputError: if the folder holds something and neither was asked for, if it is to be removed but is no run, if
            the run there was made by another recipe, if another process has it, or if it is on a disk of one machine
            that processes on others cannot see.
    """
    with ExitStack() as stack:
        folder = ranks.on_main_rank(lambda: _claim(recipe, stack, resume=resume, overwrite=overwrite))

        def see() -> None:
            if not (folder / RECIPE).is_file():
                raise OutputError(
                    f"Output folder '{folder}' is not visible on {socket.gethostname()}; a run on several machines "
                    "needs a folder that all of them share."
                )

        ranks.on_all_ranks(see)
        yield folder


def _claim(recipe: Recipe, stack: ExitStack, *, resume: bool, overwrite: bool) -> Path:
    """Claim the folder in the main process; its lock is held until the stack is left."""
    folder = _check_folder(recipe.output, resume=resume, overwrite=overwrite)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stack.enter_context(folder_lock(folder))
    if _RUN.is_occupied(folder) and not resume and not overwrite:
        raise _not_empty(folder)
    with writing(folder):
        if overwrite:
            _remove_run(folder, recipe)
        if not claim(folder, _RUN, yaml.parse_yaml(dump_recipe(recipe), RECIPE)):
            for name in (RUN_RECORD, HEARTBEAT):
                (folder / name).unlink(missing_ok=True)
            keep_recipe(folder, recipe)
    return folder


def check_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse a run's folder that cannot be claimed, before torch is imported; nothing is made or removed.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Raises:
        OutputError: as `claimed_output`.
    """
    folder = _check_folder(recipe.output, resume=resume, overwrite=overwrite)
    if not _RUN.is_occupied(folder) or overwrite:
        return
    if resume:
        check_same_recipe(folder, read_kept_recipe(folder), yaml.parse_yaml(dump_recipe(recipe), RECIPE))
        return
    with folder_lock(folder):  # A run that goes on there is said first.
        raise _not_empty(folder)


def check_free(output: str | Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that a run may not have, before anything is kept there for its recipe; see `check_output`."""
    folder = _check_folder(output, resume=resume, overwrite=overwrite)
    if _RUN.is_occupied(folder) and not resume and not overwrite:
        raise _not_empty(folder)


def _not_empty(folder: Path) -> OutputError:
    return OutputError(
        f"Output folder '{folder}' is not empty; continue that run with --resume, replace it with --overwrite, or "
        "choose another folder."
    )


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe into a run's folder: of a resumed one once teacher and text are found the same."""
    atomic_text(folder / RECIPE, dump_recipe(recipe))


def _check_folder(output: str | Path | None, *, resume: bool, overwrite: bool) -> Path:
    """Refuse what can be refused without touching the folder."""
    if output is None:
        raise OutputError("The run has no output folder; set output in the recipe, or give --output DIR.")
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if resume and overwrite:
        raise OutputError("--resume and --overwrite cannot be combined: continue the run, or replace it.")
    if _RUN.is_occupied(folder) and not any((folder / name).is_file() for name in (RECIPE, RUN_RECORD)):
        if overwrite:
            raise OutputError(
                f"Output folder '{folder}' was not made by limbeck, so --overwrite does not remove it; "
                "empty it yourself or choose another folder."
            )
        if resume:
            raise OutputError(f"Output folder '{folder}' holds no run to resume; choose an empty or new folder.")
        raise OutputError(f"Output folder '{folder}' is not empty; choose another folder.")
    return folder


def _remove_run(folder: Path, recipe: Recipe) -> None:
    """Remove a run; what tells it from other folders goes last, so that a kill half-way leaves a run to remove.

    Objects that the new recipe names are kept there already, and stay.
    """
    named, inputs = dump_recipe(recipe), folder / paths.INPUTS
    for path in (*folder.iterdir(), *(inputs.iterdir() if inputs.is_dir() else ())):
        is_named = path.parent == inputs and path.name in named
        if path.name in (RECIPE, RUN_RECORD, LOCK) or path == inputs or is_named:
            continue
        files.remove(path)


def read_kept_recipe(folder: Path) -> dict[str, Any]:
    """Read the recipe that a run's folder keeps.

    Raises:
        OutputError: if it is missing or damaged.
    """
    saved = None
    with suppress(RecipeError):
        saved = yaml.read_document(folder / RECIPE, RECIPE, "replace the run.")
    if not isinstance(saved, dict):
        raise OutputError(
            f"The run in '{folder}' cannot be resumed, since its '{RECIPE}' is missing or damaged; replace the run "
            "with --overwrite, or choose another folder."
        )
    return saved


_RUN = FolderKind("run", RECIPE, check_same_recipe, beside=_NOTHING_YET, read=read_kept_recipe)
