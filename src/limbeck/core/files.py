"""Files and folders that are whole or not there, whatever kills their writer.

`atomic_text`, `atomic_file` and `atomic_folder` write aside and rename. `build_once` builds a folder of a cache, once
for all processes: a manifest vouches for its files by their hashes, and pieces keep what a killed builder had finished.
"""

import errno
import hashlib
import io
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import iglob
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from filelock import FileLock, Timeout

from limbeck.errors import CorpusError, OutputError

_logger = logging.getLogger("limbeck")

RECORD = "run.json"
HEARTBEAT = "heartbeat.json"


# Relative paths of documents, which may be meant from the current folder or from that of the document.

_PLACEHOLDER = re.compile(r"\{\w+\}")
_tried: dict[str, str] = {}


def find_beside(text: str, folder: Path) -> str:
    """Return a relative path or pattern as it leads somewhere: from the current folder, else from another one.

    One that leads nowhere from either stays as it is, and `tried_beside` names the second place for messages.

    Args:
        text: The path, or anything else, which is returned.
        folder: The other folder.
    """
    beside = str(folder / text)
    if text.startswith(("~", os.sep)) or "://" in text or _leads_somewhere(text):
        return text
    if _leads_somewhere(beside):
        return beside
    if folder.resolve() != Path.cwd():
        _tried[text] = _tried[str(Path(text))] = beside
    return text


def tried_beside(text: str) -> str:
    """Return for the message on a missing path where else it was looked for; empty if nowhere."""
    return f" (nor does '{_tried[text]}', beside the recipe)" if text in _tried else ""


def _leads_somewhere(text: str) -> bool:
    """Whether a path is there, or a pattern matches something; a `{placeholder}` matches as `*`."""
    with suppress(OSError, ValueError, re.error):  # A name too long or with a NUL, or a broken pattern.
        return Path(text).exists() or any(iglob(_PLACEHOLDER.sub("*", text), recursive=True))  # noqa: PTH207
    return False


@contextmanager
def atomic_file(path: Path, *, durable: bool = True, shared: bool = False) -> Iterator[Path]:
    """Yield the path of a file to write, which then replaces another: readers see the old or the new, never a part.

    Args:
        path: The file to replace.
        durable: Wait until the new file is on the disk, so that it also outlives a loss of power.
        shared: Whether several processes may write it at once, each aside under a unique name.

    Raises:
        OutputError: if a folder is in its place.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial" if shared else f"{path.name}.partial")
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()  # On a full disk it would keep room from what comes after.
        if isinstance(error, IsADirectoryError):
            raise OutputError(f"'{path}' is a folder, where a file belongs; move it away.") from None
        raise


def atomic_text(path: Path, text: str, *, durable: bool = True, shared: bool = False) -> None:
    """Replace a file's text, see `atomic_file`.

    Args:
        path: The file.
        text: Its new text, written as UTF-8.
        durable: Wait until it is on the disk.
        shared: Whether several processes may write it at once.
    """
    with atomic_file(path, durable=durable, shared=shared) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that is written within the context.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}.") from None


@contextmanager
def atomic_folder(folder: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield an empty folder that replaces another at the end, or is removed if the block raises.

    Args:
        folder: The folder to replace; its parents are made.
        shared: Whether several processes may write it at once, each aside under a unique name.

    Raises:
        OutputError: if a file is in its place.
    """
    name = f"{folder.name}.{os.getpid()}" if shared else folder.name
    partial, replaced = folder.with_name(f"{name}.partial"), folder.with_name(f"{name}.replaced")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if folder.is_dir() or folder.is_symlink():  # Of a link only the link goes.
            folder.rename(replaced)
        partial.rename(folder)
    except NotADirectoryError:
        if not folder.is_file():
            raise
        raise OutputError(f"'{folder}' is a file, where a folder belongs; move it away.") from None
    finally:
        for aside in (partial, replaced):
            with suppress(OSError):
                remove(aside)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def record_damage(folder: Path) -> str | None:
    """Say in a line that a run's record is there and cannot be read; None where all is well, or there is none."""
    path = folder / RECORD
    # A record that is whole is never empty.
    if not path.is_file() or read_json(path):
        return None
    return f"'{path}' is damaged and cannot be read, so it does not say what the run was or how it ended."


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; empty where there is none or it cannot be read."""
    try:
        if not path.is_file():  # Of a pipe or a device there is no end.
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def check_writable(path: Path, folder: Path) -> None:
    """Make the folder of an output and write into it, before the work whose result it is for; rights do not tell.

    Args:
        path: The value of `--output`, for the message.
        folder: The folder of its files.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror or error}.") from None


