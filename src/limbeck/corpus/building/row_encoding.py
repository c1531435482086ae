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
from limbeck.corpus.tokens.encoded_rows import OF_TEACHER, QUERY, TOKEN_TYPES
from limbeck.corpus.tokens.packing import PackingCounts
from limbeck.corpus.tokens.reading import TEACHER_IDS
from limbeck.errors import CorpusError

_ROLE_OF_SPLIT = {"train": TRAINED, "held_out": HELD_OUT}
_TRAINING = "training"
"""The name of the rows to train on in the report."""


@dataclass(frozen=True)
class RowEncoding:
    """Turns labelled rows into token rows; it can be sent to another process, as `BlockEncoding` can.

    Args:
        encoder: Turns the texts and labels of rows into the student's tokens.
        schema: Columns of the token rows.
        teacher_encoder: Turns them into the teacher's tokens, where it has another tokenizer; None where both read the
            same tokens.
        roles: Stored file → role of each of its rows: trained on, held out, or left out.
        length: Most tokens of a row as the teacher reads it. A row of so many may have been cut.
        whole_texts: Whether the key of a row is that of its whole texts, even where they may have been cut.
        held_out_name: The name of the held-out rows in the report, such as `development`.
    """

    encoder: RowEncoder
    schema: pa.Schema
    teacher_encoder: RowEncoder | None = None
    roles: Mapping[Path, Roles] = field(default_factory=dict)
    length: int = 0
    whole_texts: bool = False
    held_out_name: str = "held out"

    def batches(self, path: Path, counts: dict[str, PackingCounts], report: SourceReport) -> Iterator[SplitBatch]:
        """Iterate over the record batches of one stored file.

        Args:
            path: The Arrow file of labelled rows.
            counts: Receives the counts of each split.
            report: Receives everything that is cut or left out, of rows to train on and of held-out rows apart.
        """
        name_of_split = {"train": _TRAINING, "held_out": self.held_out_name}
        rows_before = 0
        for batch in read_rows(path):
            roles = self.roles[path][rows_before : rows_before + len(batch.rows)]
            rows_before += len(batch.rows)
            for split, role in _ROLE_OF_SPLIT.items():
                numbers = np.flatnonzero(roles == role)
                rows_of_split = RowBatch([batch.rows[number] for number in numbers], batch.keys[numbers])
                report_of_split = SourceReport()
                records = self._encode(rows_of_split, report_of_split)
                report.merge(report_of_split.of_part(name_of_split[split]))
                if len(records):
                    counts[split].blocks += len(records)
                    counts[split].tokens += int(records.column("length").to_numpy().sum())
                    yield SplitBatch(split, records)

    def _encode(self, batch: RowBatch, report: SourceReport) -> pa.RecordBatch:
        """Return the token rows of some rows; none if there are no rows, or the encoder leaves all out."""
        if not batch.rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        encoded = self.encoder.encode(batch.rows, report)
        # The columns in the order of the schema, which has the same conditions.
        lengths = [len(ids) for ids in encoded.input_ids]
        columns: list[Any] = [encoded.input_ids, lengths]
        if LABELS in self.schema.names:
            columns.append(encoded.labels)
        if encoded.token_type_ids is not None:
            columns.append(encoded.token_type_ids)
        if QUERY in self.schema.names:
            # A query is numbered by the 64-bit key of its text. Arrow's column is signed.
            columns.append(batch.keys.view(np.int64))
        teacher_ids = encoded.input_ids
        if self.teacher_encoder is not None:
            # The report tells which rows the student reads in part or not at all, and nothing of the teacher's reading.
            unused_report = SourceReport()
            encoded_for_teacher = self.teacher_encoder.encode(batch.rows, unused_report)
            teacher_ids = encoded_for_teacher.input_ids
            columns.append(teacher_ids)
            if encoded_for_teacher.token_type_ids is not None:
                columns.append(encoded_for_teacher.token_type_ids)
        if TEXT_KEY in self.schema.names:
            columns.append(self._text_keys(batch, teacher_ids))
        return pa.record_batch(columns, schema=self.schema)

    def _text_keys(self, batch: RowBatch, input_ids: Sequence[Sequence[int]]) -> list[int]:
        """Return the key of each row's texts, see `text_key`."""
        keys = []
        for row, ids in zip(batch.rows, input_ids, strict=True):
            may_be_cut = len(ids) >= self.length and not self.whole_texts
            keys.append(text_key(row.text, pair=row.pair, cut_to=ids if may_be_cut else None))
        return keys


def row_encoding(
    settings: LabelledSettings, tokenizer: Any, kind: RowKind, teacher_tokenizer: Any = None
) -> RowEncoding:
    """Return how rows become token rows under these settings; the columns depend on the kind and on the tokenizers.

    Args:
        settings: The settings.
        tokenizer: The student's tokenizer.
        kind: The kind of the task.
        teacher_tokenizer: The teacher's; None where it is the student's.

    Raises:
        CorpusError: if a tokenizer or the length does not suit the kind.
    """
    are_pairs = kind.has_queries or settings.pair_column is not None
    student_length = settings.length
    if teacher_tokenizer is not None and settings.student_length is not None:
        student_length = settings.student_length
    encoder = kind.encoder(tokenizer, student_length, settings.stride, paired=are_pairs)
    columns = [*BLOCK_COLUMNS]
    # The labels of words also mark the tokens that are scored, so that rows of words have them in any case.
    if settings.labelled or kind.rows_of_words:
        columns.append(pa.field(LABELS, kind.label_type))
    if TOKEN_TYPES in tokenizer.model_input_names:
        columns.append(SEGMENTS)
    if kind.has_queries:
        columns.append(pa.field(QUERY, pa.int64()))
    teacher_encoder = None
    if teacher_tokenizer is not None:
        teacher_encoder = kind.encoder(teacher_tokenizer, settings.length, settings.stride, paired=are_pairs)
        columns.append(pa.field(TEACHER_IDS, pa.list_(pa.int32())))
        if TOKEN_TYPES in teacher_tokenizer.model_input_names:
            columns.append(pa.field(f"{OF_TEACHER}{TOKEN_TYPES}", SEGMENTS.type))
    if settings.text_keys:
        if kind.has_windows or KINDS[settings.task].of_words:
            raise CorpusError(
                f"Stored outputs belong to whole rows, but rows of {settings.task} are cut into windows or words; "
                "let the teacher's model itself teach (teacher.model)."
            )
        columns.append(pa.field(TEXT_KEY, pa.int64()))
    return RowEncoding(
        encoder,
        pa.schema(columns),
        teacher_encoder,
        length=settings.length,
        whole_texts=settings.whole_texts,
    )
