"""The folder of a run: claimed by one run at a time, never written over by accident, continued only by the same recipe.

A folder is *occupied* if it holds more than the few files that a run writes before it trains. An occupied folder can
be used only with `resume`, which continues the run that is in it, or `overwrite`, which removes that run.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from limbeck.core import files, ranks
from limbeck.core.folder_lock import folder_lock, is_locked
from limbeck.core.folders import FolderKind, claim, unused_removed, writing
from limbeck.core.paths import HEARTBEAT, INPUTS, LOCK, RECIPE, RUN_RECORD, STAGES
from limbeck.corpus.files.addresses import GLOB_CHARACTERS, is_remote
from limbeck.corpus.files.listing import match_pattern
from limbeck.corpus.sources.file_sources import expand_home
from limbeck.errors import CorpusError, OutputError
from limbeck.recipe.load import dump_recipe
from limbeck.recipe.schema import Recipe
from limbeck.training.kept_recipe import document_of, keep_recipe, read_kept_recipe
from limbeck.training.run_identity import check_same_recipe
from limbeck.training.run_needs import needs_of_recipe

_RUN_FOLDER = FolderKind(
    name="run",
    record=RECIPE,
    check=check_same_recipe,
    # Files that may lie in a folder in which no run has trained anything yet.
    beside=frozenset([RECIPE, RUN_RECORD, HEARTBEAT, LOCK, INPUTS, f"{RUN_RECORD}.partial", f"{HEARTBEAT}.partial"]),
    read=read_kept_recipe,
)


@contextmanager
def claimed_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Claim the run's folder for the processes of this run, and keep its lock inside the block.

    The folder is new, emptied or that of the run to continue, and holds the resolved recipe. A new folder is removed
    after a mistake in what was asked, before anything was trained.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Yields:
        The folder.

    Raises:
        OutputError: if the folder is occupied and neither option is given, if it is to be removed but is no run, if
            the run there was made by another recipe, if another process has it, or if it is on a disk of one machine
            that processes on others cannot see.
    """
    is_new = recipe.output is not None and not Path(recipe.output).expanduser().exists()
    with ExitStack() as locks:
        folder = ranks.on_main_rank(lambda: _claim(recipe, locks, resume=resume, overwrite=overwrite))

        def check_visible() -> None:
            if not (folder / RECIPE).is_file():
                raise OutputError(
                    f"Output folder '{folder}' is not visible on {socket.gethostname()}; a run on several machines "
                    "needs a folder that all of them share."
                )

        ranks.on_all_ranks(check_visible)
        if is_new and ranks.is_main():
            # The record of a run is there as soon as the run has begun, except after a mistake in what was asked (see
            # `limbeck.training.endings`).
            locks.enter_context(unused_removed(folder, {RECIPE, LOCK}))
        yield folder


def _claim(recipe: Recipe, locks: ExitStack, *, resume: bool, overwrite: bool) -> Path:
    """Claim the folder in the main process, and put its lock on the stack, which releases the lock at its end."""
    folder = _check_folder(recipe.output, resume=resume, overwrite=overwrite)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    locks.enter_context(folder_lock(folder))
    # Checked again under the lock: another process may have begun a run there since the first check.
    if _RUN_FOLDER.is_occupied(folder) and not resume and not overwrite:
        raise _not_empty_error(folder)

    with writing(folder):
        if overwrite:
            _remove_run(folder, recipe)
        # The recipe of the run that is there; empty in a new folder.
        saved_recipe = claim(folder, _RUN_FOLDER, document_of(recipe))
        is_continued = bool(saved_recipe)
        if not is_continued:
            # The files of a run that never trained. Its folder of stages is empty.
            for name in (RUN_RECORD, HEARTBEAT, STAGES):
                files.remove(folder / name)
            keep_recipe(folder, recipe)
    return folder


