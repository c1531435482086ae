"""`TableDialect`: how a table protects the separators, newlines and marks that its texts hold.

Most tables enclose such fields in quotation marks, and double the marks within them. Others enclose fields in
apostrophes, or write a backslash in front of every such character. A table is only read so if its lines show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

QUOTATION_MARK = '"'
ESCAPE = "\\"


@dataclass(frozen=True)
class TableDialect:
    """How the fields of a table were written.

    Args:
        mark: The character that encloses a field which holds a separator or a newline.
        has_escapes: Whether a backslash stands in front of separators, newlines and marks that are part of a text.
            Without it, a mark within an enclosed field is doubled.
        note: What a report says of a table that is read so; empty for the usual dialect.
    """

    mark: str = QUOTATION_MARK
    has_escapes: bool = False
    note: str = ""


USUAL_DIALECT = TableDialect()
_OTHER_DIALECTS = (
    TableDialect("'", note="table with apostrophes around fields, which are taken off"),
    TableDialect(
        has_escapes=True, note="table with backslashes in front of separators, newlines and marks, which are taken off"
    ),
    TableDialect(
        "'", has_escapes=True, note="table with apostrophes around fields and backslashes in them, which are taken off"
    ),
)


@dataclass(frozen=True)
class _Field:
    """A field as a dialect reads it.

    Args:
        text: The field with its marks and escapes.
        is_enclosed: Whether marks stand around it.
        ends_row: Whether it is the last one of its row.
    """

    text: str
    is_enclosed: bool
    ends_row: bool


def other_dialect(lines: Sequence[str], separator: str, *, is_cut: bool) -> TableDialect | None:
    """Return the unusual dialect that the beginning of a table shows; None if it shows none.

    A dialect is shown if every field at hand has the form that the dialect gives it, all rows have as many fields, and
    at least one field is written as no other dialect writes it. So an apostrophe within a word (`it's`) or a backslash
    in front of a letter shows that these are characters like any other.

    Args:
        lines: The first lines of the table, without their newlines.
        separator: The character between fields.
        is_cut: Whether the table has more lines, so that the last row may be unfinished.
    """
    text = "".join(f"{line}\n" for line in lines)
    has_other_marks = "'" in text or ESCAPE in text
    if not has_other_marks or _is_shown(USUAL_DIALECT, text, separator, is_cut=is_cut):
        return None
    for dialect in _OTHER_DIALECTS:
        if _is_shown(dialect, text, separator, is_cut=is_cut):
            return dialect
    return None


def _is_shown(dialect: TableDialect, text: str, separator: str, *, is_cut: bool) -> bool:
    """Whether a text has the form of a dialect throughout, and somewhere a form that only this dialect has."""
    # Where every line has as many fields as the others by itself, fields need not hold separators or newlines.
    separators_of_lines = {line.count(separator) for line in text.split("\n") if line}
    lines_are_uneven = len(separators_of_lines) > 1
    shows_dialect = False
    # The numbers of fields that rows have. A table has a single one.
    widths: set[int] = set()
    fields_in_row = 0
    for field in _fields_of(dialect, text, separator, is_cut=is_cut):
        if field is None:
            return False
        if _shows_mark(field, dialect) or (lines_are_uneven and _shows_separator(field, dialect, separator)):
            shows_dialect = True
        fields_in_row += 1
        if not field.ends_row:
            continue
        is_blank_line = fields_in_row == 1 and not field.text
        if not is_blank_line:
            widths.add(fields_in_row)
        fields_in_row = 0
    return shows_dialect and len(widths) == 1


def _shows_mark(field: _Field, dialect: TableDialect) -> bool:
    """Whether a mark within a field was written as no other dialect writes it."""
    if dialect.has_escapes:
        return f"{ESCAPE}{dialect.mark}" in field.text
    content = field.text[1:-1]
    return field.is_enclosed and 2 * dialect.mark in content and "\n" not in content


def _shows_separator(field: _Field, dialect: TableDialect, separator: str) -> bool:
    """Whether a field holds a separator or a newline, which the dialect protects."""
    if dialect.has_escapes:
        return f"{ESCAPE}{separator}" in field.text or f"{ESCAPE}\n" in field.text
    return field.is_enclosed and (separator in field.text or "\n" in field.text)


def _fields_of(dialect: TableDialect, text: str, separator: str, *, is_cut: bool) -> Iterator[_Field | None]:
    """Iterate over the fields of a text; None, and nothing behind it, where it has not the form of the dialect."""
    # A field is either enclosed in marks or has no mark. The quantifier `*+` never goes back, so that reading takes
    # linear time.
    mark = dialect.mark
    if dialect.has_escapes:
        escape = rf"\\[{separator}\n{mark}\\]"
        opened_field = rf"{mark}(?:[^{mark}\\]|{escape})*+"
        field_without_marks = rf"(?:[^{separator}\n{mark}\\]|{escape})*+"
    else:
        opened_field = rf"{mark}(?:[^{mark}]|{mark}{mark})*+"
        field_without_marks = rf"[^{separator}\n{mark}]*+"
    whole_field = re.compile(rf"(?P<field>{opened_field}{mark}|{field_without_marks})(?P<end>[{separator}\n])")
    field_at_end_of_text = re.compile(rf"(?:{opened_field}|{field_without_marks})\Z")

    position = 0
    while position < len(text):
        match = whole_field.match(text, position)
        if match is None:
            # The rest of a field may stand behind the lines at hand.
            may_go_on = is_cut and field_at_end_of_text.match(text, position)
            if not may_go_on:
                yield None
            return
        field = match["field"]
        yield _Field(field, is_enclosed=field.startswith(mark), ends_row=match["end"] == "\n")
        position = match.end()
