"""Files to documents: one small reader per kind of file, each of them also through `.gz` and `.zst`."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.corpus.document import Document, clean_text
from limbeck.corpus.prose import extract_prose
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

# A text file whose first lines hold no blank one has one document a line: the other common layout.
PROBED_LINES = 1000
_COMPRESSED = (".gz", ".zst")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class OpenFile(NamedTuple):
    """What a reader is given.

    Args:
        stream: The content, decompressed.
        path: Where it comes from.
        text_column: Column of the text, for kinds that have columns.
        report: Receives what is passed over or repaired.
    """

    stream: BinaryIO
    path: Path
    text_column: str
    report: SourceReport


def kind_of(path: Path, kinds: Container[str] | None = None) -> str | None:
    """Return the suffix that decides how `path` is read (`".jsonl"` for `a.jsonl.gz`), or `None`.

    Args:
        path: Its name is looked at, not its content.
        kinds: Suffixes that are read; the default is those of `READERS`.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if is_compressed(path):
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in (READERS if kinds is None else kinds) else None


def is_compressed(path: Path) -> bool:
    """Whether the name of a file ends in `.gz` or `.zst`."""
    return path.suffix.lower() in _COMPRESSED


def read_file(path: Path, text_column: str, report: SourceReport) -> Iterator[Document]:
    """Iterate over the documents of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        text_column: Column of the text, for kinds that have columns.
        report: Receives what is passed over or repaired.

    Raises:
        CorpusError: if the operating system refuses to read the file.
    """
    kind = kind_of(path)
    assert kind is not None, path
    with open_file(path, report) as stream:
        for text in READERS[kind](OpenFile(stream, path, text_column, report)):
            cleaned = clean_text(text)
            if cleaned:
                yield Document(cleaned)
            else:
                report.note("empty document", str(path))


@contextmanager
def open_file(path: Path, report: SourceReport) -> Iterator[BinaryIO]:
    """Open a file, decompressed; what is damaged ends the reading inside the `with` and is noted.

    Args:
        path: The file.
        report: Receives the damage.

    Raises:
        CorpusError: if the operating system refuses to read the file.
    """
    try:
        with _opened(path) as stream:
            yield stream
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        # Refusals of the operating system have a number; the others come from the content.
        if isinstance(error, OSError) and error.errno is not None:
            raise CorpusError(f"Cannot read '{path}': {error.strerror}.") from error
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        report.note("damaged file, read up to the damage", f"{path}: {reason}")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as raw:
        if path.suffix.lower() == ".gz":
            with gzip.open(raw) as stream:
                yield stream  # type: ignore[misc]
        elif path.suffix.lower() == ".zst":
            # Unlike zstandard's own reader, this one notices an archive that ends too early.
            with pa.CompressedInputStream(raw, "zstd") as frames, io.BufferedReader(frames) as stream:
                yield stream
        else:
            yield raw


def decoded_lines(stream: BinaryIO, path: Path, report: SourceReport) -> Iterator[tuple[int, str]]:
    """Iterate over (line number, line without its end); bad bytes become U+FFFD and are counted."""
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            if raw.startswith(_WIDE_MARKS):
                report.note("file not in UTF-8, passed over", str(path))
                return
            raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            report.note("line with bytes that are not UTF-8", f"{path}:{number}")
            line = raw.decode(errors="replace")
        yield number, line.rstrip("\r\n")


def _read_text(file: OpenFile) -> Iterator[str]:
    """Documents separated by blank lines, or one a line where there is no blank line for long."""
    paragraphs: list[str] = []
    line_by_line = False
    blank_seen = False
    for number, line in decoded_lines(file.stream, file.path, file.report):
        if line and not line.isspace():
            if line_by_line:
                yield line
                continue
            paragraphs.append(line.strip())
            if not blank_seen and number >= PROBED_LINES:
                line_by_line = True
                file.report.note("file without blank lines, read as one document a line", str(file.path))
                yield from paragraphs
                paragraphs = []
        else:
            blank_seen = True
            if paragraphs:
                yield "\n".join(paragraphs)
                paragraphs = []
    if paragraphs:
        yield "\n".join(paragraphs)


def _read_markup(file: OpenFile) -> Iterator[str]:
    """The prose of a Markdown or reStructuredText page, as one document."""
    page = "\n".join(line for _, line in decoded_lines(file.stream, file.path, file.report))
    yield "\n".join(extract_prose(page).paragraphs)


def _read_jsonl(file: OpenFile) -> Iterator[str]:
    for number, line in decoded_lines(file.stream, file.path, file.report):
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
        else:
            yield from _text_value(row[file.text_column], where, file)


def _read_parquet(file: OpenFile) -> Iterator[str]:
    table = open_parquet(file.stream, file.path)
    if file.text_column not in table.schema_arrow.names:
        where = f"{file.path}, which has {list_columns(table.schema_arrow.names)}"
        file.report.note(f"row without the column '{file.text_column}'", where, table.metadata.num_rows)
        return
    number = 0
    for batch in table.iter_batches(batch_size=1000, columns=[file.text_column]):
        for value in batch.column(0).to_pylist():
            number += 1
            yield from _text_value(value, f"{file.path}:{number}", file)


def open_parquet(stream: BinaryIO, path: Path) -> pq.ParquetFile:
    """Open a parquet file that was opened by `open_file`."""
    # Parquet is read from its end; a compressed stream cannot seek, so it is unpacked into memory.
    return pq.ParquetFile(pa.BufferReader(stream.read()) if is_compressed(path) else stream)


def _text_value(value: Any, where: str, file: OpenFile) -> Iterator[str]:
    if value is None:
        file.report.note("empty document", where)
    elif isinstance(value, str):
        yield value
    else:
        file.report.note(f"column '{file.text_column}' that is not text", f"{where}, {type(value).__name__}")


def list_columns(names: Any) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    return ", ".join(sorted(map(str, names))[:8]) or "no columns"


READERS: dict[str, Callable[[OpenFile], Iterator[str]]] = {
    ".txt": _read_text,
    ".md": _read_markup,
    ".rst": _read_markup,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
"""Suffix → reader of the texts of an open file."""
