"""`HubDataset`: a data set of the Hugging Face Hub as a source, streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.corpus import messages
from limbeck.corpus.files import file_readers, parquet_files
from limbeck.corpus.files.addresses import GLOB_CHARACTERS, one_line_errors
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.progress import StepProgress, count_items
from limbeck.corpus.source_report import NAME_TEXT_COLUMN, SourceReport
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import Cursor, FoundText
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import datasets


# The name of a data set: owner/name:configuration@split#revision, where the last three are optional.
HUB_NAME = re.compile(
    r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?::(?P<config>[\w.+-]+))?(?:@(?P<split>[^#\s]+))?(?:#(?P<revision>\S+))?"
)

HUB_PREFIX = "hub:"


class HubDataset:
    """A data set of the Hugging Face Hub, streamed: nothing is kept on disk.

    Args:
        name: `owner/name[:config][@split][#revision]`. The default split is `train`. Without a revision the newest
            version is read when the cache is built.
        text_column: The column of the text; empty for labelled rows.

    Raises:
        CorpusError: if the name does not have this form.
    """

    def __init__(self, name: str, text_column: str) -> None:
        parts = HUB_NAME.fullmatch(name)
        if parts is None:
            raise CorpusError(
                f"'{name}' is not the name of a Hub data set: write owner/name, or "
                "owner/name:config@split#revision, where the last three are optional."
            )
        self.name: str = parts["name"]
        self.config: str | None = parts["config"]
        self.split: str = parts["split"] or "train"
        self.revision: str | None = parts["revision"]
        self._text_column = text_column
        self._rows: datasets.IterableDataset | None = None  # Opened when it is needed, since that asks the Hub.

    def fingerprint(self) -> Any:
        """Return the values that decide the text."""
        return ["hub", self.name, self.config, self.split, self.revision, self._text_column]

    def shards(self) -> int:
        """Return the number of files or other parts that the data set is stored in."""
        return int(self._open().num_shards)

    def size(self) -> None:
        """Return `None`: the size of the text is not known before it is read."""

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard; see `ShardedSource`.

        Args:
            shard: Number of the shard.
            cursor: Position at which reading begins. It is moved behind every document before that is given.
            report: Receives the rows without text.

        Raises:
            CorpusError: if the data set cannot be reached, or has no such column.
        """
        rows = self._open()
        rows_of_shard = rows.shard(num_shards=rows.num_shards, index=shard)
        # A position in a data set of the Hub is a state of its rows.
        if cursor.position:
            rows_of_shard.load_state_dict(cursor.position)
        shown_shard = self.name if rows.num_shards == 1 else f"{self.name}:{shard}"
        texts = self._texts(rows_of_shard, shown_shard, cursor.line, report)
        for text in documents.texts_behind(cursor, texts, report):
            yield from documents.split_documents(text, f"{shown_shard}:{text.line}", cursor, report)

    def _texts(
        self, rows: datasets.IterableDataset, shown_shard: str, rows_before: int, report: SourceReport
    ) -> Iterator[FoundText]:
        """Iterate over the texts of a shard; a row without text is left out and reported.

        Args:
            rows: The rows that are left of the shard.
            shown_shard: Its name in messages.
            rows_before: Number of the shard's rows in front of these.
            report: Receives the rows without text.

        Raises:
            CorpusError: if a row has no column of that name.
        """
        column = self._text_column
        for number, row in enumerate(self._read_rows(rows), start=rows_before + 1):
            if column not in row:
                raise CorpusError(
                    f"The data set '{self.name}' has no column '{column}'; it has {messages.list_columns(row)}. "
                    f"{NAME_TEXT_COLUMN}."
                )
            value = documents.text_value(row[column], f"{shown_shard}:{number}", column, report)
            if value is not None:
                position_behind_row = rows.state_dict()
                yield FoundText(value, position=position_behind_row, line=number)

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards, counted for `progress`; see `read`."""
        if cursor is None:
            cursor = Cursor()
        yield from count_items(self._documents(report, cursor), progress, "documents")

    def rows(
        self, report: SourceReport, progress: StepProgress | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows, counted for `progress`.

        Raises:
            CorpusError: if the data set cannot be reached.
        """
        rows = self._open()
        names = parquet_files.class_names(rows.features)
        counted_rows = count_items(self._read_rows(rows), progress, "rows")
        for number, row in enumerate(counted_rows, start=1):
            yield PlacedRow(f"{self.name}:{number}", row, names)

    def _documents(self, report: SourceReport, cursor: Cursor) -> Iterator[Document]:
        shards = self.shards()
        while cursor.shard < shards:
            yield from self.read(cursor.shard, cursor, report)
            cursor.move(cursor.shard + 1)

    def _open(self) -> datasets.IterableDataset:
        """Open the data set once, as a stream: its rows are downloaded as they are read."""
        import datasets

        with one_line_errors(f"Cannot read the Hub data set '{self.name}'"):
            if self._rows is None:
                self._rows = datasets.load_dataset(
                    self.name, self.config, split=self.split, revision=self.revision, streaming=True
                )
            return self._rows

    def _read_rows(self, rows: datasets.IterableDataset) -> Iterator[dict[str, Any]]:
        """Iterate over rows; an error of the Hub's client becomes a `CorpusError` of one line."""
        with one_line_errors(f"Cannot read the Hub data set '{self.name}'"):
            yield from rows


def names_hub_dataset(text: str) -> bool:
    """Whether a string names a data set of the Hub: it has the prefix, or is `owner/name` and not a path."""
    if text.startswith(HUB_PREFIX):
        return True
    is_owner_and_name = HUB_NAME.fullmatch(text) is not None
    if not is_owner_and_name or GLOB_CHARACTERS.intersection(text) or file_readers.names_file(text):
        return False
    # A string whose folder exists is more likely a misspelt path.
    path = Path(text)
    try:
        return not path.exists() and not path.parent.is_dir()
    except OSError:  # A name too long for the system.
        return False
