"""Folders of the cache, each built once for all processes.

`build_once` builds a folder under another name (*aside*) and renames it at the end. A complete folder has a sealed
*manifest*: a listing (see `limbeck.core.seals`) of its files with their hashes, and facts of the build. A *piece* is a
part of a folder in the making, such as one shard, with a note of its own: after a build that was killed, the next one
keeps the finished pieces.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limbeck.core.files import atomic_text, read_json, sync
from limbeck.core.paths import MANIFEST
from limbeck.core.seals import Examined, examine, file_facts, sealed_text
from limbeck.errors import CorpusError

_logger = logging.getLogger("limbeck")

_ASIDE = ".building-"
"""How the name of a folder in the making begins."""
_LOCK = ".lock"
"""How the name of the lock of a folder in the making ends."""
_PIECE = ".piece.json"
"""How the name of the note of a piece ends."""
_STALE_SECONDS = 7 * 24 * 3600
"""Age of leftovers of killed builds that are removed: a week."""
_POLL_SECONDS = 0.2
"""Time from one try to get a lock to the next."""


class NothingToBuildError(CorpusError):
    """A build that always has an empty result, however often it is tried, so that its pieces need not be kept."""


def build_once(
    folder: Path,
    build: Callable[[Path], dict[str, Any]],
    *,
    goes_on: bool = False,
    waiting: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Return the manifest of `folder`, building the folder first unless it is complete.

    The work is done in a folder aside that is renamed at the end, so that a killed build leaves nothing that could be
    taken for a finished one. Of two builders at once, such as the processes of a distributed run, one builds and the
    other waits; if the first is killed, the second goes on.

    Args:
        folder: Where the result belongs.
        build: Writes files into the folder it is given, and returns the manifest's content.
        goes_on: Whether `build` continues an earlier build that was killed or failed, and finds its pieces in the
            folder that it is given; otherwise that folder is empty. Notes of pieces are not part of the result.
        waiting: Called once if another process is building.

    Raises:
        CorpusError: if the cache cannot be written.
    """
    aside = folder.parent / f"{_ASIDE}{folder.name}"
    lock = Path(f"{aside}{_LOCK}")

    # Most calls end here: the folder is complete, which the remembered hashes of its files show without reading them.
    # If the file of a lock is there all the same, its builder was killed after the renaming. Then the call goes on, and
    # removes the file as it releases the lock.
    manifest = _examine_folder(folder, reads_files=False).listing
    has_lock_file = lock.exists()
    if manifest is not None and not has_lock_file:
        return manifest

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder.parent)
        with _locked(lock, waiting):
            # Now its files are read. Another process may also have built it while this one waited for the lock.
            examined = _examine_folder(folder)
            if examined.listing is not None:
                return examined.listing
            if examined.damage is not None:
                _logger.warning("The cache '%s' is damaged and is rebuilt: %s.", folder, examined.damage)
            return _build(folder, aside, build, goes_on)
    except (OSError, NotImplementedError) as error:
        # In a cache that can only be read no lock can be made (an OSError), and where a file system has none
        # at all, filelock raises NotImplementedError. A complete folder can be used all the same.
        manifest = read_manifest(folder)
        if manifest is not None:
            return manifest
        # Else the cache cannot be written, for example since its disk is full. Finished pieces stay for the next build.
        reason = getattr(error, "strerror", None) or str(error)
        way_out = "set LIMBECK_CACHE to a folder with room that can be written"
        raise CorpusError(f"Cannot write the corpus cache '{folder.parent}': {reason}; {way_out}.") from error


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, or `None` if the folder is missing, half built or damaged.

    All files are read and compared with their hashes, except for those that a process has read within a day and whose
    size and times have not changed since.
    """
    return _examine_folder(folder).listing


def finish_piece(folder: Path, name: str, files: Sequence[str], content: dict[str, Any]) -> None:
    """Note a finished piece of a folder in the making, so that a later build can keep it.

    Args:
        folder: The folder in the making.
        name: Name of the piece.
        files: Names of its files; this waits until they are on the disk.
        content: Plain JSON values for the later build.
    """
    for file in files:
        sync(folder / file)
    listed = {file: file_facts(folder / file) for file in files}
    atomic_text(folder / f"{name}{_PIECE}", sealed_text({"files": listed, "content": content}))


def read_piece(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a finished piece, or `None` if it is not finished or a file of it is not whole."""
    piece = examine(folder / f"{name}{_PIECE}").listing
    if piece is None:
        return None
    content = piece.get("content")
    return content if isinstance(content, dict) else None


