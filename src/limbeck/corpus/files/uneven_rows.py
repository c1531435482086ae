"""`UnevenRows`: rows of a table whose number of fields is not that of its header.

A few of them in a large table are left out. If there are many, the table was written in another way than it is read,
and the rows that happen to fit are not the rows that were written.
"""

from __future__ import annotations

from limbeck.core.blocks import counted
from limbeck.corpus.files.file_kinds import OpenFile
from limbeck.corpus.files.table_fields import TableRow
from limbeck.corpus.messages import safe_name
from limbeck.errors import CorpusError

UNEVEN_ROW = "row whose number of fields differs from the header's"
MOST_UNEVEN = 0.01
"""Share of uneven rows above which a table is refused, so that a table of fewer than 100 rows may have none."""
_ROWS_THAT_SHOW_MANY = 1_000
"""Rows after which a table with too many uneven rows is refused before its end."""


class UnevenRows:
    """The uneven rows of a table, counted while it is read.

    Args:
        file: The table. Its report receives every uneven row.
        fields_of_header: Number of its columns.
    """

    def __init__(self, file: OpenFile, fields_of_header: int) -> None:
        self._file = file
        self._fields_of_header = fields_of_header
        self._rows = 0
        self._uneven = 0
        self._first: TableRow | None = None

    def has_fields(self, row: TableRow) -> bool:
        """Count a row, and return whether it has the fields of the header.

        A user who gives the names of the fields may leave out those of the last ones, which are ignored.

        Raises:
            CorpusError: if a long beginning of the table has too many uneven rows.
        """
        self._rows += 1
        user_names_fields = bool(self._file.layout.header)
        has_too_few = len(row.fields) < self._fields_of_header
        has_too_many = len(row.fields) > self._fields_of_header and not user_names_fields
        if not has_too_few and not has_too_many:
            return True

        self._uneven += 1
        if self._first is None:
            self._first = row
        self._file.report.note(UNEVEN_ROW, f"{self._file.path}:{row.line}")
        if self._rows >= _ROWS_THAT_SHOW_MANY:
            self.refuse_many()
        return False

    def refuse_many(self) -> None:
        """Refuse the table if more than `MOST_UNEVEN` of the rows so far are uneven.

        Raises:
            CorpusError: it names the first of them.
        """
        if self._first is None or self._uneven <= MOST_UNEVEN * self._rows:
            return
        columns = counted(self._fields_of_header, "column")
        raise CorpusError(
            f"Cannot read '{safe_name(self._file.path)}': line {self._first.line} has "
            f"{counted(len(self._first.fields), 'field')} for {columns} of the header, and {self._uneven:,} of "
            f"{self._rows:,} rows have too few or too many. Enclose fields that hold a separator or a newline in "
            "quotation marks, or remove these lines."
        )
