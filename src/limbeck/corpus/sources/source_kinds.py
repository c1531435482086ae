"""`SourceKind` and its registry, and the protocols of the sources that kinds open.

`limbeck.corpus.sources.named_sources` registers limbeck's own, so import `SOURCES` from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from limbeck.core.registry import Registry
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.progress import StepProgress
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError


class Source(Protocol):
    """A source of documents, in shards."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the documents may have changed."""

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards from `cursor` on.

        The cursor is moved behind each document before the document is given.
        """


@runtime_checkable
class ShardedSource(Source, Protocol):
    """A source whose shards can be read one by one, as streams need."""

    def shards(self) -> int:
        """Return the number of shards."""

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard from `cursor` on, which is moved as in `documents`."""

    def size(self) -> int | None:
        """Return an estimate of the bytes of text, or `None` if it is not known."""


class RowSource(Protocol):
    """A source of labelled rows."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""

    def rows(
        self, report: SourceReport, progress: StepProgress | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows.

        Args:
            report: Receives everything that is skipped or repaired.
            progress: Called as reading advances.
            of_words: Read a table as sentences of tagged words, with a word on each line, instead of a row on each.
        """


@runtime_checkable
class HasSize(Protocol):
    """A source that may know how much text it has."""

    def size(self) -> int | None:
        """Return an estimate of the bytes of text, or `None` if it is not known."""


@runtime_checkable
class HasFiles(Protocol):
    """A source that is read from files."""

    def read_files(self) -> Sequence[FilePath]:
        """Return the files, local or remote."""


def files_of(source: Any) -> Sequence[FilePath]:
    """Return the files that a source is read from; none where it is no source of files."""
    return source.read_files() if isinstance(source, HasFiles) else ()


@dataclass(frozen=True)
class SourceKind:
    """A kind of source.

    Args:
        form: Form of the strings that name such a source, for messages; empty for paths.
        matches: Returns whether a string names such a source.
        open: Opens the source that a string names. Its arguments are the string, the column of the text (`None` opens
            labelled rows), and the number of processes for sources that are read in parallel.
        check: Refuses a string that names nothing, before any source is opened; `None` leaves this to `open`.
        is_labelled: Whether such a source may have labelled rows.
    """

    form: str
    matches: Callable[[str], bool]
    open: Callable[[str, str | None, int | None], Any]
    check: Callable[[str], None] | None = None
    is_labelled: bool = True


SOURCES: Registry[SourceKind] = Registry("kind of source", CorpusError)
"""Name → kind of source. The kind that was registered last is asked first. Files, which match any string, come last."""


def source_forms() -> list[str]:
    """Return the forms of the strings of all sources, for messages."""
    return [kind.form for _, kind in SOURCES.items() if kind.form]
