"""The local files that a path, a folder or a glob pattern names, each once.

Sources may name millions of files, so types come from the entries of a folder where possible, without a system call for
each file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files import file_readers
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.saved_datasets import is_saved, saved_files
from limbeck.corpus.messages import safe_name
from limbeck.errors import CorpusError

_TASK_FILES = (".yaml", ".yml")
"""Suffixes of task files, which name labelled rows."""


def match_pattern(pattern: Path) -> list[Path]:
    """Return the paths that match a glob pattern, sorted; `**` does not follow links, so it always ends.

    Raises:
        CorpusError: if no path matches, or the pattern is invalid.
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
        files: The files of supported types, each once.
        places: For each file its path with links resolved; for a remote file its address.
        ignored: Paths of other types, in the same folders.
    """

    files: Sequence[FilePath]
    places: Sequence[str]
    ignored: Sequence[FilePath]


def list_files(paths: list[Path], text: str, suffixes: Collection[str]) -> ListedFiles:
    """List the files of supported types at some paths, and in folders at these paths and below them.

    Args:
        paths: One path or more.
        text: The string of the user that named them, for messages.
        suffixes: Suffixes of the supported types.

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

    # A file may be named more than once, by links or by a pattern that matches a folder and its files. It is listed
    # where it is named last, under the path that names it first. A key that is removed and set again comes last.
    path_of_place: dict[str, Path] = {}
    for place, file in zip(_without_links(files), files, strict=True):
        first_path = path_of_place.pop(place, file.path)
        path_of_place[place] = first_path
    return ListedFiles(list(path_of_place.values()), list(path_of_place), ignored)


def supported_types(suffixes: Collection[str], path: FilePath = "") -> str:
    """Return the end of an error about a file of an unsupported type: the supported suffixes.

    Args:
        suffixes: The supported suffixes.
        path: The file. If it is a table or a task file, the text also says how such a file is read.
    """
    types = f"{', '.join(sorted(suffixes))}, each also with .gz, .xz or .zst."
    suffix = suffix_of(path)
    is_table = suffix in file_readers.readable_suffixes("rows") and suffix not in suffixes
    if is_table:
        types += (
            " Tables are read as labelled rows: give corpus.task. To read the text of a .csv or .tsv file, name it."
        )
    if suffix in _TASK_FILES:
        types += (
            " A task file names labelled rows, for methods that learn from rows. For a method that learns from text, "
            "name the file with the text, such as a .txt, .csv or .tsv file."
        )
    return types


class _Member(NamedTuple):
    """A path that is not a folder.

    Args:
        path: The path as it was found.
        is_file: Whether it leads to a regular file, and not to a pipe, to a device or nowhere.
        is_link: Whether the path itself is a symbolic link.
    """

    path: Path
    is_file: bool
    is_link: bool


def _is_visible(path: Path, pattern: Path) -> bool:
    """Whether every hidden file or folder (`.git`) in a path is one that the pattern names."""
    return all(not part.startswith(".") or part in pattern.parts for part in path.parts)


def _no_files_error(paths: list[Path], text: str, suffixes: Collection[str], ignored: list[Path]) -> CorpusError:
    """Return the error for paths without a file of a supported type."""
    first = paths[0]
    if len(paths) == 1 and not first.is_dir() and not first.is_file():
        return CorpusError(f"'{safe_name(text)}' is not a regular file: give a file with text.")
    types = supported_types(suffixes, ignored[0] if ignored else first)
    if first.is_dir():
        return CorpusError(f"The folder '{safe_name(text)}' holds no file of a supported type: {types}")
    return CorpusError(f"'{safe_name(text)}' has an unsupported file type; supported: {types}")


def _without_links(files: Iterable[_Member]) -> Iterator[str]:
    """Iterate over the paths of files with links resolved.

    A folder is resolved once for all of its files, since that takes a system call for every folder above it.
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
    """Return all paths in a folder and below it that are not folders, sorted.

    Hidden files and folders are left out. Links to folders are followed, but each folder is entered only once, so that
    a link to a folder above does not go round in circles.
    """
    members: list[_Member] = []
    entered: set[tuple[int, int]] = set()  # The device and the inode of each folder.
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
            # Of a saved data set only the files of its rows are text, and not the notes beside them.
            if is_saved(parent):
                members += [_Member(file, is_file=True, is_link=file.is_symlink()) for file in saved_files(parent)]
                continue
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
    """Return the answer of a method such as `is_file`; False for a link that cannot be followed."""
    try:
        return question()
    except OSError:
        return False
