"""The columns of token rows, and the two splits that every corpus has."""

from typing import NamedTuple

import pyarrow as pa

from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES

SPLITS = ("train", "held_out")
BLOCK_COLUMNS = (pa.field("input_ids", pa.list_(pa.int32())), pa.field("length", pa.int32()))
"""The columns that all token rows have."""
SEGMENTS = pa.field(TOKEN_TYPES, pa.list_(pa.int8()))


class SplitBatch(NamedTuple):
    """Some token rows of a split.

    Args:
        split: One of `SPLITS`.
        records: The rows.
    """

    split: str
    records: pa.RecordBatch
