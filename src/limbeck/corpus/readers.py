"""Kinds of files: how the texts and the labelled rows of each are read, each also through `.gz`, `.xz` and `.zst`.

`FILE_KINDS` is the one list of them: sources, recipes and tasks ask it which files there are.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypeAlias

from limbeck.core.registry import Registry
from limbeck.corpus import documents, opening, prose
from limbeck.corpus.documents import Cursor, Document, FoundText, SourceReport, one_line
from limbeck.corpus.opening import FilePath, is_compressed, open_file
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

OTHER_COLUMN = "row without the column"
"""How the problem of a row begins that has no column of the text."""
LONG_LINE = f"line longer than {documents.LONGEST_LINE:,} bytes, skipped"
CUT_LINE = f"line longer than {documents.LONGEST_LINE:,} bytes, cut"
# A text file whose first lines hold no blank one has one document a line: the other common layout.
PROBED_LINES = 1000
_PARQUET_ROWS = 1000
_PARQUET_BYTES = 16 * 2**20
_PARQUET_BUFFER = 2**20
_SIZED_BYTES = 2**22


class OpenFile(NamedTuple):
    """An open file, as readers take it.

    Args:
        stream: The content, unpacked, from `start` on (a binary file: the whole).
        path: Where it comes from.
        text_column: Column of the text, for kinds that have columns.
        report: Receives everything that is skipped or repaired.
        start: Where to begin.
        header: Names of the fields of a table, where its first line does not have them.
    """

    stream: BinaryIO
    path: FilePath
    text_column: str
    report: SourceReport
    start: Cursor = Cursor()
    header: tuple[str, ...] = ()


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

FILE_KINDS: Registry[FileKind] = Registry("kind of file", CorpusError)
"""Suffix → kind of file."""


def suffix_of(path: FilePath) -> str:
    """Return the suffix that decides how a file is read, `".jsonl"` for `a.jsonl.gz`; empty where it has none."""
    suffixes = opening.suffixes_of(path)
    if suffixes and suffixes[-1] in opening.COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def readable_suffixes(content: Content) -> list[str]:
    """Return the suffixes of the files that hold texts, or labelled rows."""
    return [suffix for suffix, kind in FILE_KINDS.items() if getattr(kind, content) is not None]


def names_file(path: FilePath) -> bool:
    """Whether a path ends like a file of any kind that is read, compressed or not."""
    return is_compressed(path) or suffix_of(path) in FILE_KINDS


def read_file(path: FilePath, text_column: str, report: SourceReport, cursor: Cursor) -> Iterator[Document]:
    """Iterate over the documents of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        text_column: Column of the text, for kinds that have columns.
        report: Receives everything that is skipped or repaired.
        cursor: Where to begin; moved behind every document before it is given.

    Raises:
        CorpusError: if the operating system refuses to read the file.
    """
    kind = FILE_KINDS[suffix_of(path)]
    assert kind.texts is not None, path
    start = Cursor(cursor.shard, cursor.position, cursor.line, cursor.within)
    characters = 0
    report.muted = cursor.within > 0  # Until the text that was begun is found again.
    position = 0 if kind.is_binary else start.position
    with open_file(path, report, position, is_binary=kind.is_binary) as stream:
        if cursor.at_start and isinstance(stream, io.BufferedReader) and not stream.peek(1):
            if opening.damage_of(stream) is None:
                report.note("empty file", str(path))
            return
        for found in kind.texts(OpenFile(stream, path, text_column, report, start)):
            where = f"{path}:{found.line}" if found.line else str(path)
            yield from documents.split_documents(found, where, cursor, report)
            characters += len(found.text)
            # A dictionary of parquet can name one long text again and again.
            if characters > documents.EXPANSION_FREE and characters > documents.most_unpacked(opening.file_size(path)):
                report.note(
                    opening.DAMAGED, f"{path}: it unpacks to more than {documents.MOST_EXPANSION} times its size"
                )
                return


def read_rows(
    path: FilePath, report: SourceReport, *, of_words: bool = False, header: Sequence[str] = ()
) -> Iterator[PlacedRow]:
    """Iterate over the rows of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        report: Receives everything that is skipped or repaired.
        of_words: Read a table as sentences: a word a line with its tag, and a blank line between sentences.
        header: Names of the fields of a table whose first line is a row; further fields are ignored.

    Raises:
        CorpusError: if the operating system refuses to read the file, or its layout is wrong.
    """
    kind = FILE_KINDS[suffix_of(path)]
    read = (kind.sentences if of_words else None) or kind.rows
    assert read is not None, path
    with open_file(path, report, is_binary=kind.is_binary) as stream:
        yield from read(OpenFile(stream, path, "", report, header=tuple(header)))


def text_size(path: FilePath, text_column: str) -> int:
    """Estimate the bytes of text in a file: of parquet by the size of the column, of others by their own.

    A compressed file is taken to unpack throughout as its first 4 MiB do.

    Args:
        path: The file.
        text_column: Column of the text, for parquet.
    """
    kind = FILE_KINDS[suffix_of(path)]
    size = opening.file_size(path)
    silent = SourceReport()
    estimate = size
    with open_file(path, silent, is_binary=kind.is_binary) as stream:
        if is_compressed(path):
            unpacked = len(stream.read(_SIZED_BYTES))
            read = stream.raw.packed_position()  # type: ignore[attr-defined]
            estimate = size * unpacked // max(read, 1) if unpacked == _SIZED_BYTES else unpacked
        elif kind.text_size is not None:
            estimate = kind.text_size(OpenFile(stream, path, text_column, silent))
    return estimate


def read_lines(
    stream: BinaryIO, path: FilePath, report: SourceReport, *, position: int = 0, line: int = 0, cut: bool = False
) -> Iterator[FoundText]:
    """Iterate over lines; bad bytes become U+FFFD, and they and lines that are too long are counted.

    Of a file that is damaged the line that the damage cuts is skipped, or with `cut` ends there.

    Args:
        stream: The content from `position` on.
        path: Where it comes from.
        report: Receives everything that is skipped or repaired.
        position: Bytes before.
        line: Lines before.
        cut: Cut lines that are too long into several of the same number, instead of passing them over.
    """
    end, number = position, line
    whole = True  # Whether what follows begins a line.
    carry = b""
    while raw := stream.readline(documents.LONGEST_LINE - len(carry)):
        end += len(raw)
        raw, carry, began = carry + raw, b"", whole
        number += began
        whole = len(raw) < documents.LONGEST_LINE or raw.endswith(b"\n")
        if not raw.endswith(b"\n") and opening.damage_of(stream) is not None:
            if not cut:
                return
            raw = raw[: len(raw) - _unfinished(raw)]
        if began and not whole:
            report.note(CUT_LINE if cut else LONG_LINE, f"{path}:{number}")
        if not cut and not (began and whole):
            continue
        if end == len(raw):
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if not whole and (rest := _unfinished(raw)):
            raw, carry = raw[:-rest], raw[-rest:]
        yield FoundText(_decode(raw, path, number, report), end - len(carry), number)
    if carry:
        yield FoundText(_decode(carry, path, number, report), end, number)


def _decode(raw: bytes, path: FilePath, number: int, report: SourceReport) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        report.note("line with bytes that are not UTF-8", f"{path}:{number}")
        text = raw.decode(errors="replace")
    return text.rstrip("\r\n")


def _unfinished(raw: bytes) -> int:
    """Return the number of bytes at the end that begin a character without finishing it."""
    for count in range(1, min(len(raw), 3) + 1):
        last = raw[-count]
        if last < 0x80:
            return 0
        if last >= 0xC0:
            return count if (last >= 0xE0) + (last >= 0xF0) + 2 > count else 0
    return 0


def _read_text(file: OpenFile) -> Iterator[FoundText]:
    """Documents separated by blank lines, or one a line where there is no blank line for long."""
    start = file.start
    one_a_line = not _is_short(file) and _is_one_a_line(file.path)
    if one_a_line and start.at_start:
        file.report.note("file without blank lines, read as one document per line", str(file.path))
    lines = read_lines(file.stream, file.path, file.report, position=start.position, line=start.line, cut=True)
    paragraphs: list[str] = []
    characters = 0
    end = number = 0
    for text, following, number in lines:
        paragraph = text.strip()
        if paragraphs and paragraph and characters + len(paragraph) > documents.LONGEST_DOCUMENT:
            file.report.note(documents.CUT_DOCUMENT, f"{file.path}:{number}")
            yield FoundText("\n".join(paragraphs), end, number - 1)
            paragraphs, characters = [], 0
        end = following
        if paragraph:
            paragraphs.append(paragraph)
            characters += len(paragraph) + 1
        if paragraphs and (one_a_line or not paragraph):
            yield FoundText("\n".join(paragraphs), end, number)
            paragraphs, characters = [], 0
    if paragraphs:
        yield FoundText("\n".join(paragraphs), end, number)


def _is_short(file: OpenFile) -> bool:
    """Whether a whole file is before the reader, and has fewer lines than tell that none of them is blank."""
    if not file.start.at_start or not isinstance(file.stream, io.BufferedReader):
        return False
    waiting = file.stream.peek(opening.BUFFER_BYTES)
    is_whole = len(waiting) < opening.BUFFER_BYTES and opening.damage_of(file.stream) is None
    return is_whole and waiting.count(b"\n") + 1 < PROBED_LINES


def _is_one_a_line(path: FilePath) -> bool:
    """Whether the beginning of a file is long and has no blank line."""
    silent = SourceReport()
    with open_file(path, silent) as stream:
        for text, end, number in read_lines(stream, path, silent, cut=True):
            if not text or text.isspace():
                return False
            if number >= PROBED_LINES or end >= documents.LONGEST_LINE:
                return True
    return False


def _read_markup(file: OpenFile) -> Iterator[FoundText]:
    """The prose of a Markdown or reStructuredText page, as one document."""
    if file.start.position:
        return
    lines: list[str] = []
    characters = 0
    last = FoundText("", 0, 0)
    for last in read_lines(file.stream, file.path, file.report, cut=True):
        characters += len(last.text) + 1
        if characters > documents.LONGEST_PAGE:
            file.report.note(
                f"page longer than {documents.LONGEST_PAGE:,} characters, read up to there", str(file.path)
            )
            break
        lines.append(last.text)
    if last.line:
        yield last._replace(text="\n".join(prose.extract_prose("\n".join(lines)).paragraphs))


def _json_lines(file: OpenFile) -> Iterator[tuple[FoundText, str, Any]]:
    """Iterate over lines of JSON: each with its place and value; invalid ones are counted."""
    start = file.start
    for line in read_lines(file.stream, file.path, file.report, position=start.position, line=start.line):
        if not line.text or line.text.isspace():
            continue
        where = f"{file.path}:{line.line}"
        try:
            value = json.loads(line.text)
        except (ValueError, RecursionError):
            file.report.note("line of invalid JSON", where)
            continue
        yield line, where, value


def _read_jsonl(file: OpenFile) -> Iterator[FoundText]:
    column = file.text_column
    for line, where, row in _json_lines(file):
        if not isinstance(row, dict):
            file.report.note("JSON line that is not an object", where)
        elif column not in row:
            file.report.note(f"{OTHER_COLUMN} '{column}'", f"{where}, which has {list_columns(row)}")
        elif (text := documents.text_value(row[column], where, column, file.report)) is not None:
            yield line._replace(text=text)


def _read_jsonl_rows(file: OpenFile) -> Iterator[PlacedRow]:
    for _, where, value in _json_lines(file):
        yield from _rows_of(value, where, file)


def _read_json_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """A list of rows, also under `data`; SQuAD's articles; or a row a line, which is often named `.json` too."""
    content = opening.read_whole(file.stream, file.path)
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
                f"The article at {where} is not in the format of SQuAD: paragraphs, each with a context and qas."
            ) from error
        for number, (context, qa) in enumerate(pairs, start=1):
            yield PlacedRow(f"{where}, question {qa.get('id', number)}", {"context": context, **qa})


