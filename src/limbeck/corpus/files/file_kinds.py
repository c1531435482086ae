"""`FileKind`: the functions that read a kind of file, such as `.jsonl`, and the types that they take and return.

A file of *texts* has the documents of a text corpus, and a file of *rows* has labelled rows. `file_readers` has the
registry of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

from limbeck.corpus.files import addresses
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import Cursor, FoundText

Quotes: TypeAlias = Literal["fields", "characters"]
"""The use of quotation marks in a table: they enclose fields, or they are characters like any other."""


class TableLayout(NamedTuple):
    """The layout of a table, as far as it is known without the file.

    Args:
        header: Names of the fields, where the first line of the table is not a header. Fields behind these are ignored.
        quotes: The use of quotation marks in a table with tabs; None judges it by the file.
    """

    header: tuple[str, ...] = ()
    quotes: Quotes | None = None


UNKNOWN_LAYOUT = TableLayout()

Separator: TypeAlias = Literal["line", "blank_line"]
"""What separates the documents of a `.txt` file: the end of every line, or blank lines."""


@dataclass(frozen=True)
class OpenFile:
    """An open file, as readers take it.

    Args:
        stream: The unpacked content from `start` on; of a binary file the whole content.
        path: The file.
        text_column: Column of the text, for kinds that have columns.
        report: Receives everything that is skipped or repaired.
        start: Position at which reading begins.
        layout: Layout of a table.
        separator: Separates the documents of a text file; None finds it out by the file.
    """

    stream: BinaryIO
    path: FilePath
    text_column: str
    report: SourceReport
    start: Cursor = field(default_factory=Cursor)
    layout: TableLayout = UNKNOWN_LAYOUT
    separator: Separator | None = None


class PlacedRow(NamedTuple):
    """One row of a table.

    Args:
        where: Place of the row as messages name it: `"file:line"`, or the number or id of the row.
        values: Column → value.
        class_names: Column → names of the class numbers in it, where the source states them.
    """

    where: str
    values: Mapping[str, Any]
    class_names: Mapping[str, tuple[str, ...]] = {}

    def named_value(self, column: str) -> Any:
        """Return the value of a column, with the names of class numbers in their place; None where there is none.

        A column of named classes may hold values: the number 0 of a `ClassLabel(names=["5", "1"])` stands for "5". A
        number without a name, as -1 has none, is no value.
        """
        value = self.values.get(column)
        names = self.class_names.get(column, ())
        if isinstance(value, list | tuple):
            return [_name_of(item, names) for item in value]
        return _name_of(value, names)


def _name_of(value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class number, None for a number without a name; other values as they are."""
    if not names or not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None


@dataclass(frozen=True)
class FileKind:
    """A kind of file: how its texts are read, its labelled rows, or both.

    Args:
        texts: Reads the texts of an open file; `None` where a text corpus passes over files of this kind.
        rows: Reads its labelled rows; `None` where a labelled corpus passes over files of this kind.
        sentences: Reads its sentences of tagged words; `None` where they have the layout of other rows.
        rows_in_folders: Whether a folder that is named as a source of labelled rows has rows in its files of this kind.
            Without it, such a file has to be named itself.
        texts_in_folders: Whether a folder that is named as a source of text has texts in its files of this kind.
        is_binary: Whether readers seek in the file, as parquet needs.
        counts_rows: Whether positions in texts count rows instead of bytes, as in binary files and in tables, which
            cannot be read without their header.
        text_size: Estimates the bytes of text in an open file; `None` takes its size.
    """

    texts: Callable[[OpenFile], Iterator[FoundText]] | None = None
    rows: Callable[[OpenFile], Iterator[PlacedRow]] | None = None
    sentences: Callable[[OpenFile], Iterator[PlacedRow]] | None = None
    rows_in_folders: bool = True
    texts_in_folders: bool = True
    is_binary: bool = False
    counts_rows: bool = False
    text_size: Callable[[OpenFile], int] | None = None


Content: TypeAlias = Literal["texts", "rows"]
"""What is read from files: the documents of a text corpus, or labelled rows."""


def suffix_of(path: FilePath) -> str:
    """Return the suffix that decides how a file is read, `".jsonl"` for `a.jsonl.gz`; empty where it has none."""
    suffixes = addresses.suffixes_of(path)
    if suffixes and suffixes[-1] in addresses.COMPRESSIONS:
        suffixes.pop()
    if not suffixes:
        return ""
    return suffixes[-1]
