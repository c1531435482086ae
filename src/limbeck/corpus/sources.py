"""Source strings to sources: what a recipe or a command line names becomes something that gives documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from limbeck.corpus import hub
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.document import Document
from limbeck.corpus.finding import INSTALLED_DOCS, file_states, find_files
from limbeck.corpus.installed_docs import InstalledDocs
from limbeck.corpus.opening import UNKNOWN_SIZE, FilePath, file_size, is_compressed
from limbeck.corpus.place import Place
from limbeck.corpus.readers import READERS, kind_of, read_file
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text_size import text_size

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
        return hub.HubDataset(text.removeprefix(hub.PREFIX), text_column)
    return FileSource(found.files, text_column, found.ignored)