def check_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that cannot be claimed, before torch is imported; nothing is written or removed.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Raises:
        OutputError: as `claimed_output`.
    """
    folder = check_free(recipe.output, resume=resume, overwrite=overwrite)
    if overwrite and folder.is_dir():
        _check_keeps_needs(folder, recipe)
    if resume and _RUN_FOLDER.is_occupied(folder):
        check_same_recipe(folder, read_kept_recipe(folder), document_of(recipe))


def check_free(output: str | Path | None, *, resume: bool, overwrite: bool) -> Path:
    """Refuse an occupied folder before a recipe is chosen, and before its objects (models, texts) are saved in it.

    The folder of a run that is still going on is refused too, whether it is to be continued or removed.

    Args:
        output: The folder.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Raises:
        OutputError: as `claimed_output`, but for the comparison of recipes.
    """
    folder = _check_folder(output, resume=resume, overwrite=overwrite)
    is_in_the_way = _RUN_FOLDER.is_occupied(folder) and not resume and not overwrite
    if is_in_the_way or is_locked(folder):
        # If the run there is still going on, taking the lock fails, with an error that says so.
        with folder_lock(folder):
            if is_in_the_way:
                raise _not_empty_error(folder)
    return folder


def is_occupied(folder: Path) -> bool:
    """Whether a folder holds files of a training; a run that failed before its training leaves the folder free."""
    return _RUN_FOLDER.is_occupied(folder)


def _check_folder(output: str | Path | None, *, resume: bool, overwrite: bool) -> Path:
    """Return the folder, after the checks that need no lock."""
    if output is None:
        raise OutputError("The run has no output folder; set output in the recipe, or give --output DIR.")
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if resume and overwrite:
        raise OutputError(
            "--resume and --overwrite cannot be combined, because one continues the run and the other replaces "
            "it; give only one of them."
        )

    is_run = (folder / RECIPE).is_file() or (folder / RUN_RECORD).is_file()
    if is_run or not _RUN_FOLDER.is_occupied(folder):
        return folder
    if overwrite:
        raise OutputError(
            f"Output folder '{folder}' was not made by limbeck, so --overwrite does not delete it; empty that "
            "folder yourself, or choose another one."
        )
    if resume:
        raise OutputError(f"Output folder '{folder}' holds no run to resume; choose an empty or new folder.")
    raise OutputError(f"Output folder '{folder}' is not empty; choose another folder.")


def _not_empty_error(folder: Path) -> OutputError:
    return OutputError(
        f"Output folder '{folder}' is not empty; continue that run with --resume, replace it with --overwrite, or "
        "choose another folder."
    )


def _check_keeps_needs(folder: Path, recipe: Recipe) -> None:
    """Refuse to remove a run whose folder holds the teacher or the text of the new one.

    Raises:
        OutputError: naming the place.
    """
    removed = folder.resolve()
    new_recipe = dump_recipe(recipe)
    for need in needs_of_recipe(document_of(recipe)):
        for place in need.places:
            if any(_is_removed(path, removed, new_recipe) for path in _paths_of(place)):
                raise OutputError(
                    f"--overwrite would remove '{place}', which the new run needs, from the output folder '{folder}'; "
                    "choose another folder."
                )


def _paths_of(place: str) -> list[Path]:
    """Return the file or folder that a place names, or all that match a pattern; none for a place elsewhere."""
    path = expand_home(place).absolute()
    if os.path.lexists(path):
        return [path]
    if is_remote(place) or not GLOB_CHARACTERS.intersection(place):
        return []
    try:
        return match_pattern(path)
    except CorpusError:  # Nothing matches. The error comes when the text is read.
        return []


def _is_removed(path: Path, removed: Path, new_recipe: str) -> bool:
    """Whether the removal of a run would take a file or folder away from the new run.

    Args:
        path: The file or folder.
        removed: The folder of the run, without links.
        new_recipe: The text of the new recipe.
    """
    places = [path.resolve()]
    # A link on the path may lie in the folder and lead out of it. It would be removed.
    links = [step for step in (path, *path.parents) if step.is_symlink()]
    places += [link.parent.resolve() / link.name for link in links]

    inputs = removed / INPUTS
    for place in places:
        if inputs in place.parents:
            name = place.relative_to(inputs).parts[0]
            if not _is_kept_input(name, new_recipe):
                return True
        elif place == removed or removed in place.parents:
            return True
    return False


def _is_kept_input(name: str, new_recipe: str) -> bool:
    """Whether the new recipe names an input of the run, which `_remove_run` then keeps."""
    return name in new_recipe


def _remove_run(folder: Path, recipe: Recipe) -> None:
    """Remove a run from its folder, but for the inputs that the new recipe names.

    Recipe and record stay, to be replaced later: if the removal is killed half-way, the folder is still known as a
    run, which can be removed again.
    """
    for path in list(folder.iterdir()):
        if path.name not in (RECIPE, RUN_RECORD, LOCK, INPUTS):
            files.remove(path)

    # Objects of the new recipe (models, texts) were saved as inputs before this. The recipe holds their paths.
    inputs = folder / INPUTS
    new_recipe = dump_recipe(recipe)
    if inputs.is_dir():
        for path in list(inputs.iterdir()):
            if not _is_kept_input(path.name, new_recipe):
                files.remove(path)
