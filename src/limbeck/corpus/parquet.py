"""Parquet: opened from any stream, its text column read in bounded batches, whatever the file says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.corpus.guarded_stream import DamagedError
from limbeck.corpus.limits import EXPANSION_FREE, MOST_EXPANSION
from limbeck.corpus.opening import FilePath, is_compressed, read_whole
from limbeck.corpus.source_report import SourceReport, one_line

_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 2**20
_PAGE_BUFFER = 2**20


def open_parquet(stream: BinaryIO, path: FilePath) -> pq.ParquetFile:
    """Open a parquet file that was opened by `open_file`.

    Args:
        stream: Its content.
        path: Where it comes from.
    """
    return _open(_seekable(stream, path))


def _seekable(stream: BinaryIO, path: FilePath) -> Any:
    # Parquet is read from its end; a compressed stream cannot seek, so it is unpacked into memory.
    return pa.BufferReader(read_whole(stream, path)) if is_compressed(path) else stream


def _open(content: Any, **options: Any) -> pq.ParquetFile:
    table = pq.ParquetFile(content, buffer_size=_PAGE_BUFFER, pre_buffer=False, **options)
    _check_expansion(table)
    return table


def read_text_column(
    stream: BinaryIO, path: FilePath, column: str, report: SourceReport, rows: int = 0
) -> Iterator[tuple[int, Any]]:
    """Iterate over (number of the row, counted from 1, and its value): a string, None, or something else.

    Args:
        stream: The file's content.
        path: Where it comes from.
        column: The column.
        report: Receives a missing column, and strings that are not UTF-8.
        rows: Rows to leave out at the beginning.
    """
    content = _seekable(stream, path)
    table = _open(content)
    names = table.schema_arrow.names
    problem = ""
    if column not in names:
        problem, where = f"row without the column '{column}'", f"{path}, which has {list_columns(names)}"
    elif not _is_text(kind := table.schema_arrow.field(column).type):
        problem, where = f"column '{column}' that is not text", f"{path}, {one_line(kind)}"
    if problem:
        if rows == 0:
            report.note(problem, where, max(table.metadata.num_rows, 1))
        return
    # A dictionary is kept as one: a long text that many rows name is in memory once.
    table = _open(content, read_dictionary=[column], metadata=table.metadata)
    number = 0
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        if number + described.num_rows <= rows:
            number += described.num_rows
            continue
        row_bytes = described.total_byte_size // max(described.num_rows, 1)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))
        for batch in table.iter_batches(batch_size=size, row_groups=[group], columns=[column]):
            values = batch.column(0)
            for index in range(max(rows - number, 0), len(values)):
                yield number + index + 1, _text(values[index], f"{path}:{number + index + 1}", report)
            number += len(values)


def list_columns(names: Any) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    return ", ".join(one_line(name)[:60] for name in sorted(map(str, names))[:8]) or "no columns"


def _is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _text(value: pa.Scalar, where: str, report: SourceReport) -> str | None:
    """Decode one string; Arrow itself does not look at the bytes before they are asked for."""
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    if not value.is_valid:
        return None
    raw = value.as_buffer().to_pybytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report.note("row with bytes that are not UTF-8", where)
        return raw.decode(errors="replace")


def _check_expansion(table: pq.ParquetFile) -> None:
    """Refuse columns that claim to unpack out of all proportion, before any is unpacked."""
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        for number in range(described.num_columns):
            column = described.column(number)
            most = max(EXPANSION_FREE, MOST_EXPANSION * column.total_compressed_size)
            if column.total_uncompressed_size > most:
                raise DamagedError(f"a column unpacks to more than {MOST_EXPANSION} times its size")