def _read_csv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    cut = False

    def lines() -> Iterator[str]:
        nonlocal cut
        yield from (f"{line.text}\n" for line in read_lines(file.stream, file.path, file.report))
        cut = opening.damage_of(file.stream) is not None

    reader = csv.reader(lines())
    try:
        # A quoted field may hold newlines: a row is known by its last line, and one that ends with damage is not whole.
        yield from _named_rows(((reader.line_num, fields) for fields in reader if not cut), file)
    except csv.Error as error:
        raise CorpusError(f"Cannot read '{file.path}' near line {reader.line_num} as CSV: {error}.") from error


def _read_tsv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Fields between tabs, as they are: a quotation mark is a character like any other, as in GLUE."""
    lines = read_lines(file.stream, file.path, file.report)
    yield from _named_rows(((number, text.split("\t") if text else []) for text, _, number in lines), file)


def _named_rows(rows: Iterable[tuple[int, list[str]]], file: OpenFile) -> Iterator[PlacedRow]:
    """Name the fields after the header: the first row, unless it is given."""
    header = list(file.header)
    for number, fields in rows:
        where = f"{file.path}:{number}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            twice = {name for name in header if name and header.count(name) > 1}
            if twice:
                raise CorpusError(f"The header of '{file.path}' names the column '{min(twice)}' twice: rename one.")
        elif len(fields) < len(header) or (len(fields) > len(header) and not file.header):
            file.report.note("row whose number of fields differs from the header's", where)
        else:
            yield PlacedRow(where, dict(zip(header, fields, strict=False)))


# A language of Wikipedia before a word, such as `es:` or `zh-min-nan:`, and the lines of a table that are looked at.
_LANGUAGE = re.compile(r"[a-z]{2,}(?:-[a-z]+)*:")
_LINES_THAT_SHOW_A_LANGUAGE = 1_000


def _read_sentences(file: OpenFile) -> Iterator[PlacedRow]:
    """Sentences of words, as CoNLL's tasks have them: a word a line, a blank line between sentences.

    A row has its words as `tokens` and their last fields as `tags`, and all fields under their numbers, from "1".
    Fields stand between tabs, or white space where there is no tab. Lines between documents (`-DOCSTART-`) end a
    sentence; of CoNLL-U comments, ranges and empty nodes are skipped. A language before every word is taken off.
    """
    universal = suffix_of(file.path) == ".conllu"
    words: list[list[str]] = []
    first = 0
    lines = read_lines(file.stream, file.path, file.report)
    beginning = list(islice(lines, _LINES_THAT_SHOW_A_LANGUAGE))
    language = _language_before_words(beginning)
    if language:
        file.report.note(f"table whose words begin with their language ('{language}'), removed", str(file.path))
    for text, _, number in chain(beginning, lines, [FoundText("", 0, 0)]):
        fields = _fields_of(text)
        if language and len(fields) > 1:
            fields[0] = fields[0].removeprefix(language) or fields[0]
        ends = not text.strip() or fields[0] == "-DOCSTART-"
        if ends and words:
            yield PlacedRow(f"{file.path}:{first}", _sentence(words, f"{file.path}:{first}"))
            words = []
        elif not ends and not (universal and not fields[0].isdecimal()):
            first = first if words else number
            words.append(fields)


def _fields_of(line: str) -> list[str]:
    """Return the fields of a word's line: between tabs, or white space where there is no tab."""
    return line.split("\t") if "\t" in line else line.split()