MANIFEST = "manifest.json"
_ASIDE = ".building-"
_LOCK = ".lock"
_PIECE = ".piece.json"
_STALE_SECONDS = 7 * 24 * 3600
_POLL_SECONDS = 0.2


class NothingToBuildError(CorpusError):
    """A build that comes to nothing however often it is tried, so that its finished pieces are of no use."""


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
    aside = folder.parent / f"{_ASIDE}{folder.name}"
    lock = Path(f"{aside}{_LOCK}")
    manifest = _examine(folder / MANIFEST, reading=False).listing
    if manifest is not None and not lock.exists():  # Else it is taken, and removed: its holder may have been killed.
        return manifest
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder.parent)
        with _locked(lock, waiting):
            found = _examine(folder / MANIFEST)  # Another process may have built or checked it meanwhile.
            if found.damage is not None:
                _logger.warning("The cache '%s' is damaged and is rebuilt: %s.", folder, found.damage)
            return found.listing if found.listing is not None else _build(folder, aside, build, goes_on)
    except (OSError, NotImplementedError) as error:
        manifest = read_manifest(folder)
        if manifest is not None:  # A cache that can only be read has no lock.
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
    return _examine(folder / MANIFEST).listing


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
    listed = {file: _facts(folder / file) for file in files}
    atomic_text(folder / f"{name}{_PIECE}", _sealed({"files": listed, "content": content}))


def read_piece(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a finished piece, or `None` if it is not finished or a file of it is not whole."""
    piece = _examine(folder / f"{name}{_PIECE}").listing
    content = None if piece is None else piece.get("content")
    return content if isinstance(content, dict) else None


def remove_pieces(folder: Path) -> None:
    """Remove the notes of the pieces; their files stay."""
    for path in _piece_notes(folder):
        path.unlink()


def _piece_notes(folder: Path) -> list[Path]:
    """List the notes of the pieces, and those that a killed builder left half written."""
    return [*folder.glob(f"*{_PIECE}"), *folder.glob("*.partial")]


# Damage of a cache: every file has its hash in the manifest or note that lists it, which has one of itself. XXH3 finds
# accidents at the pace of memory; who may write into the cache could as well write the manifest.

_SEAL = "xxh3"
_CHECKED = "checked"
_TRUSTED_NS = 24 * 3600 * 10**9
# Times of files go by ticks: what is changed in the tick in which it was read keeps its time.
_TICK_NS = 10**8

# Hashes of files that this process wrote, until they are listed; and of those that it read, by their states.
_written: dict[Path, str] = {}
_read: dict[tuple[int, ...], str] = {}


class HashedFile(io.BufferedWriter):
    """A new file that is hashed while it is written.

    Args:
        path: The file; an old one is replaced.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._path, self._digest = path, xxhash.xxh3_128()

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        self._digest.update(data)
        return super().write(data)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            _written[self._path] = self._digest.hexdigest()


class _Examined(NamedTuple):
    """A manifest or note whose files are all as they were written, or what is wrong; neither where there is none."""

    listing: dict[str, Any] | None = None
    damage: str | None = None


def _facts(path: Path) -> dict[str, Any]:
    """Return size and hash of a new file: that of what was written, where this process wrote it hashed."""
    return {"bytes": path.stat().st_size, _SEAL: _written.pop(path, None) or _read_hash(path)}


def _read_hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, xxhash.xxh3_128).hexdigest()


def _sealed(values: dict[str, Any]) -> str:
    """Write plain values as JSON that holds a hash of itself."""
    return json.dumps({**values, _SEAL: _seal_of(values)}, indent=2)


