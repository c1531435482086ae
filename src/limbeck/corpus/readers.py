"""Files to documents: one small reader per kind of file, each of them also through `.gz` and `.zst`."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.corpus.documents import (
    CUT_DOCUMENT,
    EXPANSION_FREE,
    LONGEST_DOCUMENT,
    LONGEST_LINE,
    LONGEST_PAGE,
    MOST_EXPANSION,
    Document,
    Place,
    SourceReport,
    one_line,
    place_documents,
    text_value,
)
from limbeck.corpus.opening import (
    DAMAGED,
    DamagedError,
    FilePath,
    file_size,
    is_compressed,
    open_file,
    read_whole,
    suffixes_of,
)
from limbeck.corpus.prose import extract_prose
from limbeck.errors import CorpusError

# Lines of a text file: bounded in length, decoded, with the position behind each.


LONG_LINE = f"line longer than {LONGEST_LINE:,} bytes, passed over"
CUT_LINE = f"line longer than {LONGEST_LINE:,} bytes, cut"


class TextLine(NamedTuple):
    """A line.

    Args:
        number: Counted from 1.
        end: Bytes up to here, the newline included.
        text: Without the newline.
    """

    number: int
    end: int
    text: str


def read_lines(
    stream: BinaryIO, path: FilePath, report: SourceReport, *, offset: int = 0, line: int = 0, cut: bool = False
) -> Iterator[TextLine]:
    """Iterate over lines; bad bytes become U+FFFD, and they and lines that are too long are counted.

    Args:
        stream: The content from `offset` on.
        path: Where it comes from.
        report: Receives what is repaired or passed over.
        offset: Bytes before.
        line: Lines before.
        cut: Cut lines that are too long into several of the same number, instead of passing them over.
    """
    end, number = offset, line
    whole = True  # Whether what follows begins a line.
    carry = b""
    while raw := stream.readline(LONGEST_LINE - len(carry)):
        end += len(raw)
        raw, carry, began = carry + raw, b"", whole
        number += began
        whole = len(raw) < LONGEST_LINE or raw.endswith(b"\n")
        if began and not whole:
            report.note(CUT_LINE if cut else LONG_LINE, f"{path}:{number}")
        if not cut and not (began and whole):
            continue
        if end == len(raw):
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if not whole and (rest := _unfinished(raw)):
            raw, carry = raw[:-rest], raw[-rest:]
        yield TextLine(number, end - len(carry), _decode(raw, path, number, report))
    if carry:
        yield TextLine(number, end, _decode(carry, path, number, report))


def _decode(raw: bytes, path: FilePath, number: int, report: SourceReport) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        report.note("line with bytes that are not UTF-8", f"{path}:{number}")
        text = raw.decode(errors="replace")
    return text.rstrip("\r\n")


def _unfinished(raw: bytes) -> int:
    """Return the number of bytes at the end that begin a character without finishing it."""
    for count in (1, 2, 3):
        last = raw[-count]
        if last < 0x80:
            return 0
        if last >= 0xC0:
            return count if (last >= 0xE0) + (last >= 0xF0) + 2 > count else 0
    return 0


# Parquet: opened from any stream, its text column read in bounded batches, whatever the file says of itself.


_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 2**20
_PAGE_BUFFER = 2**20


def open_parquet(stream: BinaryIO, path: FilePath) -> pq.ParquetFile:
    """Open a parquet file that was opened by `open_file`.

    Args:
        stream: Its content.
        path: Where it comes from.
    """
    return _open(_seekable(stream, path))


def _seekable(stream: BinaryIO, path: FilePath) -> Any:
    # Parquet is read from its end; a compressed stream cannot seek, so it is unpacked into memory.
    return pa.BufferReader(read_whole(stream, path)) if is_compressed(path) else stream


def _open(content: Any, **options: Any) -> pq.ParquetFile:
    table = pq.ParquetFile(content, buffer_size=_PAGE_BUFFER, pre_buffer=False, **options)
    _check_expansion(table)
    return table


def read_text_column(
    stream: BinaryIO, path: FilePath, column: str, report: SourceReport, rows: int = 0
) -> Iterator[tuple[int, Any]]:
    """Iterate over (number of the row, counted from 1, and its value): a string, None, or something else.

    Args:
        stream: The file's content.
        path: Where it comes from.
        column: The column.
        report: Receives a missing column, and strings that are not UTF-8.
        rows: Rows to leave out at the beginning.
    """
    content = _seekable(stream, path)
    table = _open(content)
    names = table.schema_arrow.names
    problem = ""
    if column not in names:
        problem, where = f"row without the column '{column}'", f"{path}, which has {list_columns(names)}"
    elif not _is_text(kind := table.schema_arrow.field(column).type):
        problem, where = f"column '{column}' that is not text", f"{path}, {one_line(kind)}"
    if problem:
        if rows == 0:
            report.note(problem, where, max(table.metadata.num_rows, 1))
        return
    # A dictionary is kept as one: a long text that many rows name is in memory once.
    table = _open(content, read_dictionary=[column], metadata=table.metadata)
    number = 0
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        if number + described.num_rows <= rows:
            number += described.num_rows
            continue
        row_bytes = described.total_byte_size // max(described.num_rows, 1)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))
        for batch in table.iter_batches(batch_size=size, row_groups=[group], columns=[column]):
            values = batch.column(0)
            for index in range(max(rows - number, 0), len(values)):
                yield number + index + 1, _text(values[index], f"{path}:{number + index + 1}", report)
            number += len(values)


def list_columns(names: Any) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    return ", ".join(one_line(name)[:60] for name in sorted(map(str, names))[:8]) or "no columns"


def _is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _text(value: pa.Scalar, where: str, report: SourceReport) -> str | None:
    """Decode one string; Arrow itself does not look at the bytes before they are asked for."""
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    if not value.is_valid:
        return None
    raw = value.as_buffer().to_pybytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report.note("row with bytes that are not UTF-8", where)
        return raw.decode(errors="replace")


def _check_expansion(table: pq.ParquetFile) -> None:
    """Refuse columns that claim to unpack out of all proportion, before any is unpacked."""
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        for number in range(described.num_columns):
            column = described.column(number)
            most = max(EXPANSION_FREE, MOST_EXPANSION * column.total_compressed_size)
            if column.total_uncompressed_size > most:
                raise DamagedError(f"a column unpacks to more than {MOST_EXPANSION} times its size")


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


# `text_size`: about how much text a file holds, without reading it.


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


# `PlacedRow`: one row of a table, whatever it was read from, and where it stands.


class PlacedRow(NamedTuple):
    """One row.

    Args:
        where: Where it stands, as messages name it: `"file:line"`, or the number or id of the row.
        values: Column → value.
        class_names: Column → names of its class numbers, where the source states them.
    """

    where: str
    values: Mapping[str, Any]
    class_names: Mapping[str, tuple[str, ...]] = {}


def class_names(features: datasets.Features | None) -> dict[str, tuple[str, ...]]:
    """Return the class names of every `ClassLabel` column.

    Args:
        features: Columns of a data set; `None` if they are not known before reading.
    """
    known = features or {}
    return {name: tuple(kind.names) for name, kind in known.items() if isinstance(kind, datasets.ClassLabel)}


# Files to labelled rows: JSON, CSV, TSV and parquet, each of them also through `.gz` and `.zst`.


_LABELLED_BATCH_ROWS = 1000


def read_rows(path: FilePath, report: SourceReport) -> Iterator[PlacedRow]:
    """Iterate over the rows of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        report: Receives what is passed over or repaired.

    Raises:
        CorpusError: if the operating system refuses to read the file, or it is not laid out as it must be.
    """
    kind = kind_of(path, ROW_READERS)
    assert kind is not None, path
    with open_file(path, report) as stream:
        yield from ROW_READERS[kind](OpenFile(stream, path, "", report))


def _read_jsonl_rows(file: OpenFile) -> Iterator[PlacedRow]:
    for number, line in decoded_lines(file.stream, file.path, file.report):
        if not line or line.isspace():
            continue
        where = f"{file.path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            file.report.note("line of invalid JSON", where)
        else:
            yield from _rows_of(value, where, file)


def _read_json(file: OpenFile) -> Iterator[PlacedRow]:
    """A list of rows, also under `data`; SQuAD's articles; or a row a line, which is often named `.json` too."""
    content = read_whole(file.stream, file.path)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        yield from _read_jsonl_rows(file._replace(stream=io.BytesIO(content)))
        return
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        yield from _rows_of(item, f"{file.path}:{number}", file)