def _language_before_words(lines: Sequence[FoundText]) -> str:
    """Return what stands before each word of a table, such as `es:` in the files of PAN-X; nothing if words differ.

    Args:
        lines: The first of the table.
    """
    words = [fields[0] for line in lines if len(fields := _fields_of(line.text)) > 1 and fields[0] != "-DOCSTART-"]
    found = _LANGUAGE.match(words[0]) if len(words) > 1 else None
    return found[0] if found is not None and all(word.startswith(found[0]) for word in words) else ""


def _sentence(words: list[list[str]], where: str) -> dict[str, list[str]]:
    """Return the columns of a sentence."""
    width = min(map(len, words))
    if width == 1 and any(len(fields) > 1 for fields in words):
        bare = next(fields[0] for fields in words if len(fields) == 1)
        raise CorpusError(f"The sentence at {where} has no tag for '{bare[:40]}': give every word a line with its tag.")
    columns = {"tokens": [fields[0] for fields in words]} | (
        {"tags": [fields[-1] for fields in words]} if width > 1 else {}
    )
    return columns | {str(place + 1): [fields[place] for fields in words] for place in range(width)}


def _parquet_content(file: OpenFile) -> Any:
    # Parquet is read from its end; a compressed stream cannot seek, so it is unpacked into memory.
    if not is_compressed(file.path):
        return file.stream
    from pyarrow import BufferReader

    return BufferReader(opening.read_whole(file.stream, file.path))


