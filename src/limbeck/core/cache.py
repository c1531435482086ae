"""Folders of the cache, each built once for all processes.

`build_once` builds a folder aside and renames it at the end. A sealed manifest vouches for its files, and pieces keep
what a killed builder had finished.
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
_LOCK = ".lock"
_PIECE = ".piece.json"
_STALE_SECONDS = 7 * 24 * 3600
_POLL_SECONDS = 0.2


class NothingToBuildError(CorpusError):
    """A build that comes to nothing however often it is tried, so that its finished pieces are of no use."""


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
        goes_on: Whether `build` takes up the pieces that one that was killed, or failed, left in the folder aside;
            otherwise the folder is empty. Pieces are not part of the result.
        waiting: Called once if another process is building.

    Raises:
        CorpusError: if the cache cannot be written.
    """
    aside = folder.parent / f"{_ASIDE}{folder.name}"
    lock = Path(f"{aside}{_LOCK}")

    # A lock that is there is taken and removed below: its holder may have been killed.
    manifest = _examine_folder(folder, reading=False).listing
    if manifest is not None and not lock.exists():
        return manifest

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder.parent)
        with _locked(lock, waiting):
            # Another process may have built or checked it meanwhile.
            examined = _examine_folder(folder)
            if examined.damage is not None:
                _logger.warning("The cache '%s' is damaged and is rebuilt: %s.", folder, examined.damage)
            if examined.listing is not None:
                return examined.listing
            return _build(folder, aside, build, goes_on)
    except (OSError, NotImplementedError) as error:
        # A cache that can only be read has no lock.
        manifest = read_manifest(folder)
        if manifest is not None:
            return manifest
        # A full disk, for example: a resumed build keeps the finished part.
        reason = getattr(error, "strerror", None) or str(error)
        way_out = "set LIMBECK_CACHE to a folder with room that can be written"
        raise CorpusError(f"Cannot write the corpus cache '{folder.parent}': {reason}; {way_out}.") from error


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, or `None` if the folder is missing, half built or damaged.

    All files are read and compared with their hashes, unless this or another process has done so within a day and size
    and times of a file are the same since.
    """
    return _examine_folder(folder).listing


def finish_piece(folder: Path, name: str, files: Sequence[str], content: dict[str, Any]) -> None:
    """Note a finished piece of a folder in the making, so that a later builder takes it up.

    Args:
        folder: The folder in the making.
        name: Name of the piece.
        files: Names of its files; they are brought to the disk first.
        content: Plain JSON values for the later builder.
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
    """List the notes of the pieces, and those that a killed builder left half written."""
    return [*folder.glob(f"*{_PIECE}"), *folder.glob("*.partial")]


def _examine_folder(folder: Path, *, reading: bool = True) -> Examined:
    """Compare the files of a finished folder with its manifest, see `examine`."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return Examined()
    members = {path.name for path in folder.iterdir()}
    members -= {MANIFEST, *(path.name for path in _piece_notes(folder))}
    return examine(manifest, members=members, reading=reading)


def _build(folder: Path, aside: Path, build: Callable[[Path], dict[str, Any]], goes_on: bool) -> dict[str, Any]:
    """Build a folder aside, seal it and put it in its place."""
    if not goes_on:
        shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(exist_ok=True)
    # A folder that is complete was left by a builder that was killed before it moved the folder.
    if read_manifest(aside) is None:
        try:
            manifest = build(aside)
        except BaseException as error:
            # A source that is out of reach, or a worker that died, may be better next time: pieces are kept.
            has_nothing = isinstance(error, CorpusError) and not _piece_notes(aside)
            if not goes_on or has_nothing or isinstance(error, NothingToBuildError):
                shutil.rmtree(aside, ignore_errors=True)
            raise
        manifest["files"] = _list_files(aside)
        atomic_text(aside / MANIFEST, sealed_text(manifest))

    # Only now: without its pieces, and without a manifest, a folder would be built anew.
    remove_pieces(aside)
    # A folder in the place is damaged, or it would have been returned.
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    placed = _examine_folder(folder)
    if placed.listing is None:
        raise CorpusError(
            f"Cannot write the corpus cache '{folder}': {placed.damage or 'it is gone'}; check the disk, remove that "
            "folder and try again."
        )
    return placed.listing


def _list_files(aside: Path) -> dict[str, Any]:
    """Return sizes and hashes of all files of a built folder; those of pieces are known already."""
    files = set(aside.iterdir()) - set(_piece_notes(aside))
    known: dict[str, Any] = {}
    for note in aside.glob(f"*{_PIECE}"):
        known |= read_json(note).get("files", {})
    return {file.name: known.get(file.name) or file_facts(file) for file in sorted(files)}


@contextmanager
def _locked(path: Path, waiting: Callable[[], None] | None) -> Iterator[None]:
    """Hold a lock, which the system releases when its holder dies, however it dies."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
        # Only now: the waiting processes find a manifest, and so does the maker of a new lock.
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _remove_stale(parent: Path) -> None:
    """Remove what builders that were killed have left for a week; a running one touches its folder within a day."""
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
