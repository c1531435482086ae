"""The Hub source: a data set of the Hugging Face Hub, streamed document by document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import datasets

from limbeck.corpus.cursor import Cursor
from limbeck.corpus.document import Document
from limbeck.corpus.parquet import list_columns
from limbeck.corpus.place import Place
from limbeck.corpus.placing import place_documents, text_value
from limbeck.corpus.rows import PlacedRow, class_names
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.errors import CorpusError

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