def _open_parquet(content: Any, **options: Any) -> pq.ParquetFile:
    """Open a parquet file; one that claims to unpack out of all proportion is refused before it does."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(content, buffer_size=_PARQUET_BUFFER, pre_buffer=False, **options)
    for column in _column_chunks(table.metadata):
        if column.total_uncompressed_size > documents.most_unpacked(column.total_compressed_size):
            raise opening.DamagedError(f"a column unpacks to more than {documents.MOST_EXPANSION} times its size")
    return table


def _column_chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            yield metadata.row_group(group).column(number)


def _parquet_text_size(file: OpenFile) -> int:
    columns = _column_chunks(_open_parquet(file.stream).metadata)
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema == file.text_column)


def _read_parquet(file: OpenFile) -> Iterator[FoundText]:
    """The strings of the text column, in bounded batches, whatever the file claims to hold."""
    path, column, before, report = file.path, file.text_column, file.start.position, file.report
    content = _parquet_content(file)
    table = _open_parquet(content)
    names = table.schema_arrow.names
    problem = ""
    if column not in names:
        problem, where = f"{OTHER_COLUMN} '{column}'", f"{path}, which has {list_columns(names)}"
    elif not _is_string(kind := table.schema_arrow.field(column).type):
        problem, where = f"column '{column}' that is not text", f"{path}, {one_line(kind)}"
    if problem:
        if before == 0:
            report.note(problem, where, max(table.metadata.num_rows, 1))
        return
    # A dictionary is kept as one: a long text that many rows name is in memory once.
    table = _open_parquet(content, read_dictionary=[column], metadata=table.metadata)
    number = 0
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        if number + described.num_rows <= before:
            number += described.num_rows
            continue
        row_bytes = described.total_byte_size // max(described.num_rows, 1)
        size = max(1, min(_PARQUET_ROWS, _PARQUET_BYTES // max(row_bytes, 1)))
        for batch in table.iter_batches(batch_size=size, row_groups=[group], columns=[column]):
            values = batch.column(0)
            for row in range(max(before, number) + 1, number + len(values) + 1):
                where = f"{path}:{row}"
                text = documents.text_value(_decoded(values[row - number - 1], where, report), where, column, report)
                if text is not None:
                    yield FoundText(text, row, row)
            number += len(values)


TABLES = (".csv", ".tsv", ".txt")
"""Kinds of files whose first line has the names of the columns."""
_WORDS_OF_A_TEXT = 4


def headless(row: PlacedRow) -> str | None:
    """Return that a row's table has no header, to begin an error with, if the name of a column is a whole text."""
    place = row.where.rpartition(":")[0]
    text = next((name for name in map(str, row.values) if len(name.split()) >= _WORDS_OF_A_TEXT), None)
    if text is None or PurePosixPath(place).suffix not in TABLES:
        return None
    return f"{place} has no header: its first line would name a column '{text[:40]}'"


