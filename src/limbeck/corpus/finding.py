"""Finding files: what a path, a folder, a glob or an address names."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec  # type: ignore[import-untyped]

from limbeck.corpus import hub
from limbeck.corpus.opening import FilePath, is_remote
from limbeck.corpus.readers import kind_of
from limbeck.corpus.source_report import one_line
from limbeck.errors import CorpusError

INSTALLED_DOCS = "installed-docs"
_GLOB_CHARACTERS = frozenset("*?[")


class FoundFiles(NamedTuple):
    """The files that a source string names.

    Args:
        files: Those of a kind that is read, each once, in order.
        ignored: Those of other kinds that were found beside them.
    """

    files: list[FilePath]
    ignored: list[FilePath]


def find_files(text: str, kinds: Collection[str]) -> FoundFiles | None:
    """Find the files of a file, folder, glob pattern or address; `None` if the string names a Hub data set.

    Args:
        text: The source string.
        kinds: Suffixes that are read.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if text.startswith(hub.PREFIX):
        return None
    if is_remote(text):
        return _find_remote(text, kinds)
    path = Path(text).expanduser()
    if _exists(path):
        return _sort_out([path], text, kinds)
    if _GLOB_CHARACTERS.intersection(text):
        return _sort_out(_match(path), text, kinds)
    if hub.is_hub_name(text) and kind_of(path, kinds) is None and not path.parent.is_dir():
        return None
    on_hub = f" For the Hub's data set write '{hub.PREFIX}{one_line(text)}'." if hub.is_hub_name(text) else ""
    raise CorpusError(f"There is no file, folder or data set '{one_line(text)}'.{_nearby(path)}{on_hub}")


def file_states(files: Sequence[FilePath]) -> list[list[Any]]:
    """Return path, size and time of change of every file: plain values for a fingerprint."""
    return [_remote_state(file) if isinstance(file, str) else _state(file) for file in files]


def _state(path: Path) -> list[Any]:
    try:
        stat = path.stat()
        return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    except OSError as error:
        raise CorpusError(f"Cannot read '{one_line(path)}': {error.strerror}.") from error


def _remote_state(address: str) -> list[Any]:
    """Return the address, and what its file system tells of its content."""
    try:
        system, name = fsspec.core.url_to_fs(address)
        return [address, str(system.ukey(name))]
    except Exception as error:  # Each remote file system raises of its own kinds.
        raise _unreachable(address, error) from error


def _find_remote(text: str, kinds: Collection[str]) -> FoundFiles:
    try:
        system, name = fsspec.core.url_to_fs(text)
        if _GLOB_CHARACTERS.intersection(name):
            found = sorted(system.glob(name))
        else:
            found = sorted(system.find(name)) if system.isdir(name) else [name] if system.exists(name) else []
        addresses: list[FilePath] = [system.unstrip_protocol(path) for path in found]
    except Exception as error:  # Each remote file system raises of its own kinds.
        raise _unreachable(text, error) from error
    files = [address for address in addresses if kind_of(address, kinds) is not None]
    if not addresses:
        raise CorpusError(f"There is no file at '{one_line(text)}': check the address.")
    if not files:
        raise CorpusError(f"'{one_line(text)}' names no file {_of_a_kind(kinds)}")
    return FoundFiles(files, [address for address in addresses if address not in files])


def _unreachable(address: str, error: Exception) -> CorpusError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return CorpusError(f"Cannot reach '{one_line(address)}': {one_line(reason)}.")


def _of_a_kind(kinds: Collection[str]) -> str:
    return f"of a kind that is read: {', '.join(sorted(kinds))}, each also with .gz or .zst."


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # A name too long for the system, or with a NUL.
        return False


def _match(pattern: Path) -> list[Path]:
    """Return the paths that match a glob pattern, sorted; `**` does not follow links, so it always ends."""
    start = Path(pattern.anchor)
    try:
        matches = sorted(start.glob(str(pattern.relative_to(start))))
    except (ValueError, OSError) as error:
        raise CorpusError(f"Cannot read the pattern '{one_line(pattern)}': {one_line(error)}.") from error
    named = set(pattern.parts)  # Hidden files and folders count only where they are named.
    matches = [path for path in matches if not any(part[0] == "." and part not in named for part in path.parts)]
    if not matches:
        raise CorpusError(f"No file matches '{one_line(pattern)}': check the pattern, and the folder it starts from.")
    return matches


def _sort_out(paths: list[Path], text: str, kinds: Collection[str]) -> FoundFiles:
    files: list[Path] = []
    ignored: list[FilePath] = []
    for path in paths:
        found = _walk(path) if path.is_dir() else [path]
        for file in found:
            # Pipes, devices and links to nothing are no files.
            (files if kind_of(file, kinds) is not None and file.is_file() else ignored).append(file)
    if not files:
        if len(paths) == 1 and not paths[0].is_dir() and not paths[0].is_file():
            raise CorpusError(f"'{one_line(text)}' is no ordinary file: give a file with text.")
        what = f"The folder '{one_line(text)}' holds no file" if paths[0].is_dir() else f"'{one_line(text)}' is not"
        raise CorpusError(f"{what} {_of_a_kind(kinds)}")
    # Links, and patterns that match a folder and its files, name a file more than once.
    unique: dict[Path, FilePath] = {path.resolve(): path for path in reversed(files)}
    return FoundFiles(list(unique.values())[::-1], ignored)


def _walk(folder: Path) -> list[Path]:
    """Return the members of `folder` and those below, sorted, but hidden ones; links are followed, each folder once."""
    files: list[Path] = []
    entered: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise CorpusError(f"Cannot read the folder '{one_line(error.filename)}': {error.strerror}.") from error

    try:
        for parent, names, members in os.walk(folder, followlinks=True, onerror=refuse):
            stat = Path(parent).stat()
            if (stat.st_dev, stat.st_ino) in entered:
                names.clear()
                continue
            entered.add((stat.st_dev, stat.st_ino))
            names[:] = sorted(name for name in names if not name.startswith("."))
            files += [Path(parent, name) for name in members if not name.startswith(".")]
    except RecursionError as error:
        raise CorpusError(
            f"The folder '{one_line(folder)}' is nested too deeply: name the folders below it."
        ) from error
    except OSError as error:
        refuse(error)
    return sorted(files)


def _nearby(path: Path) -> str:
    """Return the end of an error line that names the nearest path that exists, if one is near."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return " Sources are paths, globs, hub:owner/name and installed-docs."
    near = difflib.get_close_matches(path.name, names, n=1)
    if not near and difflib.get_close_matches(str(path), [INSTALLED_DOCS], n=1):
        return f" Did you mean '{INSTALLED_DOCS}'?"
    return f" Did you mean '{one_line(path.parent / near[0])}'?" if near else ""
