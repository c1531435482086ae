"""Parquet files: texts of a column, and labelled rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from limbeck.corpus import documents, guarded, limits, opening
from limbeck.corpus.addresses import is_compressed
from limbeck.corpus.cursor import FoundText
from limbeck.corpus.documents import OTHER_COLUMN
from limbeck.corpus.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.messages import list_columns, safe_name
from limbeck.corpus.source_report import SourceReport

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq


_PARQUET_ROWS = 1000

_PARQUET_BYTES = 16 * 2**20

_PARQUET_BUFFER = 2**20


def _parquet_content(file: OpenFile) -> Any:
    # Parquet is read from its end; a compressed stream cannot seek, so it is unpacked into memory.
    if not is_compressed(file.path):
        return file.stream
    from pyarrow import BufferReader

    return BufferReader(opening.read_whole(file.stream, file.path))


def _open_parquet(content: Any, **options: Any) -> pq.ParquetFile:
    """Open a parquet file; one that claims to unpack out of all proportion is refused before it does."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(content, buffer_size=_PARQUET_BUFFER, pre_buffer=False, **options)
    for column in _column_chunks(table.metadata):
        if column.total_uncompressed_size > limits.most_unpacked(column.total_compressed_size):
            raise guarded.DamagedError(f"a column unpacks to more than {limits.MOST_EXPANSION} times its size")
    return table


def _column_chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            yield metadata.row_group(group).column(number)


def parquet_text_size(file: OpenFile) -> int:
    """Return the bytes of the text column."""
    columns = _column_chunks(_open_parquet(file.stream).metadata)
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema == file.text_column)


def read_parquet(file: OpenFile) -> Iterator[FoundText]:
    """The strings of the text column, in bounded batches, whatever the file claims to hold."""
    path, column, before, report = file.path, file.text_column, file.start.position, file.report
    content = _parquet_content(file)
    table = _open_parquet(content)
    names = table.schema_arrow.names
    problem = ""
    if column not in names:
        problem, where = f"{OTHER_COLUMN} '{column}'", f"{path}, which has {list_columns(names)}"
    elif not _is_string(kind := table.schema_arrow.field(column).type):
        problem, where = f"column '{column}' that is not text", f"{path}, {safe_name(kind)}"
    if problem:
        if before == 0:
            report.note(problem, where, max(table.metadata.num_rows, 1))
        return
    # A dictionary is kept as one: a long text that many rows name is in memory once.
    table = _open_parquet(content, read_dictionary=[column], metadata=table.metadata)
    number = 0
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        if number + described.num_rows <= before:
            number += described.num_rows
            continue
        row_bytes = described.total_byte_size // max(described.num_rows, 1)
        size = max(1, min(_PARQUET_ROWS, _PARQUET_BYTES // max(row_bytes, 1)))
        for batch in table.iter_batches(batch_size=size, row_groups=[group], columns=[column]):
            values = batch.column(0)
            for row in range(max(before, number) + 1, number + len(values) + 1):
                where = f"{path}:{row}"
                text = documents.text_value(_decoded(values[row - number - 1], where, report), where, column, report)
                if text is not None:
                    yield FoundText(text, row, row)
            number += len(values)


def _is_string(kind: pa.DataType) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _decoded(value: pa.Scalar, where: str, report: SourceReport) -> str | None:
    """Decode one string; Arrow itself does not look at the bytes before they are asked for."""
    from pyarrow import DictionaryScalar

    if isinstance(value, DictionaryScalar):
        value = value.value
    if not value.is_valid:
        return None
    raw = value.as_buffer().to_pybytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report.note("row with bytes that are not UTF-8", where)
        return raw.decode(errors="replace")


def class_names(features: datasets.Features | None) -> dict[str, tuple[str, ...]]:
    """Return the class names of every `ClassLabel` column, and of every column of lists of them.

    Args:
        features: Columns of a data set; `None` if they are not known before reading.
    """
    if not features:
        return {}
    from datasets import ClassLabel

    known = {name: getattr(kind, "feature", kind) for name, kind in features.items()}
    return {name: tuple(kind.names) for name, kind in known.items() if isinstance(kind, ClassLabel)}


def read_parquet_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a parquet file."""
    from datasets import Features

    table = _open_parquet(_parquet_content(file))
    names = class_names(Features.from_arrow_schema(table.schema_arrow))
    number = 0
    for batch in table.iter_batches(batch_size=_PARQUET_ROWS):
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:  # Strings that are not UTF-8, times that no calendar has.
            raise guarded.DamagedError(f"a value that cannot be read: {error}") from error
        for values in rows:
            number += 1
            yield PlacedRow(f"{file.path}:{number}", values, names)