def _rows_of(value: Any, where: str, file: OpenFile) -> Iterator[PlacedRow]:
    """Give the one row of a JSON object, or the questions of a SQuAD article."""
    if not isinstance(value, dict):
        file.report.note("JSON value that is not an object", where)
    elif "paragraphs" not in value:
        yield PlacedRow(where, value)
    else:
        try:
            pairs = [(paragraph["context"], dict(qa)) for paragraph in value["paragraphs"] for qa in paragraph["qas"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(
                f"The article at {where} is not laid out as SQuAD's: paragraphs, each with a context and qas."
            ) from error
        for number, (context, qa) in enumerate(pairs, start=1):
            yield PlacedRow(f"{where}, question {qa.get('id', number)}", {"context": context, **qa})


def _read_csv(file: OpenFile) -> Iterator[PlacedRow]:
    lines = (f"{line}\n" for _, line in decoded_lines(file.stream, file.path, file.report))
    reader = csv.reader(lines)
    try:
        # A quoted field may hold newlines: a row is known by its last line.
        yield from _named_rows(((reader.line_num, fields) for fields in reader), file)
    except csv.Error as error:
        raise CorpusError(f"Cannot read '{file.path}' near line {reader.line_num} as CSV: {error}.") from error


def _read_tsv(file: OpenFile) -> Iterator[PlacedRow]:
    """Fields between tabs, as they are: a quotation mark is a character like any other, as in GLUE."""
    lines = decoded_lines(file.stream, file.path, file.report)
    yield from _named_rows(((number, line.split("\t") if line else []) for number, line in lines), file)


def _named_rows(rows: Iterable[tuple[int, list[str]]], file: OpenFile) -> Iterator[PlacedRow]:
    """Name the fields after the header, the first row."""
    header: list[str] = []
    for number, fields in rows:
        where = f"{file.path}:{number}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            twice = {name for name in header if name and header.count(name) > 1}
            if twice:
                raise CorpusError(f"The header of '{file.path}' names the column '{min(twice)}' twice: rename one.")
        elif len(fields) != len(header):
            file.report.note("row with another number of fields than the header", where)
        else:
            yield PlacedRow(where, dict(zip(header, fields, strict=True)))


def _read_parquet_rows(file: OpenFile) -> Iterator[PlacedRow]:
    table = open_parquet(file.stream, file.path)
    names = class_names(datasets.Features.from_arrow_schema(table.schema_arrow))
    number = 0
    for batch in table.iter_batches(batch_size=_LABELLED_BATCH_ROWS):
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:  # Strings that are not UTF-8, times that no calendar has.
            raise DamagedError(f"a value that cannot be read: {error}") from error
        for values in rows:
            number += 1
            yield PlacedRow(f"{file.path}:{number}", values, names)


ROW_READERS: dict[str, Callable[[OpenFile], Iterator[PlacedRow]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl_rows,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".txt": _read_tsv,
    ".parquet": _read_parquet_rows,
}
"""Suffix → reader of the rows of an open file."""