def remove_pieces(folder: Path) -> None:
    """Remove the notes of the pieces; their files stay."""
    for path in _piece_notes(folder):
        path.unlink()


def _piece_notes(folder: Path) -> list[Path]:
    """List the notes of the pieces, also those that were half written when their build was killed."""
    return [*folder.glob(f"*{_PIECE}"), *folder.glob("*.partial")]


def _examine_folder(folder: Path, *, reads_files: bool = True) -> Examined:
    """Compare the files of a folder with its manifest, which is the `listing` of the result; see `examine`.

    A folder without a manifest has neither a listing nor damage.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return Examined()
    # The manifest names all files but itself and the notes of pieces.
    members = {path.name for path in folder.iterdir()}
    members.discard(MANIFEST)
    members.difference_update(note.name for note in _piece_notes(folder))
    return examine(manifest, members=members, reads_files=reads_files)


def _build(folder: Path, aside: Path, build: Callable[[Path], dict[str, Any]], goes_on: bool) -> dict[str, Any]:
    """Build a folder aside, seal it and put it in its place."""
    if not goes_on:
        shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(exist_ok=True)
    # The folder aside may be complete: its build was killed just before the renaming.
    if read_manifest(aside) is None:
        try:
            manifest = build(aside)
        except BaseException as error:
            # The folder aside is kept if the next try can go on with its pieces: a source that could not be reached, or
            # a worker that died, need not fail again.
            failed_before_first_piece = isinstance(error, CorpusError) and not _piece_notes(aside)
            would_fail_again = isinstance(error, NothingToBuildError)
            is_kept = goes_on and not failed_before_first_piece and not would_fail_again
            if not is_kept:
                shutil.rmtree(aside, ignore_errors=True)
            raise
        manifest["files"] = _list_files(aside)
        atomic_text(aside / MANIFEST, sealed_text(manifest))

    # The notes of pieces go once the manifest is written: a build that is killed before would otherwise start anew.
    remove_pieces(aside)
    # A folder in its place is damaged: a whole one would have been returned before.
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    placed = _examine_folder(folder)
    if placed.listing is None:
        raise CorpusError(
            f"Cannot write the corpus cache '{folder}': {placed.damage or 'it is gone'}; check the disk, remove "
            "that folder and run the command again."
        )
    return placed.listing


def _list_files(aside: Path) -> dict[str, Any]:
    """Return sizes and hashes of all files of a built folder, by their names."""
    # The notes of pieces have those of the files of each piece, which need not be read again.
    facts_in_notes: dict[str, Any] = {}
    for note in aside.glob(f"*{_PIECE}"):
        facts_in_notes |= read_json(note).get("files", {})

    facts_by_name: dict[str, Any] = {}
    files = set(aside.iterdir()) - set(_piece_notes(aside))
    for file in sorted(files):
        facts_by_name[file.name] = facts_in_notes.get(file.name) or file_facts(file)
    return facts_by_name


@contextmanager
def _locked(path: Path, waiting: Callable[[], None] | None) -> Iterator[None]:
    """Hold a lock, which the system releases when its holder dies, however it dies.

    Args:
        path: The file of the lock.
        waiting: Is called once if another process holds the lock.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
        # Only a finished build removes the file of the lock. A process that waits, or comes later, locks a new file.
        # `build_once` then looks for the manifest again, so that nothing is built twice.
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _remove_stale(parent: Path) -> None:
    """Remove the folders and locks of builds that were killed over a week ago.

    A running build changes its folder at least once a day.
    """
    for leftover in parent.glob(f"{_ASIDE}*"):
        try:
            is_stale = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
        except OSError:  # Its builder has just finished.
            continue
        if not is_stale:
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
