"""Rows of a task to tokens, in an Arrow file that all cells and processes read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from datasets import Dataset

from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import TOKEN_TYPES, Example, SequenceEncoder
from limbeck.evaluation.tasks.task import Task, TaskRow

Item = TypeVar("Item")
_ROWS_AT_ONCE = 2000
_DRAW = 0
"""Seed of the draw of rows: the same for every cell, so that all seeds see the same rows."""


def drawn(rows: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return so many rows, drawn once for all and in their own order; all of them where there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[index] for index in sorted(random.Random(_DRAW).sample(range(len(rows)), most))]


def encode_sequences(
    rows: Sequence[TaskRow], task: Task, tokenizer: Any, length: int, path: Path, *, labelled: bool
) -> SourceReport:
    """Write the tokens of texts or pairs to a file: `input_ids`, `token_type_ids` where known, `length`, `labels`.

    Args:
        rows: All single, or all pairs.
        task: Decides the type of the labels.
        tokenizer: Of the model; not changed.
        length: Most tokens of a row; the longer text of a pair is cut first.
        path: The file.
        labelled: Whether to write labels.

    Returns:
        Which rows were cut.

    Raises:
        CorpusError: if no token fits between the special ones.
    """
    report = SourceReport()
    encoder = SequenceEncoder(tokenizer, length, paired=rows[0].pair is not None)
    label_type = pa.float32() if task.kind == "regression" else pa.int64()
    fields = [("input_ids", pa.list_(pa.int32())), ("length", pa.int32())]
    if TOKEN_TYPES in tokenizer.model_input_names:
        fields.append((TOKEN_TYPES, pa.list_(pa.int8())))
    if labelled:
        fields.append(("labels", label_type))

    def batches() -> Iterable[Mapping[str, Any]]:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            encoded = encoder.encode([Example(row.text, row.pair, row.label or 0) for row in part], report)
            yield {
                "input_ids": encoded.input_ids,
                TOKEN_TYPES: encoded.token_type_ids,
                "length": [len(ids) for ids in encoded.input_ids],
                "labels": encoded.labels,
            }

    write_columns(path, pa.schema(fields), batches())
    return report


def write_columns(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Any]]) -> None:
    """Write batches of columns to an Arrow stream; columns that the schema does not name are left out."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch([pa.array(batch[field.name], field.type) for field in schema], schema))


def open_columns(path: Path) -> Dataset:
    """Open what `write_columns` wrote, mapped into memory."""
    return Dataset.from_file(str(path)).with_format("numpy")
