"""Files to documents: one small reader per kind of file, each of them also through `.gz` and `.zst`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterator
from typing import BinaryIO, NamedTuple

from limbeck.corpus.document import Document
from limbeck.corpus.limits import EXPANSION_FREE, LONGEST_DOCUMENT, LONGEST_LINE, LONGEST_PAGE, MOST_EXPANSION
from limbeck.corpus.lines import TextLine, read_lines
from limbeck.corpus.opening import DAMAGED, FilePath, file_size, is_compressed, open_file, suffixes_of
from limbeck.corpus.parquet import list_columns, open_parquet, read_text_column
from limbeck.corpus.place import Place
from limbeck.corpus.placing import CUT_DOCUMENT, place_documents, text_value
from limbeck.corpus.prose import extract_prose
from limbeck.corpus.source_report import SourceReport

__all__ = [
    "PROBED_LINES",
    "READERS",
    "OpenFile",
    "decoded_lines",
    "is_compressed",
    "kind_of",
    "list_columns",
    "open_file",
    "open_parquet",
    "read_file",
]

# A text file whose first lines hold no blank one has one document a line: the other common layout.
PROBED_LINES = 1000


class OpenFile(NamedTuple):
    """What a reader is given.

    Args:
        stream: The content, unpacked, from `start` on (parquet: the whole).
        path: Where it comes from.
        text_column: Column of the text, for kinds that have columns.
        report: Receives what is passed over or repaired.
        start: Where to begin.
    """

    stream: BinaryIO
    path: FilePath
    text_column: str
    report: SourceReport
    start: Place = Place()


class Found(NamedTuple):
    """A text of a file.

    Args:
        text: As it stands there.
        offset: Where what follows it begins, in bytes of the unpacked content, or rows.
        line: Lines up to there.
    """

    text: str
    offset: int
    line: int


def kind_of(path: FilePath, kinds: Container[str] | None = None) -> str | None:
    """Return the suffix that decides how `path` is read (`".jsonl"` for `a.jsonl.gz`), or `None`.

    Args:
        path: Its name is looked at, not its content.
        kinds: Suffixes that are read; the default is those of `READERS`.
    """
    suffixes = suffixes_of(path)
    if is_compressed(path):
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in (READERS if kinds is None else kinds) else None


def read_file(path: FilePath, text_column: str, report: SourceReport, place: Place | None = None) -> Iterator[Document]:
    """Iterate over the documents of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        text_column: Column of the text, for kinds that have columns.
        report: Receives what is passed over or repaired.
        place: Where to begin; moved behind every document before it is given.

    Raises:
        CorpusError: if the operating system refuses to read the file.
    """
    place = Place() if place is None else place
    kind = kind_of(path)
    assert kind is not None, path
    start = Place(**vars(place))
    most = max(EXPANSION_FREE, MOST_EXPANSION * file_size(path))
    report.muted = place.within > 0  # Until the text that was begun is found again.
    with open_file(path, report, 0 if kind == ".parquet" else start.offset) as stream:
        if place.at_start and isinstance(stream, io.BufferedReader) and not stream.peek(1):
            report.note("empty file", str(path))
            return
        for found in READERS[kind](OpenFile(stream, path, text_column, report, start)):
            where = f"{path}:{found.line}" if found.line else str(path)
            yield from place_documents(found.text, where, place, Place(found.offset, found.line), report)
            most -= len(found.text)
            if most < 0:  # A dictionary of parquet can name one long text again and again.
                report.note(DAMAGED, f"{path}: it gives more than {MOST_EXPANSION} times its size")
                return


def decoded_lines(stream: BinaryIO, path: FilePath, report: SourceReport) -> Iterator[tuple[int, str]]:
    """Iterate over (line number, line without its end); bad bytes become U+FFFD and are counted."""
    for number, _, text in read_lines(stream, path, report):
        yield number, text


def _read_text(file: OpenFile) -> Iterator[Found]:
    """Documents separated by blank lines, or one a line where there is no blank line for long."""
    start = file.start
    one_a_line = _is_one_a_line(file.path)
    if one_a_line and start.at_start:
        file.report.note("file without blank lines, read as one document a line", str(file.path))
    lines = read_lines(file.stream, file.path, file.report, offset=start.offset, line=start.line, cut=True)
    paragraphs: list[str] = []
    characters = 0
    end = number = 0
    for number, following, text in lines:
        paragraph = text.strip()
        if paragraphs and paragraph and characters + len(paragraph) > LONGEST_DOCUMENT:
            file.report.note(CUT_DOCUMENT, f"{file.path}:{number}")
            yield Found("\n".join(paragraphs), end, number - 1)
            paragraphs, characters = [], 0
        end = following
        if paragraph:
            paragraphs.append(paragraph)
            characters += len(paragraph) + 1
        if paragraphs and (one_a_line or not paragraph):
            yield Found("\n".join(paragraphs), end, number)
            paragraphs, characters = [], 0
    if paragraphs:
        yield Found("\n".join(paragraphs), end, number)


def _is_one_a_line(path: FilePath) -> bool:
    """Whether the beginning of a file is long and has no blank line."""
    silent = SourceReport()
    with open_file(path, silent) as stream:
        for number, end, text in read_lines(stream, path, silent, cut=True):
            if not text or text.isspace():
                return False
            if number >= PROBED_LINES or end >= LONGEST_LINE:
                return True
    return False


def _read_markup(file: OpenFile) -> Iterator[Found]:
    """The prose of a Markdown or reStructuredText page, as one document."""
    if file.start.offset:
        return
    lines: list[str] = []
    characters = 0
    last = TextLine(0, 0, "")
    for last in read_lines(file.stream, file.path, file.report, cut=True):
        characters += len(last.text) + 1
        if characters > LONGEST_PAGE:
            file.report.note(f"page longer than {LONGEST_PAGE:,} characters, read up to there", str(file.path))
            break
        lines.append(last.text)
    if last.number:
        yield Found("\n".join(extract_prose("\n".join(lines)).paragraphs), last.end, last.number)


def _read_jsonl(file: OpenFile) -> Iterator[Found]:
    start = file.start
    for number, end, line in read_lines(file.stream, file.path, file.report, offset=start.offset, line=start.line):
        if not line or line.isspace():
            continue
        where = f"{file.path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            file.report.note("line of invalid JSON", where)
            continue
        if not isinstance(row, dict):
            file.report.note("JSON line that is not an object", where)
        elif file.text_column not in row:
            file.report.note(f"row without the column '{file.text_column}'", f"{where}, which has {list_columns(row)}")
        elif (text := text_value(row[file.text_column], where, file.text_column, file.report)) is not None:
            yield Found(text, end, number)


def _read_parquet(file: OpenFile) -> Iterator[Found]:
    rows = read_text_column(file.stream, file.path, file.text_column, file.report, file.start.offset)
    for number, value in rows:
        text = text_value(value, f"{file.path}:{number}", file.text_column, file.report)
        if text is not None:
            yield Found(text, number, number)


READERS: dict[str, Callable[[OpenFile], Iterator[Found]]] = {
    ".txt": _read_text,
    ".md": _read_markup,
    ".rst": _read_markup,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
"""Suffix → reader of the texts of an open file."""
