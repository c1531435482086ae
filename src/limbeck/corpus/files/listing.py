"""Listing: the files of this machine that a path, a folder or a pattern names, each once.

Entries of a folder say what they are, so that files need not be asked one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files import file_readers
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.messages import safe_name
from limbeck.errors import CorpusError


def match_pattern(pattern: Path) -> list[Path]:
    """Return the paths that match a glob pattern, sorted; `**` does not follow links, so it always ends.

    Raises:
        CorpusError: if none does, or it is no pattern.
    """
    start = Path(pattern.anchor)
    try:
        matches = sorted(start.glob(str(pattern.relative_to(start))))
    except (ValueError, OSError) as error:
        raise CorpusError(f"Cannot read the pattern '{safe_name(pattern)}': {safe_name(error)}.") from error
    # Hidden files and folders count only where the pattern names them.
    named = set(pattern.parts)
    visible = [path for path in matches if all(part in named or not part.startswith(".") for part in path.parts)]
    if not visible:
        raise CorpusError(f"No file matches '{safe_name(pattern)}': check the pattern, and the folder it starts from.")
    return visible


def list_files(paths: list[Path], text: str, suffixes: Collection[str]) -> tuple[list[Path], list[str], list[Path]]:
    """Sort out the files at some paths, and in folders there and below.

    Args:
        paths: At least one.
        text: The string that named them, for messages.
        suffixes: Of supported types.

    Returns:
        Files of supported types, each once, their paths without links, and everything else that was found.

    Raises:
        CorpusError: if there is no file of a supported type, or a folder cannot be read.
    """
    files: list[_Member] = []
    ignored: list[Path] = []
    for path in paths:
        members = _walk(path) if path.is_dir() else [_Member(path, _ask(path.is_file), path.is_symlink())]
        for member in members:
            if member.is_file and suffix_of(member.path) in suffixes:
                files.append(member)
            else:
                ignored.append(member.path)
    if not files:
        raise _no_files_error(paths, text, suffixes, ignored)

    # Links, and patterns that match a folder and its files, name a file more than once: the first name stays, in the
    # place of the last.
    files.reverse()
    path_of_place: dict[str, Path] = {}
    for place, file in zip(_without_links(files), files, strict=True):
        path_of_place[place] = file.path
    in_order = list(reversed(path_of_place.items()))
    return [path for _, path in in_order], [place for place, _ in in_order], ignored


def supported_types(suffixes: Collection[str], path: FilePath = "") -> str:
    """Return the end of a refusal of `path`: the suffixes, and how tables are read."""
    types = f"{', '.join(sorted(suffixes))}, each also with .gz, .xz or .zst."
    suffix = suffix_of(path)
    is_table = suffix in file_readers.readable_suffixes("rows") and suffix not in suffixes
    if is_table:
        types += " Tables are read as labelled rows: give corpus.task."
    return types


class _Member(NamedTuple):
    """A path that is no folder.

    Args:
        path: As it was found.
        is_file: Whether a regular file is there; pipes, devices and links to nothing are none.
        is_link: Whether it is a link itself.
    """

    path: Path
    is_file: bool
    is_link: bool


def _no_files_error(paths: list[Path], text: str, suffixes: Collection[str], ignored: list[Path]) -> CorpusError:
    first = paths[0]
    if len(paths) == 1 and not first.is_dir() and not first.is_file():
        return CorpusError(f"'{safe_name(text)}' is not a regular file: give a file with text.")
    types = supported_types(suffixes, ignored[0] if ignored else first)
    if first.is_dir():
        return CorpusError(f"The folder '{safe_name(text)}' holds no file of a supported type: {types}")
    return CorpusError(f"'{safe_name(text)}' has an unsupported file type; supported: {types}")


def _without_links(files: Iterable[_Member]) -> Iterator[str]:
    """Iterate over the paths of files without links; a folder is resolved once, which asks about every one above it."""
    resolved: dict[str, str] = {}
    for file in files:
        if file.is_link:
            yield str(file.path.resolve())
            continue
        folder, name = os.path.split(file.path)
        if folder not in resolved:
            # With a separator at the end, of the root folder one too.
            resolved[folder] = str(Path(folder).resolve() / "_").removesuffix("_")
        yield resolved[folder] + name


def _walk(folder: Path) -> list[_Member]:
    """Return the members of `folder` and those below, sorted, but hidden ones; links are followed, each folder once."""
    members: list[_Member] = []
    entered: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        parent = waiting.pop()
        folders: list[Path] = []
        try:
            stat = parent.stat()
            if (stat.st_dev, stat.st_ino) in entered:
                continue
            entered.add((stat.st_dev, stat.st_ino))
            with os.scandir(parent) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = Path(entry.path)
                    if _ask(entry.is_dir):
                        folders.append(path)
                    else:
                        members.append(_Member(path, _ask(entry.is_file), entry.is_symlink()))
        except OSError as error:
            raise CorpusError(f"Cannot read the folder '{safe_name(parent)}': {error.strerror}.") from error
        waiting += sorted(folders, reverse=True)
    return sorted(members, key=_path_order)


def _path_order(member: _Member) -> str:
    """Return a text that sorts as paths do, folder by folder; comparing the paths themselves is slow."""
    return str(member.path).replace(os.sep, "\0")


def _ask(question: Callable[[], bool]) -> bool:
    """Ask an entry or a path what it is; a link that leads nowhere, in a circle or out of reach is nothing."""
    try:
        return question()
    except OSError:
        return False
