"""Source strings to sources: what a recipe or a command line names becomes something that gives documents."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import datasets
import fsspec  # type: ignore[import-untyped]

from limbeck.corpus.documents import Cursor, Document, Place, SourceReport, one_line, place_documents, text_value
from limbeck.corpus.installed_docs import InstalledDocs
from limbeck.corpus.opening import UNKNOWN_SIZE, FilePath, file_size, is_compressed, is_remote
from limbeck.corpus.readers import (
    READERS,
    ROW_READERS,
    PlacedRow,
    class_names,
    kind_of,
    list_columns,
    read_file,
    read_rows,
    text_size,
)
from limbeck.errors import CorpusError

# The Hub source: a data set of the Hugging Face Hub, streamed document by document.


_NAME = re.compile(
    r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?::(?P<config>[\w.+-]+))?(?:@(?P<split>[^#\s]+))?(?:#(?P<revision>\S+))?"
)
PREFIX = "hub:"


class HubDataset:
    """A text column of a Hub data set.

    Args:
        name: `owner/name[:config][@split][#revision]`; the split is `train` unless said otherwise. Without a
            revision the data set is taken as it is on the day the cache is made.
        text_column: The column that holds the text.

    Raises:
        CorpusError: if the name is not of that form.
    """

    def __init__(self, name: str, text_column: str) -> None:
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise CorpusError(
                f"'{name}' is not the name of a Hub data set: write owner/name, or "
                f"owner/name:config@split#revision with any of the last three."
            )
        self.name: str = parts["name"]
        self.config: str | None = parts["config"]
        self.split: str = parts["split"] or "train"
        self.revision: str | None = parts["revision"]
        self._text_column = text_column
        self._rows: datasets.IterableDataset | None = None  # Opening asks the Hub what files there are.

    def fingerprint(self) -> Any:
        """Return what decides the text."""
        return ["hub", self.name, self.config, self.split, self.revision, self._text_column]

    def shards(self) -> int:
        """Return the number of files or other parts that the data set is stored in."""
        return int(self._open().num_shards)

    def size(self) -> None:
        """Return `None`: the Hub does not tell how much text there is."""

    def read(self, shard: int, place: Place, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard, streaming: nothing is kept on disk.

        Args:
            shard: Its number.
            place: Where to begin; moved behind every document before it is given.
            report: Receives the rows without text.

        Raises:
            CorpusError: if the data set cannot be reached, or has no such column.
        """
        rows = self._open()
        part = rows.shard(num_shards=rows.num_shards, index=shard)
        if place.offset:
            part.load_state_dict(place.offset)
        column, number = self._text_column, place.line
        report.muted = place.within > 0  # Until the text that was begun is found again.
        for row in self._reached(part):
            number += 1
            where = f"{self.name}:{number}" if rows.num_shards == 1 else f"{self.name}:{shard}:{number}"
            if column not in row:
                raise CorpusError(
                    f"The data set '{self.name}' has no column '{column}': set text_column to one of "
                    f"{list_columns(row)}."
                )
            text = text_value(row[column], where, column, report)
            if text is not None:
                yield from place_documents(text, where, place, Place(part.state_dict(), number), report)

    def documents(
        self,
        report: SourceReport,
        progress: Callable[[int, int | None, str], None] | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards, streaming: nothing is kept on disk.

        Args:
            report: Receives the rows without text.
            progress: Called with the number of documents read, `None` and what they are.
            cursor: Where to begin.

        Raises:
            CorpusError: if the data set cannot be reached, or has no such column.
        """
        cursor = cursor or Cursor()
        read = 0
        if progress is not None:
            progress(0, None, "documents")
        shards = self.shards()
        while cursor.shard < shards:
            for document in self.read(cursor.shard, cursor.place, report):
                read += 1
                if progress is not None and read % 1000 == 0:
                    progress(read, None, "documents")
                yield document
            cursor.next_shard()

    def rows(self, progress: Callable[[int, int | None, str], None] | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows, streaming: nothing is kept on disk.

        Args:
            progress: Called with the number of rows read, `None` and what they are.

        Raises:
            CorpusError: if the data set cannot be reached.
        """
        if progress is not None:
            progress(0, None, "rows")
        rows = self._open()
        names = class_names(rows.features)
        for number, row in enumerate(self._reached(rows), start=1):
            if progress is not None and number % 1000 == 0:
                progress(number, None, "rows")
            yield PlacedRow(f"{self.name}:{number}", row, names)

    def _open(self) -> datasets.IterableDataset:
        try:
            if self._rows is None:
                self._rows = datasets.load_dataset(
                    self.name, self.config, split=self.split, revision=self.revision, streaming=True
                )
            return self._rows
        except Exception as error:  # The Hub's client raises of many kinds: network, names, formats.
            raise self._unreachable(error) from error

    def _reached(self, rows: datasets.IterableDataset) -> Iterator[dict[str, Any]]:
        """Iterate over rows; what the client raises on the way becomes one line."""
        try:
            yield from rows
        except Exception as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> CorpusError:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return CorpusError(f"Cannot read the Hub data set '{self.name}': {one_line(reason)}")


def is_hub_name(text: str) -> bool:
    """Whether `text` has the form of a Hub data set name."""
    return _NAME.fullmatch(text) is not None


# Finding files: what a path, a folder, a glob or an address names.


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
    if text.startswith(PREFIX):
        return None
    if is_remote(text):
        return _find_remote(text, kinds)
    path = Path(text).expanduser()
    if _exists(path):
        return _sort_out([path], text, kinds)
    if _GLOB_CHARACTERS.intersection(text):
        return _sort_out(_match(path), text, kinds)
    if is_hub_name(text) and kind_of(path, kinds) is None and not path.parent.is_dir():
        return None
    on_hub = f" For the Hub's data set write '{PREFIX}{one_line(text)}'." if is_hub_name(text) else ""
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


_FILES_LOOKED_AT = 16
_TOLD_EVERY = 1000

Step: TypeAlias = Callable[[int, int | None, str], None]
"""Called with what is done, the total or `None` if it is not known, and what is counted."""


class Source(Protocol):
    """Something that gives documents, in shards."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the documents may have changed."""

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards, from `cursor` on, which is moved behind each before it is given."""


class ShardedSource(Source, Protocol):
    """A source that can be read in parts, as streams need it."""

    def shards(self) -> int:
        """Return the number of parts."""

    def read(self, shard: int, place: Place, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard, from `place` on, which is moved behind each before it is given."""

    def size(self) -> int | None:
        """Return about how many bytes of text there are, or `None` if that is not known."""


class FileSource:
    """Documents of files, in the order given; every file is a shard.

    Args:
        files: Files of known kinds.
        text_column: Column of the text, for kinds that have columns.
        ignored: Files that were found beside them and are of no known kind.
    """

    def __init__(self, files: Sequence[FilePath], text_column: str, ignored: Sequence[FilePath]) -> None:
        self.files = list(files)
        self._text_column = text_column
        self._ignored = ignored

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        return ["files", self._text_column, file_states(self.files)]

    def shards(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def read(self, shard: int, place: Place, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one file; see `read_file`."""
        return read_file(self.files[shard], self._text_column, report, place)

    def size(self) -> int:
        """Return about how many bytes of text there are, judged by a few of the files; see `text_size`."""
        looked_at = self.files[:: -(-len(self.files) // _FILES_LOOKED_AT)]
        stored = sum(map(file_size, looked_at))
        text = sum(text_size(file, self._text_column) for file in looked_at)
        return sum(map(file_size, self.files)) * text // max(stored, 1)

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the bytes that were read, as they are stored, and those of all files.
            cursor: Where to begin.
        """
        cursor = cursor or Cursor()
        if cursor.at_start:
            for path in self._ignored:
                report.note("file of another kind, passed over", str(path))
        tell = _say_nothing if progress is None else self._position(progress)
        tell(cursor)
        while cursor.shard < len(self.files):
            for number, document in enumerate(self.read(cursor.shard, cursor.place, report), start=1):
                if number % _TOLD_EVERY == 0:
                    tell(cursor)
                yield document
            cursor.next_shard()
            tell(cursor)

    def _position(self, progress: Step) -> Callable[[Cursor], None]:
        """Return what tells how many of the stored bytes lie before a cursor."""
        ends = [0, *accumulate(map(file_size, self.files))]
        total = ends[-1] if ends[-1] < UNKNOWN_SIZE else None

        def tell(cursor: Cursor) -> None:
            inside = 0
            if cursor.shard < len(self.files) and not _is_packed(self.files[cursor.shard]):
                inside = min(int(cursor.place.offset), ends[cursor.shard + 1] - ends[cursor.shard])
            progress(ends[cursor.shard] + inside, total, "bytes")

        return tell


def _is_packed(path: FilePath) -> bool:
    """Whether a place in a file is not counted in its stored bytes."""
    return is_compressed(path) or kind_of(path) == ".parquet"


def _say_nothing(cursor: Cursor) -> None:
    """Be told, and keep it."""


def open_source(text: str, text_column: str = "text", workers: int | None = None) -> Source:
    """Find out what a source string names.

    Args:
        text: A file, folder or glob pattern; an address such as `https://host/file.jsonl` or `s3://bucket/*.parquet`;
            `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name` where there is no such path;
            `installed-docs`, or `installed-docs:FOLDER` for the Python files of one folder.
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
        return HubDataset(text.removeprefix(PREFIX), text_column)
    return FileSource(found.files, text_column, found.ignored)


# Source strings to sources of labelled rows.


LabelledStep = Callable[[int, int | None, str], None]


class RowSource(Protocol):
    """Something that gives rows."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""

    def rows(self, report: SourceReport, progress: LabelledStep | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows; `progress` is told what is done, the total if it is known, and what is counted."""


class RowFiles:
    """Rows of files, in the order given.

    Args:
        found: Files of known kinds, and those that were found beside them.
    """

    def __init__(self, found: FoundFiles) -> None:
        self._found = found

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        return ["files", file_states(self._found.files)]

    def rows(self, report: SourceReport, progress: LabelledStep | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read, the number of all files and what they are.
        """
        for path in self._found.ignored:
            report.note("file of another kind, passed over", str(path))
        for done, path in enumerate(self._found.files):
            if progress is not None:
                progress(done, len(self._found.files), "files")
            yield from read_rows(path, report)
        if progress is not None:
            progress(len(self._found.files), len(self._found.files), "files")


class RowsOfHub:
    """Rows of a Hub data set.

    Args:
        name: `owner/name[:config][@split][#revision]`; the split is `train` unless said otherwise.

    Raises:
        CorpusError: if the name is not of that form.
    """

    def __init__(self, name: str) -> None:
        self._data = HubDataset(name, text_column="")

    def fingerprint(self) -> Any:
        """Return what decides the rows."""
        return self._data.fingerprint()

    def rows(self, report: SourceReport, progress: LabelledStep | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows, streaming; `progress` is called with the number of rows read."""
        return self._data.rows(progress)


def open_rows(text: str) -> RowSource:
    """Find out what a source string names.

    Args:
        text: A file, folder or glob pattern; `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name`
            where there is no such path. A `.txt` file is read as TSV where it is named, and passed over in a folder.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if text.partition(":")[0] == INSTALLED_DOCS:
        raise CorpusError(f"The source '{text}' has no labels: leave out the task, or give labelled rows.")
    kinds = set(ROW_READERS)
    if Path(text).expanduser().is_dir():
        kinds.remove(".txt")
    found = find_files(text, kinds)
    return RowsOfHub(text.removeprefix(PREFIX)) if found is None else RowFiles(found)
