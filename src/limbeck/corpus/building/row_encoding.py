"""`RowEncoding`: how labelled rows become token rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.core.kinds import KINDS
from limbeck.corpus.batches.batch import LABELS
from limbeck.corpus.building.splitting import HELD_OUT, TRAINED, Roles
from limbeck.corpus.building.token_columns import BLOCK_COLUMNS, SEGMENTS, SplitBatch
from limbeck.corpus.rows.row_kind import RowEncoder, RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import RowBatch, read_rows
from limbeck.corpus.text.text_keys import TEXT_KEY, text_key
from limbeck.corpus.tokens.encoded_rows import QUERY, TOKEN_TYPES
from limbeck.corpus.tokens.packing import PackingCounts
from limbeck.errors import CorpusError

_ROLE_OF_SPLIT = {"train": TRAINED, "held_out": HELD_OUT}


@dataclass(frozen=True)
class RowEncoding:
    """Turns labelled rows into token rows; it can be sent to another process, as `BlockEncoding` can.

    Args:
        encoder: Turns the texts and labels of rows into tokens.
        schema: Columns of the token rows.
        roles: Stored file → role of each of its rows: trained on, held out, or left out.
        length: Most tokens of a row. A row of so many may have been cut.
    """

    encoder: RowEncoder
    schema: pa.Schema
    roles: Mapping[Path, Roles] = field(default_factory=dict)
    length: int = 0

    def batches(self, path: Path, counts: dict[str, PackingCounts], report: SourceReport) -> Iterator[SplitBatch]:
        """Iterate over the record batches of one stored file.

        Args:
            path: The Arrow file of labelled rows.
            counts: Receives the counts of each split.
            report: Receives everything that is cut or left out.
        """
        first_row = 0
        for batch in read_rows(path):
            roles = self.roles[path][first_row : first_row + len(batch.rows)]
            first_row += len(batch.rows)
            for split, role in _ROLE_OF_SPLIT.items():
                numbers = np.flatnonzero(roles == role)
                rows_of_split = RowBatch([batch.rows[number] for number in numbers], batch.keys[numbers])
                records = self._encode(rows_of_split, report)
                if len(records):
                    counts[split].blocks += len(records)
                    counts[split].tokens += int(records.column("length").to_numpy().sum())
                    yield SplitBatch(split, records)

    def _encode(self, batch: RowBatch, report: SourceReport) -> pa.RecordBatch:
        """Return the token rows of some rows; none if there are no rows, or the encoder leaves all out."""
        if not batch.rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        encoded = self.encoder.encode(batch.rows, report)
        lengths = [len(ids) for ids in encoded.input_ids]
        columns: list[Any] = [encoded.input_ids, lengths]
        if LABELS in self.schema.names:
            columns.append(encoded.labels)
        if encoded.token_type_ids is not None:
            columns.append(encoded.token_type_ids)
        if QUERY in self.schema.names:
            # A query is numbered by the 64-bit key of its text. Arrow's column is signed.
            columns.append(batch.keys.view(np.int64))
        if TEXT_KEY in self.schema.names:
            columns.append(self._text_keys(batch, encoded.input_ids))
        return pa.record_batch(columns, schema=self.schema)

    def _text_keys(self, batch: RowBatch, input_ids: Sequence[Sequence[int]]) -> list[int]:
        """Return the key of each row's texts, see `text_key`."""
        keys = []
        for row, ids in zip(batch.rows, input_ids, strict=True):
            may_be_cut = len(ids) >= self.length
            keys.append(text_key(row.text, pair=row.pair, cut_to=ids if may_be_cut else None))
        return keys


def row_encoding(settings: LabelledSettings, tokenizer: Any, kind: RowKind) -> RowEncoding:
    """Return how rows become token rows under these settings; the columns depend on the kind and on the tokenizer.

    Raises:
        CorpusError: if the tokenizer or the length does not suit the kind.
    """
    are_pairs = kind.has_queries or settings.pair_column is not None
    encoder = kind.encoder(tokenizer, settings.length, settings.stride, paired=are_pairs)
    columns = [*BLOCK_COLUMNS]
    # The labels of words also mark the tokens that are scored, so that rows of words have them in any case.
    if settings.labelled or kind.rows_of_words:
        columns.append(pa.field(LABELS, kind.label_type))
    if TOKEN_TYPES in tokenizer.model_input_names:
        columns.append(SEGMENTS)
    if kind.has_queries:
        columns.append(pa.field(QUERY, pa.int64()))
    if settings.text_keys:
        if kind.has_windows or KINDS[settings.task].of_words:
            raise CorpusError(
                f"Rows of {settings.task} are cut into windows, so that no stored output belongs to a whole row; let "
                "the model itself teach (teacher.model)."
            )
        columns.append(pa.field(TEXT_KEY, pa.int64()))
    return RowEncoding(encoder, pa.schema(columns), length=settings.length)
