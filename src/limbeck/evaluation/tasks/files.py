"""Splits from a folder: which file it is, and the rows in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from limbeck.corpus.documents import SourceReport
from limbeck.corpus.opening import open_file
from limbeck.corpus.readers import ROW_READERS, PlacedRow, decoded_lines, kind_of, read_rows
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.definition import FileSource

# What a corpus may pass over, a split may not: its score would be of other rows.
_FATAL = (
    "line of invalid JSON",
    "JSON value that is not an object",
    "file not in UTF-8, passed over",
    "damaged file, read up to the damage",
    "line with bytes that are not UTF-8",
)


def find_file(sources: Sequence[FileSource], folders: Sequence[Path]) -> tuple[Path, FileSource] | None:
    """Return the first file that is there, and which of the names it has.

    Args:
        sources: Names in the order of preference, each also with `.gz` or `.zst`.
        folders: Looked at in turn, each before its subfolders, in alphabetical order.
    """
    places = [place for folder in folders for place in (folder, *_subfolders(folder))]
    for source in sources:
        for place in places:
            for ending in ("", ".gz", ".zst"):
                path = place / f"{source.path}{ending}"
                if path.is_file():
                    return path, source
    return None


def read_split_file(path: Path, source: FileSource, report: SourceReport) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split's file.

    Args:
        path: The file.
        source: Its header, where it has none of its own, and the rows to take.
        report: Receives lines that are left out.

    Raises:
        CorpusError: if the file cannot be read as a whole, or is of no known kind.
    """
    if source.header:
        rows = _headless_rows(path, source.header, report)
    elif kind_of(path, ROW_READERS) is None:
        raise CorpusError(f"'{path}' is of no known kind: give {', '.join(ROW_READERS)}, also with .gz or .zst.")
    else:
        rows = read_rows(path, report)
    for row in rows:
        if all(row.values.get(field) == value for field, value in source.only.items()):
            yield row
    for kind in _FATAL:
        if kind in report.counts:
            raise CorpusError(f"'{path}' cannot be read as a whole: {kind} ({report.examples[kind][0]}).")


def _headless_rows(path: Path, header: tuple[str, ...], report: SourceReport) -> Iterator[PlacedRow]:
    """Rows of a tab-separated table whose first line is a row; a quotation mark is a character like any other."""
    with open_file(path, report) as stream:
        for number, line in decoded_lines(stream, path, report):
            where, fields = f"{path}:{number}", line.split("\t")
            if not line:
                continue
            if len(fields) < len(header):
                report.note("row with too few fields", where)
            else:
                yield PlacedRow(where, dict(zip(header, fields, strict=False)))


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
