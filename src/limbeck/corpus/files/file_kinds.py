"""`FileKind`, what a kind of file can be read as, and the open files and rows that its readers take and give.

`file_readers` has the registry of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

from limbeck.corpus.files import addresses
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import Cursor, FoundText

Quotes: TypeAlias = Literal["fields", "characters"]


class TableLayout(NamedTuple):
    """The layout of a table, as far as it is known without the file.

    Args:
        header: Names of the fields, where the first line does not have them; further fields are ignored.
        quotes: Whether quotation marks enclose fields between tabs, or are characters like any other; None finds it
            out by the file.
    """

    header: tuple[str, ...] = ()
    quotes: Quotes | None = None


UNKNOWN_LAYOUT = TableLayout()


class OpenFile(NamedTuple):
    """An open file, as readers take it.

    Args:
        stream: The content, unpacked, from `start` on (a binary file: the whole).
        path: Where it comes from.
        text_column: Column of the text, for kinds that have columns.
        report: Receives everything that is skipped or repaired.
        start: Where to begin.
        layout: Of a table.
    """

    stream: BinaryIO
    path: FilePath
    text_column: str
    report: SourceReport
    start: Cursor = Cursor()
    layout: TableLayout = UNKNOWN_LAYOUT


class PlacedRow(NamedTuple):
    """One row of a table.

    Args:
        where: Where it stands, as messages name it: `"file:line"`, or the number or id of the row.
        values: Column → value.
        class_names: Column → names of its class numbers, where the source states them.
    """

    where: str
    values: Mapping[str, Any]
    class_names: Mapping[str, tuple[str, ...]] = {}


@dataclass(frozen=True)
class FileKind:
    """A kind of file: how its texts are read, its labelled rows, or both.

    Args:
        texts: Reads the texts of an open file; `None` where a text corpus passes such files over.
        rows: Reads its labelled rows; `None` where a labelled corpus passes such files over.
        sentences: Reads its sentences of tagged words, where they are laid out otherwise than other rows.
        rows_in_folders: Whether labelled rows are read from such files in a folder too, not only from one named.
        is_binary: Whether the file is read at any place rather than from its beginning, and a position counts rows.
        text_size: Estimates the bytes of text in an open file; `None` takes its size.
    """

    texts: Callable[[OpenFile], Iterator[FoundText]] | None = None
    rows: Callable[[OpenFile], Iterator[PlacedRow]] | None = None
    sentences: Callable[[OpenFile], Iterator[PlacedRow]] | None = None
    rows_in_folders: bool = True
    is_binary: bool = False
    text_size: Callable[[OpenFile], int] | None = None


Content: TypeAlias = Literal["texts", "rows"]


def suffix_of(path: FilePath) -> str:
    """Return the suffix that decides how a file is read, `".jsonl"` for `a.jsonl.gz`; empty where it has none."""
    suffixes = addresses.suffixes_of(path)
    if suffixes and suffixes[-1] in addresses.COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
