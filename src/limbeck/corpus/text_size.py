"""`text_size`: about how much text a file holds, without reading it."""

from __future__ import annotations

import pyarrow as pa

from limbeck.corpus.opening import FilePath, file_size, is_compressed, open_file
from limbeck.corpus.parquet import open_parquet
from limbeck.corpus.readers import kind_of
from limbeck.corpus.source_report import SourceReport

_LOOKED_AT = 2**22


def text_size(path: FilePath, text_column: str) -> int:
    """Estimate the bytes of text in a file: of parquet by what it says of the column, of others by their size.

    A compressed file is taken to unpack throughout as its first 4 MiB do.

    Args:
        path: The file.
        text_column: Column of the text, for parquet.
    """
    size = file_size(path)
    silent = SourceReport()
    estimate = size
    with open_file(path, silent) as stream:
        if kind_of(path) == ".parquet" and not is_compressed(path):
            estimate = _column_size(open_parquet(stream, path).metadata, text_column)
        elif is_compressed(path):
            unpacked = len(stream.read(_LOOKED_AT))
            read = stream.raw.packed_position()  # type: ignore[attr-defined]
            estimate = size * unpacked // max(read, 1) if unpacked == _LOOKED_AT else unpacked
    return estimate


def _column_size(metadata: pa.parquet.FileMetaData, name: str) -> int:
    columns = [
        metadata.row_group(group).column(number)
        for group in range(metadata.num_row_groups)
        for number in range(metadata.num_columns)
    ]
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema == name)
