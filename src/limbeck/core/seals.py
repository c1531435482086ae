"""Sealed listings: JSON that names the files of a folder with their hashes, and has a hash of itself.

The hash (XXH3) is as fast as memory. It finds accidents, such as a disk that lost bits. It does not protect against
somebody who may write into the folder, who could write the listing as well.

Hashing large files takes long, so hashes are remembered by the *state* of a file (`FileState`): numbers such as size
and times, of which some change when the file does. This process remembers them in memory, other processes of this user
in a file of the cache.
"""

import errno
import io
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from limbeck.core.files import FileState, atomic_text, change_state, read_json
from limbeck.core.hashing import hash_file
from limbeck.core.paths import default_cache_dir

_SEAL = "xxh3"
"""Key of the hash of a file, and of the listing itself."""
_CHECKED = "checked"
"""Folder of the cache that has the remembered hashes of finished folders."""
_DAY_NS = 24 * 3600 * 10**9
"""Time for which a remembered hash is believed, in nanoseconds: a day."""

_hashes_written: dict[Path, str] = {}
"""Hashes of files that this process wrote, until they are listed."""
_hashes_read: dict[FileState, str] = {}
"""Hashes of files that this process read, by their states."""


class HashedFile(io.BufferedWriter):
    """A new file that is hashed while it is written.

    Args:
        path: The file; an old one is replaced.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._path = path
        self._digest = xxhash.xxh3_128()

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        self._digest.update(data)
        return super().write(data)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            _hashes_written[self._path] = self._digest.hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    """Return size and hash of a new file, as a listing has them.

    The hash is that of the bytes that were written, where this process wrote the file as a `HashedFile`.
    """
    digest = _hashes_written.pop(path, None) or hash_file(path)
    return {"bytes": path.stat().st_size, _SEAL: digest}


def sealed_text(values: dict[str, Any]) -> str:
    """Return plain values as JSON that holds a hash of itself."""
    return json.dumps({**values, _SEAL: _seal_of(values)}, indent=2)


class Examined(NamedTuple):
    """The result of `examine`.

    Attributes:
        listing: The listing, where all its files are as they were written; else None.
        damage: The damage in words; None where there is none, also where there is no listing.
    """

    listing: dict[str, Any] | None = None
    damage: str | None = None


class _Compared(NamedTuple):
    """The result of comparing the files of a listing with their hashes.

    Attributes:
        damage: The first damage in words; None where there is none.
        states_with_hashes: The state of each file with its hash last, by name, for other processes. Files that may be
            changing just now are left out.
        has_read_a_file: Whether a hash was not known before, so that there is something new to remember.
    """

    damage: str | None
    states_with_hashes: dict[str, list[Any]]
    has_read_a_file: bool


def examine(path: Path, *, members: set[str] | None = None, reads_files: bool = True) -> Examined:
    """Compare the files that a listing names, beside it, with the hashes that it gives.

    Args:
        path: The listing.
        members: Names of the files in a finished folder, which the listing must all name. Hashes of a finished folder
            are remembered for a day, so that other processes need not read its files again. None for a listing in an
            unfinished folder.
        reads_files: Whether files whose hashes are not remembered are read. Without it they count as damaged.
    """
    if not path.is_file():
        return Examined()
    listing = read_json(path)
    damage = _damage_of_listing(path, listing)
    if damage is not None:
        return Examined(damage=damage)

    folder = path.parent
    files = listing["files"]
    remembered: dict[tuple[Any, ...], str] = {}
    if members is not None:
        unlisted = members - set(files)
        if unlisted:
            return Examined(damage=f"it holds {min(unlisted)!r:.80}, which does not belong to it")
        remembered = _remembered_hashes(folder)
    compared = _compare_files(folder, files, remembered, reads_files=reads_files)
    if compared.damage is not None:
        return Examined(damage=compared.damage)
    if members is not None and compared.has_read_a_file:
        _remember(folder, compared.states_with_hashes)
    return Examined(listing)


def _compare_files(
    folder: Path, files: dict[str, Any], remembered: dict[tuple[Any, ...], str], *, reads_files: bool
) -> _Compared:
    """Compare files with the hashes of a listing, up to the first that is damaged.

    Args:
        folder: Where the files are.
        files: The size and hash of each file, by its name.
        remembered: Hashes that processes have noted, by the name and state of the file.
        reads_files: Whether files whose hashes are not remembered are read. Without it they count as damaged.
    """
    states_with_hashes: dict[str, list[Any]] = {}
    has_read_a_file = False
    for name, facts in files.items():
        file = folder / name
        try:
            state = _state(file)
            # This process or another one may know the hash of the file in this state.
            digest = _hashes_read.get(state) or remembered.get((name, *state))
            # A file of another size has changed, so it need not be read.
            has_its_size = state.size == facts["bytes"]
            if digest is None and has_its_size and reads_files:
                digest = _hash_and_note(file, state)
                has_read_a_file = True
        except OSError as error:
            damage = f"{name!r:.80} cannot be read ({error.strerror})"
            return _Compared(damage, states_with_hashes, has_read_a_file)
        if digest != facts[_SEAL]:
            damage = f"{name!r:.80} has changed since it was written"
            return _Compared(damage, states_with_hashes, has_read_a_file)
        # A file that may be changing just now has no note in `_hashes_read`. Its hash is not remembered.
        may_remember = state in _hashes_read
        if may_remember:
            states_with_hashes[name] = [*state, digest]
    return _Compared(None, states_with_hashes, has_read_a_file)


def _damage_of_listing(path: Path, listing: dict[str, Any]) -> str | None:
    """Remove the seal from a listing, its hash over itself, and compare it; return the damage in words, or None."""
    seal = listing.pop(_SEAL, None)
    if listing and seal is None:
        return f"'{path.name}' is from an earlier version and has no hashes"
    # A listing that could not be read is empty, and names no files.
    names_files = isinstance(listing.get("files"), dict)
    if not names_files or seal != _seal_of(listing):
        return f"'{path.name}' has changed since it was written, or cannot be read"
    return None


def _seal_of(values: dict[str, Any]) -> str:
    """Return the hash of a listing without its seal."""
    # The hash is that of the values as they will be read from the file, where all keys are text.
    plain = json.loads(json.dumps(values))
    return xxhash.xxh3_128(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _hash_and_note(path: Path, state: FileState) -> str:
    """Return the hash of a file, and note it for this process unless the file may just be changing."""
    start_of_reading = time.time_ns()
    digest = hash_file(path)
    if state.is_settled(start_of_reading):
        _hashes_read[state] = digest
    return digest


def _state(path: Path) -> FileState:
    """Return the state of a file.

    Raises:
        OSError: for a file that cannot be read, and for anything but a file.
    """
    # A pipe or a device would never end.
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    return change_state(path.stat())


def _memory_of(folder: Path) -> Path:
    """Return the file that remembers the states in which a finished folder's files were read and found whole.

    It is this user's and not the folder's, which may be one that can only be read.
    """
    name = xxhash.xxh3_128(os.fsencode(folder.resolve())).hexdigest()
    return default_cache_dir() / _CHECKED / f"{name}.json"


def _remember(folder: Path, states_with_hashes: dict[str, list[Any]]) -> None:
    """Write the states and hashes of a folder's files for other processes.

    Args:
        folder: The folder.
        states_with_hashes: By the name of a file, the numbers of its state, and its hash last.
    """
    memory = _memory_of(folder)
    # If this fails, the other processes read the files themselves.
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"time_ns": time.time_ns(), "files": states_with_hashes})
        atomic_text(memory, text, durable=False, shared=True)


def _remembered_hashes(folder: Path) -> dict[tuple[Any, ...], str]:
    """Return the hashes that processes have noted within a day, by the name and state of the file.

    They expire, since a disk that loses bits by itself leaves size and times of a file as they are.
    """
    memory = read_json(_memory_of(folder))
    hashes: dict[tuple[Any, ...], str] = {}
    try:
        age_ns = time.time_ns() - memory["time_ns"]
        if not 0 <= age_ns < _DAY_NS:
            return {}
        # As `_remember` wrote them: the numbers of the state, and the hash last.
        for name, (*state, digest) in memory["files"].items():
            hashes[(name, *state)] = digest
    except (KeyError, TypeError, ValueError, AttributeError):
        # There is no such file, or a damaged one.
        return {}
    return hashes
