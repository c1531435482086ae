"""`EncodedRows`, labelled rows as tokens, and the names of columns that only some rows of tokens have."""

from typing import Any, NamedTuple

TOKEN_TYPES = "token_type_ids"
"""Column of the segments of tokens, where a model has segments."""
OF_TEACHER = "teacher_"
"""Prefix of the columns that the teacher alone reads."""
QUERY = "query"
"""Column of a ranking corpus: a number for the query of each row."""


class EncodedRows(NamedTuple):
    """Rows of tokens, column by column.

    Args:
        input_ids: Ids of each row, special tokens included.
        labels: Label of each row.
        token_type_ids: Segment of each token of each row; None where the model has no segments.
    """

    input_ids: list[list[int]]
    labels: list[Any]
    token_type_ids: list[list[int]] | None
