"""Parquet files: texts of a column, and labelled rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from limbeck.corpus.files import guarded_stream, limits, opening
from limbeck.corpus.files.addresses import is_compressed
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.messages import list_columns, safe_name
from limbeck.corpus.source_report import OTHER_COLUMN, SourceReport
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import FoundText

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows of a batch, and the bytes that it should not exceed.
_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 2**20
_READ_BUFFER = 2**20


def read_parquet(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the strings of the text column, in batches of bounded size."""
    rows_before = file.start.position
    column = file.text_column
    content = seekable_content(file)
    table = _open_parquet(content)
    if not is_text_column(table.schema_arrow, file):
        # Where reading resumes, the problem has been reported before.
        if rows_before == 0:
            note_other_column(table.schema_arrow, table.metadata.num_rows, file)
        return

    # The file is opened again now that the column is known to hold text: a dictionary column is then kept as such, so
    # that a long text which many rows refer to is in memory once.
    table = _open_parquet(content, read_dictionary=[column], metadata=table.metadata)
    row = 0
    for group in range(table.num_row_groups):
        # Where reading resumes, whole groups of rows are passed over, and then single rows.
        group_metadata = table.metadata.row_group(group)
        if row + group_metadata.num_rows <= rows_before:
            row += group_metadata.num_rows
            continue
        options: dict[str, Any] = {
            "batch_size": _batch_size(group_metadata),
            "row_groups": [group],
            "columns": [column],
        }
        for batch in table.iter_batches(**options):
            values = batch.column(0)
            for scalar in values:
                row += 1
                if row <= rows_before:
                    continue
                where = f"{file.path}:{row}"
                value = decode_string(scalar, where, file.report)
                text = documents.text_value(value, where, column, file.report)
                if text is not None:
                    yield FoundText(text, position=row, line=row)


def read_parquet_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a parquet file."""
    from datasets import Features

    table = _open_parquet(seekable_content(file))
    names = class_names(Features.from_arrow_schema(table.schema_arrow))
    yield from placed_rows(table.iter_batches(batch_size=_BATCH_ROWS), names, file)


def placed_rows(
    batches: Iterable[pa.RecordBatch], names: dict[str, tuple[str, ...]], file: OpenFile
) -> Iterator[PlacedRow]:
    """Iterate over the rows of some batches, with their places in the file.

    Args:
        batches: The rows.
        names: Names of the numbers of classes, by column.
        file: The file, for messages.
    """
    number = 0
    for batch in batches:
        # The batches of an Arrow file are as long as its writer made them. Only a part is turned to objects at once.
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            try:
                rows = batch.slice(start, _BATCH_ROWS).to_pylist()
            except (ValueError, OverflowError) as error:  # Strings that are not UTF-8, times that no calendar has.
                raise guarded_stream.DamagedError(f"a value that cannot be read: {error}") from error
            for values in rows:
                number += 1
                yield PlacedRow(f"{file.path}:{number}", values, names)


def parquet_text_size(file: OpenFile) -> int:
    """Return the bytes of the text column of a file that is not compressed; without a text column, of all columns.

    `text_size` asks for no compressed file.
    """
    size = 0
    for column in _column_chunks(_open_parquet(file.stream).metadata):
        if not file.text_column or column.path_in_schema == file.text_column:
            size += column.total_uncompressed_size
    return size


def class_names(features: datasets.Features | None) -> dict[str, tuple[str, ...]]:
    """Return the class names of every `ClassLabel` column, and of every column of lists of them.

    Args:
        features: Columns of a data set; `None` where they are not known before the rows are read.
    """
    if not features:
        return {}
    from datasets import ClassLabel

    names: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        # A list has the feature of its items.
        item = getattr(feature, "feature", feature)
        if isinstance(item, ClassLabel):
            names[column] = tuple(item.names)
    return names


def seekable_content(file: OpenFile) -> Any:
    """Return the content of a file as a stream that can seek, since parquet has its index at the end."""
    if not is_compressed(file.path):
        return file.stream
    # A compressed stream cannot seek, so it is unpacked into memory.
    from pyarrow import BufferReader

    return BufferReader(opening.read_whole(file.stream, file.path))


def is_text_column(schema: pa.Schema, file: OpenFile) -> bool:
    """Whether a file has a text column."""
    column = file.text_column
    return column in schema.names and _is_string(schema.field(column).type)


def note_other_column(schema: pa.Schema, rows: int, file: OpenFile) -> None:
    """Report the rows of a file without a text column.

    Args:
        schema: Its columns.
        rows: Number of its rows.
        file: The file, with the report.
    """
    column = file.text_column
    if column not in schema.names:
        problem = f"{OTHER_COLUMN} '{column}'"
        where = f"{file.path}, which has {list_columns(schema.names)}"
    else:
        problem = f"column '{column}' that is not text"
        where = f"{file.path}, {safe_name(schema.field(column).type)}"
    file.report.note(problem, where, max(rows, 1))


def decode_string(value: pa.Scalar, where: str, report: SourceReport) -> str | None:
    """Return one string; None for null. Arrow itself does not check whether the bytes of a string are UTF-8."""
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


def _open_parquet(content: Any, **options: Any) -> pq.ParquetFile:
    """Open a parquet file.

    Raises:
        DamagedError: if a column would unpack to far more than its size. Its metadata say so before it is unpacked.
    """
    import pyarrow.parquet as pq

    table = pq.ParquetFile(content, buffer_size=_READ_BUFFER, pre_buffer=False, **options)
    for column in _column_chunks(table.metadata):
        if column.total_uncompressed_size > limits.most_unpacked(column.total_compressed_size):
            raise guarded_stream.DamagedError(
                f"a column unpacks to more than {limits.MOST_EXPANSION} times its size, as files made to fill a disk do"
            )
    return table


def _column_chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            yield metadata.row_group(group).column(column)


def _is_string(column_type: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return types.is_string(column_type) or types.is_large_string(column_type) or types.is_string_view(column_type)


def _batch_size(group: pq.RowGroupMetaData) -> int:
    """Return the number of rows of a batch: `_BATCH_ROWS`, or fewer where these would exceed `_BATCH_BYTES`."""
    row_bytes = group.total_byte_size // max(group.num_rows, 1)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))