def _seal_of(values: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(values))  # As it will be read: keys become text.
    return xxhash.xxh3_128(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _examine(path: Path, *, reading: bool = True) -> _Examined:
    """Compare the files that a manifest or note lists, beside it, with the hashes that it gives.

    Args:
        path: The manifest or note.
        reading: Whether files may be read; without it those are damaged that are not known to be whole.
    """
    if not path.is_file():
        return _Examined()
    listing = read_json(path)
    seal, files = listing.pop(_SEAL, None), listing.get("files")
    if listing and seal is None:
        return _Examined(damage=f"'{path.name}' is from an earlier version and has no hashes")
    if not isinstance(files, dict) or seal != _seal_of(listing):
        return _Examined(damage=f"'{path.name}' has changed since it was written, or cannot be read")
    is_folder = path.name == MANIFEST
    if is_folder and (others := _members(path.parent) - {*files}):
        return _Examined(damage=f"it holds {min(others)!r:.80}, which does not belong to it")
    known = _known_states(path.parent) if is_folder else {}
    states: dict[str, list[Any]] = {}
    did_read = False
    for name, facts in files.items():
        try:
            state = _state(path.parent / name)
            found = _read.get(state) or known.get((name, *state))
            if found is None and reading and state[0] == facts["bytes"]:
                began = time.time_ns()
                found, did_read = _read_hash(path.parent / name), True
                if state[-1] + _TICK_NS < began:
                    _read[state] = found
        except OSError as error:
            return _Examined(damage=f"{name!r:.80} cannot be read ({error.strerror})")
        if found is None or found != facts[_SEAL]:
            return _Examined(damage=f"{name!r:.80} has changed since it was written")
        if state in _read:
            states[name] = [*state, found]
    if did_read and is_folder:
        memory = _memory_of(path.parent)
        with suppress(OSError):  # Without a memory all is read again.
            memory.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"time_ns": time.time_ns(), "files": states})
            atomic_text(memory, text, durable=False, shared=True)
    return _Examined(listing)


def _members(folder: Path) -> set[str]:
    """List the files of a finished folder that its manifest has to list."""
    beside = {MANIFEST, *(path.name for path in _piece_notes(folder))}
    return {path.name for path in folder.iterdir()} - beside


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes when a file does, its size first and the time of its last change of any kind last."""
    if path.exists() and not path.is_file():  # Of a pipe or a device there is no end.
        raise OSError(errno.EINVAL, "it is not a file")
    stat = path.stat()
    return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def _memory_of(folder: Path) -> Path:
    """Name the file that says which states of a finished folder's files were read and found whole.

    It is this user's and not the folder's, which may be one that can only be read.
    """
    return default_cache_dir() / _CHECKED / f"{xxhash.xxh3_128(os.fsencode(folder.resolve())).hexdigest()}.json"


def _known_states(folder: Path) -> dict[tuple[Any, ...], str]:
    """Return hashes by names and states of files, as far as a process has noted them within a day.

    A disk that loses bits by itself leaves size and times as they are, so that nothing is believed for ever.
    """
    memory = read_json(_memory_of(folder))
    try:
        fresh = 0 <= time.time_ns() - memory["time_ns"] < _TRUSTED_NS
        return {(name, *state): found for name, (*state, found) in memory["files"].items()} if fresh else {}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _build(folder: Path, aside: Path, build: Callable[[Path], dict[str, Any]], goes_on: bool) -> dict[str, Any]:
    if not goes_on:
        shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(exist_ok=True)
    if read_manifest(aside) is None:  # Else a builder was killed when all that was left to do was to move it.
        try:
            manifest = build(aside)
        except BaseException as error:
            # A source that is out of reach, or a worker that died, may be better next time: pieces are kept.
            in_vain = isinstance(error, CorpusError) and not _piece_notes(aside)
            if not goes_on or in_vain or isinstance(error, NothingToBuildError):
                shutil.rmtree(aside, ignore_errors=True)
            raise
        files = sorted({*aside.iterdir()} - {*_piece_notes(aside)})
        listed: dict[str, Any] = {}
        for note in aside.glob(f"*{_PIECE}"):
            listed |= read_json(note).get("files", {})
        manifest["files"] = {file.name: listed.get(file.name) or _facts(file) for file in files}
        atomic_text(aside / MANIFEST, _sealed(manifest))
    # Only now: without its pieces, and without a manifest, a folder would be built anew.
    remove_pieces(aside)
    shutil.rmtree(folder, ignore_errors=True)  # It is damaged, or its builder would have been taken at its word.
    aside.rename(folder)
    placed = _examine(folder / MANIFEST)
    if placed.listing is None:
        raise CorpusError(
            f"Cannot write the corpus cache '{folder}': {placed.damage or 'it is gone'}; check the disk, remove that "
            "folder and try again."
        )
    return placed.listing


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
            stale = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
        except OSError:  # Its builder has just finished.
            continue
        if stale and leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif stale:
            leftover.unlink(missing_ok=True)


_STATUS = Path("/proc/self/status")


def give_ordinary_mode(paths: Iterable[Path]) -> None:
    """Give files the permissions of new files by the user's umask: safetensors keeps its files for their owner alone.

    Args:
        paths: The files; on a file system without permissions nothing is changed.
    """
    mode = 0o666 & ~_umask()
    for path in paths:
        with suppress(OSError):
            path.chmod(mode)


def _umask() -> int:
    """Read the umask, from the system where possible: setting it would be seen by other threads."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
