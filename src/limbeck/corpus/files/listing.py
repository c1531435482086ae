"""The files of this machine that a path, a folder or a pattern names, each once.

Entries of a folder say what they are, so that files need not be asked one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    visible = [path for path in matches if _is_visible(path, pattern)]
    if not visible:
        raise CorpusError(f"No file matches '{safe_name(pattern)}': check the pattern, and the folder it starts from.")
    return visible


class ListedFiles(NamedTuple):
    """Files that a string names.

    Args:
        files: Those of supported types, each once.
        places: Their paths without links; of remote ones the addresses.
        ignored: Everything else that was there.
    """

    files: Sequence[FilePath]
    places: Sequence[str]
    ignored: Sequence[FilePath]


def list_files(paths: list[Path], text: str, suffixes: Collection[str]) -> ListedFiles:
    """List the files at some paths, and in folders there and below.

    Args:
        paths: At least one.
        text: The string that named them, for messages.
        suffixes: Of supported types.

    Raises:
        CorpusError: if there is no file of a supported type, or a folder cannot be read.
    """
    files: list[_Member] = []
    ignored: list[Path] = []
    for path in paths:
        if path.is_dir():
            members = _walk(path)
        else:
            members = [_Member(path, is_file=_ask(path.is_file), is_link=path.is_symlink())]
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
    places = list(reversed(path_of_place))
    return ListedFiles([path_of_place[place] for place in places], places, ignored)


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


def _is_visible(path: Path, pattern: Path) -> bool:
    """Whether no file or folder of a path is hidden, but those that the pattern names."""
    return all(not part.startswith(".") or part in pattern.parts for part in path.parts)


def _no_files_error(paths: list[Path], text: str, suffixes: Collection[str], ignored: list[Path]) -> CorpusError:
    first = paths[0]
    if len(paths) == 1 and not first.is_dir() and not first.is_file():
        return CorpusError(f"'{safe_name(text)}' is not a regular file: give a file with text.")
    types = supported_types(suffixes, ignored[0] if ignored else first)
    if first.is_dir():
        return CorpusError(f"The folder '{safe_name(text)}' holds no file of a supported type: {types}")
    return CorpusError(f"'{safe_name(text)}' has an unsupported file type; supported: {types}")


def _without_links(files: Iterable[_Member]) -> Iterator[str]:
    """Iterate over the paths of files without links.

    A folder is resolved once for all of its files, since that asks about every folder above it.
    """
    resolved_folders: dict[str, Path] = {}
    for file in files:
        if file.is_link:
            yield str(file.path.resolve())
            continue
        folder, name = os.path.split(file.path)
        if folder not in resolved_folders:
            resolved_folders[folder] = Path(folder).resolve()
        yield os.path.join(resolved_folders[folder], name)  # noqa: PTH118 - faster than a path of each file


def _walk(folder: Path) -> list[_Member]:
    """Return the members of a folder and of those below it, sorted.

    Hidden ones are left out. Links are followed, and each folder is entered once.
    """
    members: list[_Member] = []
    entered: set[tuple[int, int]] = set()  # By device and number on it.
    waiting = [folder]
    while waiting:
        parent = waiting.pop()
        folders: list[Path] = []
        try:
            stat = parent.stat()
            identity = (stat.st_dev, stat.st_ino)
            if identity in entered:
                continue
            entered.add(identity)
            with os.scandir(parent) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = Path(entry.path)
                    if _ask(entry.is_dir):
                        folders.append(path)
                    else:
                        members.append(_Member(path, is_file=_ask(entry.is_file), is_link=entry.is_symlink()))
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
