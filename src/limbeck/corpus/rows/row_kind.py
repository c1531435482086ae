"""`RowKind`: what the corpus asks of the kind of a task; the kinds themselves are in `limbeck.kinds`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import EncodedRows

RowReader: TypeAlias = Callable[[PlacedRow, SourceReport], Sequence[LabelledRow]]
"""Reads the labelled rows of one row of a source; the report receives rows that are left out."""


class RowEncoder(Protocol):
    """Turns labelled rows into tokens."""

    def encode(self, rows: Sequence[LabelledRow], report: SourceReport) -> EncodedRows:
        """Return the tokens and labels of rows; a row may become several windows, or none.

        Args:
            rows: With their labels.
            report: Receives rows that were cut or left out.
        """


class RowKind(Protocol):
    """A kind of task, as far as a corpus needs it."""

    @property
    def label_type(self) -> pa.DataType:
        """Type of the stored labels, of rows and of tokens."""

    @property
    def rows_of_words(self) -> bool:
        """Whether tables hold a word a line."""

    @property
    def has_windows(self) -> bool:
        """Whether a long text becomes several overlapping windows."""

    @property
    def has_queries(self) -> bool:
        """Whether rows are documents of queries, which are read together."""

    def reader(self, settings: LabelledSettings) -> RowReader:
        """Return the function that reads a source's rows.

        Raises:
            CorpusError: for settings that no row can meet.
        """

    def plain_text(self, text: str) -> str:
        """Return the text of a row for people to read."""

    def encoder(self, tokenizer: Any, length: int, stride: int, *, paired: bool) -> RowEncoder:
        """Return what turns rows into tokens, see `limbeck.kinds.Kind.encoder`."""
