"""Files of tokens: the rows of a split as token ids, in an Arrow file that all cells and processes read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.kinds.kind import Kind
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Task

if TYPE_CHECKING:
    from datasets import Dataset

TOKEN_FORMAT = 3
"""Raise it when the same rows would give other tokens, or other files: older ones are then made anew."""
_ROWS_AT_ONCE = 500


def encode_rows(
    rows: Sequence[LabelledRow],
    task: Task,
    tokenizer: Any,
    path: Path,
    *,
    length: int,
    stride: int,
    training: bool,
) -> SourceReport:
    """Write the tokens of rows, or of the windows of questions and sentences, to an Arrow stream.

    The file has the columns `input_ids`, `length` and, if the tokenizer gives them, `token_type_ids`. A file to train
    on also has `labels`; a file to score has the columns by which its kind decodes outputs.

    Args:
        rows: The rows, at least one: all have one text, or all have two.
        task: The task, whose kind decides the columns.
        tokenizer: The tokenizer of the model; it is not changed.
        path: The path of the file.
        length: Most tokens of a row; the longer text of a pair is cut first.
        stride: Tokens that windows share.
        training: Write labels, and leave out questions whose answer has no place.

    Returns:
        The report of rows that were cut or left out.

    Raises:
        CorpusError: if no token fits between the special ones, or the tokenizer is slow where windows are needed.
    """
    kind = KINDS[task.kind]
    encoder = kind.encoder(tokenizer, length, stride, paired=rows[0].pair is not None)
    schema = _schema(kind, tokenizer, training=training)
    report = SourceReport()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            # Encoding fills the report.
            if training:
                columns: dict[str, Any] = encoder.encode(part, report)._asdict()
            else:
                columns = kind.encode_for_scoring(encoder, part, report, start)
            columns["length"] = [len(ids) for ids in columns["input_ids"]]
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            writer.write_batch(pa.record_batch(arrays, schema))
    return report


def _schema(kind: Kind, tokenizer: Any, *, training: bool) -> pa.Schema:
    """Return the columns of a file of tokens, with their types."""
    # `length` is the number of tokens, by which batches of rows of similar length are made.
    fields = [pa.field("input_ids", pa.list_(pa.int32())), pa.field("length", pa.int32())]
    if TOKEN_TYPES in tokenizer.model_input_names:
        fields.append(pa.field(TOKEN_TYPES, pa.list_(pa.int8())))
    if training:
        fields.append(pa.field("labels", kind.label_type))
    else:
        fields += [pa.field(name, arrow_type) for name, arrow_type in kind.scoring_types.items()]
    return pa.schema(fields)


def open_columns(path: Path) -> Dataset:
    """Open the columns of a file of tokens, mapped into memory."""
    from datasets import Dataset

    return Dataset.from_file(str(path)).with_format("numpy")
