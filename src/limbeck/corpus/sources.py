"""Source strings to sources: what a recipe or a command line names becomes something that gives documents."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from limbeck.corpus import hub
from limbeck.corpus.document import Document
from limbeck.corpus.installed_docs import InstalledDocs
from limbeck.corpus.readers import READERS, kind_of, read_file
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

INSTALLED_DOCS = "installed-docs"
_GLOB_CHARACTERS = frozenset("*?[")


class Source(Protocol):
    """Something that gives documents."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the documents may have changed."""

    def documents(
        self, report: SourceReport, progress: Callable[[int, int | None], None] | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents; `progress` is told what is done, and the total if it is known."""


class FileSource:
    """Documents of files, in the order given.

    Args:
        files: Files of known kinds.
        text_column: Column of the text, for kinds that have columns.
        ignored: Files that were found beside them and are of no known kind.
    """

    def __init__(self, files: list[Path], text_column: str, ignored: list[Path]) -> None:
        self.files = files
        self._text_column = text_column
        self._ignored = ignored

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        return ["files", self._text_column, file_states(self.files)]

    def documents(
        self, report: SourceReport, progress: Callable[[int, int | None], None] | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read and the number of all files.
        """
        for path in self._ignored:
            report.note("file of another kind, passed over", str(path))
        for done, path in enumerate(self.files, start=1):
            yield from read_file(path, self._text_column, report)
            if progress is not None:
                progress(done, len(self.files))


def open_source(text: str, text_column: str = "text", workers: int | None = None) -> Source:
    """Find out what a source string names.

    Args:
        text: A file, folder or glob pattern; `hub:owner/name[:config][@split][#revision]`, or a bare
            `owner/name` where there is no such path; `installed-docs`, or `installed-docs:FOLDER` for the
            Python files of one folder.
        text_column: Column of the text, for kinds that have columns.
        workers: Processes for sources that are read in parallel.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if text == INSTALLED_DOCS:
        return InstalledDocs(workers=workers)
    if text.startswith(f"{INSTALLED_DOCS}:"):
        return InstalledDocs([Path(text.partition(":")[2]).expanduser()], workers)
    found = find_files(text, READERS)
    if found is None:
        return hub.HubDataset(text.removeprefix(hub.PREFIX), text_column)
    return FileSource(found.files, text_column, found.ignored)


class FoundFiles(NamedTuple):
    """The files that a source string names.

    Args:
        files: Those of a kind that is read, each once, in order.
        ignored: Those of other kinds that were found beside them.
    """

    files: list[Path]
    ignored: list[Path]


def find_files(text: str, kinds: Collection[str]) -> FoundFiles | None:
    """Find the files of a file, folder or glob pattern; `None` if the string names a Hub data set.

    Args:
        text: The source string.
        kinds: Suffixes that are read.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if text.startswith(hub.PREFIX):
        return None
    path = Path(text).expanduser()
    if _exists(path):
        return _sort_out([path], text, kinds)
    if _GLOB_CHARACTERS.intersection(text):
        return _sort_out(_match(path), text, kinds)
    if hub.is_hub_name(text) and kind_of(path, kinds) is None and not path.parent.is_dir():
        return None
    on_hub = f" For the Hub's data set write '{hub.PREFIX}{text}'." if hub.is_hub_name(text) else ""
    raise CorpusError(f"There is no file, folder or data set '{text}'.{_nearby(path)}{on_hub}")


def file_states(files: list[Path]) -> list[list[Any]]:
    """Return path, size and time of change of every file: plain values for a fingerprint."""
    try:
        stats = [(path.resolve(), path.stat()) for path in files]
    except OSError as error:
        raise CorpusError(f"Cannot read '{error.filename}': {error.strerror}.") from error
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


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
        raise CorpusError(f"Cannot read the pattern '{pattern}': {error}.") from error
    named = set(pattern.parts)  # Hidden files and folders count only where they are named.
    matches = [path for path in matches if not any(part[0] == "." and part not in named for part in path.parts)]
    if not matches:
        raise CorpusError(f"No file matches '{pattern}': check the pattern, and the folder it starts from.")
    return matches


def _sort_out(paths: list[Path], text: str, kinds: Collection[str]) -> FoundFiles:
    files: list[Path] = []
    ignored: list[Path] = []
    for path in paths:
        found = _walk(path) if path.is_dir() else [path]
        for file in found:
            (ignored if kind_of(file, kinds) is None else files).append(file)
    if not files:
        what = f"The folder '{text}' holds no file" if paths[0].is_dir() else f"'{text}' is not"
        raise CorpusError(f"{what} of a kind that is read: {', '.join(sorted(kinds))}, each also with .gz or .zst.")
    # Links, and patterns that match a folder and its files, name a file more than once.
    unique = {path.resolve(): path for path in reversed(files)}
    return FoundFiles(list(unique.values())[::-1], ignored)


def _walk(folder: Path) -> list[Path]:
    """Return the files below `folder`, sorted, without hidden ones; links are followed, each folder once."""
    files = []
    entered: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise CorpusError(f"Cannot read the folder '{error.filename}': {error.strerror}.") from error

    for parent, names, members in os.walk(folder, followlinks=True, onerror=refuse):
        stat = Path(parent).stat()
        if (stat.st_dev, stat.st_ino) in entered:
            names.clear()
            continue
        entered.add((stat.st_dev, stat.st_ino))
        names[:] = sorted(name for name in names if not name.startswith("."))
        paths = (Path(parent, name) for name in members if not name.startswith("."))
        files += [path for path in paths if path.is_file()]
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
    return f" Did you mean '{path.parent / near[0]}'?" if near else ""