def list_columns(names: Any) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    return ", ".join(one_line(name)[:60] for name in sorted(map(str, names))[:8]) or "no columns"


def _is_string(kind: pa.DataType) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _decoded(value: pa.Scalar, where: str, report: SourceReport) -> str | None:
    """Decode one string; Arrow itself does not look at the bytes before they are asked for."""
    from pyarrow import DictionaryScalar

    if isinstance(value, DictionaryScalar):
        value = value.value
    if not value.is_valid:
        return None
    raw = value.as_buffer().to_pybytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report.note("row with bytes that are not UTF-8", where)
        return raw.decode(errors="replace")


def class_names(features: datasets.Features | None) -> dict[str, tuple[str, ...]]:
    """Return the class names of every `ClassLabel` column, and of every column of lists of them.

    Args:
        features: Columns of a data set; `None` if they are not known before reading.
    """
    if not features:
        return {}
    from datasets import ClassLabel

    known = {name: getattr(kind, "feature", kind) for name, kind in features.items()}
    return {name: tuple(kind.names) for name, kind in known.items() if isinstance(kind, ClassLabel)}


def _read_parquet_rows(file: OpenFile) -> Iterator[PlacedRow]:
    from datasets import Features

    table = _open_parquet(_parquet_content(file))
    names = class_names(Features.from_arrow_schema(table.schema_arrow))
    number = 0
    for batch in table.iter_batches(batch_size=_PARQUET_ROWS):
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:  # Strings that are not UTF-8, times that no calendar has.
            raise opening.DamagedError(f"a value that cannot be read: {error}") from error
        for values in rows:
            number += 1
            yield PlacedRow(f"{file.path}:{number}", values, names)


FILE_KINDS.register(".json", FileKind(rows=_read_json_rows))
FILE_KINDS.register(".jsonl", FileKind(texts=_read_jsonl, rows=_read_jsonl_rows))
FILE_KINDS.register(".csv", FileKind(rows=_read_csv_rows))
FILE_KINDS.register(".tsv", FileKind(rows=_read_tsv_rows, sentences=_read_sentences))
# In a folder of labelled rows a text file is more likely a README than a table.
FILE_KINDS.register(".txt", FileKind(_read_text, _read_tsv_rows, _read_sentences, rows_in_folders=False))
FILE_KINDS.register(
    ".parquet", FileKind(_read_parquet, _read_parquet_rows, is_binary=True, text_size=_parquet_text_size)
)
for _suffix in (".conll", ".conllu", ".bio", ".iob", ".iob2"):
    FILE_KINDS.register(_suffix, FileKind(rows=_read_sentences))
FILE_KINDS.register(".md", FileKind(texts=_read_markup))
FILE_KINDS.register(".rst", FileKind(texts=_read_markup))
