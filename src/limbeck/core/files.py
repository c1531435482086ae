"""A run's record and sign of life on disk: written whole or not at all, read without loading anything heavy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limbeck.errors import CorpusError, OutputError

RECORD = "run.json"
HEARTBEAT = "heartbeat.json"


def atomic_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file's text: a reader, and a start after a kill, sees the old or the new text, never a part.

    Args:
        path: The file.
        text: Its new text, written as UTF-8.
        durable: Wait until it is on the disk, so that it also outlives a loss of power.
    """
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    partial.replace(path)


def read_record(folder: Path) -> dict[str, Any]:
    """Read a run's record; empty where there is none or it cannot be read."""
    return read_json(folder / RECORD)


def record_damage(folder: Path) -> str | None:
    """Say in a line that a run's record is there and cannot be read; None where all is well, or there is none."""
    path = folder / RECORD
    # A record that is whole is never empty.
    if not path.is_file() or read_record(folder):
        return None
    return f"'{path}' is damaged and cannot be read: what the run was and how it ended is not known from it."


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; empty where there is none or it cannot be read."""
    try:
        if not path.is_file():  # Of a pipe or a device there is no end.
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# Refusing a place that cannot be written before the work whose result it is for.


def check_writable(path: Path, folder: Path) -> None:
    """Make the folder of an output, and try that it can be written; rights alone do not say so.

    Args:
        path: As the user gave it with `--output`, for the message.
        folder: Where files will be.

    Raises:
        OutputError: if it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror or error}.") from None


# Pieces of a folder in the making: each complete or not there, so that a killed builder's work is taken up.


_SUFFIX = ".piece.json"


def finish_piece(folder: Path, name: str, files: Sequence[str], content: dict[str, Any]) -> None:
    """Vouch for some files: they are on the disk, and so is what is to be known of them.

    Args:
        folder: The folder in the making.
        name: Name of the piece.
        files: Names of its files.
        content: What the next builder has to know, plain JSON values.
    """
    for file in files:
        with (folder / file).open("rb") as written:
            os.fsync(written.fileno())
    sizes = {file: (folder / file).stat().st_size for file in files}
    partial = folder / f"{name}.partial"
    with partial.open("w", encoding="utf-8") as file_:
        json.dump({"files": sizes, "content": content}, file_)
        file_.flush()
        os.fsync(file_.fileno())
    partial.replace(folder / f"{name}{_SUFFIX}")


def read_piece(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what a builder left of a piece, or `None` if it did not finish it."""
    try:
        piece = json.loads((folder / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
        whole = all((folder / file).stat().st_size == size for file, size in piece["files"].items())
        return dict(piece["content"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def piece_notes(folder: Path) -> list[Path]:
    """List what is known of the pieces, and what a killed builder left half written of it; their files are others."""
    return [*folder.glob(f"*{_SUFFIX}"), *folder.glob("*.partial")]


def remove_pieces(folder: Path) -> None:
    """Remove what is known of the pieces; their files stay."""
    for path in piece_notes(folder):
        path.unlink()


# Folders that are either complete or not there: built aside, a manifest last, then moved into place.


MANIFEST = "manifest.json"
_ASIDE = ".building-"
_LOCK = ".lock"
_STALE_SECONDS = 7 * 24 * 3600
_POLL_SECONDS = 0.2


class NothingToBuildError(CorpusError):
    """A build that comes to nothing however often it is tried, so that what it has finished is of no use."""


def default_cache_dir() -> Path:
    """Return `$LIMBECK_CACHE`, or `~/.cache/limbeck`."""
    named = os.environ.get("LIMBECK_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "limbeck"


def fingerprint(values: Any) -> str:
    """Return a short hash of plain JSON values."""
    content = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(content, digest_size=12).hexdigest()


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
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest
    aside = folder.parent / f"{_ASIDE}{folder.name}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder.parent)
        with _locked(Path(f"{aside}{_LOCK}"), waiting):
            manifest = read_manifest(folder)  # Another builder may have finished it meanwhile.
            return manifest if manifest is not None else _build(folder, aside, build, goes_on)
    except (OSError, NotImplementedError) as error:
        # A full disk, for example: a build that goes on keeps what it has.
        reason = getattr(error, "strerror", None) or str(error)
        way_out = "set LIMBECK_CACHE to a folder with room that can be written"
        raise CorpusError(f"Cannot write the corpus cache '{folder.parent}': {reason}; {way_out}.") from error


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, or `None` if the folder is missing, half built or damaged."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes: dict[str, int] = manifest["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def _build(folder: Path, aside: Path, build: Callable[[Path], dict[str, Any]], goes_on: bool) -> dict[str, Any]:
    if not goes_on:
        shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(exist_ok=True)
    if read_manifest(aside) is None:  # Else a builder was killed when all that was left to do was to move it.
        try:
            manifest = build(aside)
        except BaseException as error:
            # A source that is out of reach, or a worker that died, may be better next time: pieces are kept.
            in_vain = isinstance(error, CorpusError) and not piece_notes(aside)
            if not goes_on or in_vain or isinstance(error, NothingToBuildError):
                shutil.rmtree(aside, ignore_errors=True)
            raise
        _write_manifest(aside, manifest)
    # Only now: without its pieces, and without a manifest, a folder would be built anew.
    remove_pieces(aside)
    return _move_into_place(aside, folder)


@contextmanager
def _locked(path: Path, waiting: Callable[[], None] | None) -> Iterator[None]:
    """Hold a lock, which the system lets go of when its holder dies, however it dies."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
        # Only now: those who wait for it find a manifest, and so does who makes a new one meanwhile.
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest last, with the sizes of the files it vouches for."""
    files = sorted({*folder.iterdir()} - {*piece_notes(folder)})
    manifest["files"] = {file.name: file.stat().st_size for file in files}
    partial = folder / f"{MANIFEST}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / MANIFEST)


def _move_into_place(aside: Path, folder: Path) -> dict[str, Any]:
    if folder.exists():  # It is damaged, or its builder would have been taken at its word.
        shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorpusError(f"Cannot write the corpus cache '{folder}': remove that folder and try again.")
    return manifest


def _remove_stale(parent: Path) -> None:
    """Remove what builders that were killed have left for a week; a running one touches its folder within a day."""
    for leftover in parent.glob(f"{_ASIDE}*"):
        try:
            stale = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
        except OSError:  # Its builder has just finished.
            continue
        if stale and leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif stale:
            leftover.unlink(missing_ok=True)


# Files of weights as readable as all others: safetensors keeps what it writes for its owner alone.


_STATUS = Path("/proc/self/status")


def give_ordinary_mode(paths: Iterable[Path]) -> None:
    """Give files the permissions that the user's umask gives to new files; a file system without any keeps its own.

    Args:
        paths: The files.
    """
    mode = 0o666 & ~_umask()
    for path in paths:
        with suppress(OSError):
            path.chmod(mode)


def _umask() -> int:
    """Read the umask, where the system tells it without setting it: that would be seen by other threads."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
