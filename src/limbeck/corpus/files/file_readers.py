"""Reading the documents or labelled rows of a file, by the kind of file that its suffix names.

`FILE_KINDS` is the one list of the kinds: sources, recipes and tasks ask it which files there are.
"""

import io
from collections.abc import Iterator
from dataclasses import replace

from limbeck.core.registry import Registry
from limbeck.corpus.files import addresses, limits, opening
from limbeck.corpus.files.addresses import FilePath, is_compressed
from limbeck.corpus.files.file_kinds import (
    UNKNOWN_LAYOUT,
    Content,
    FileKind,
    OpenFile,
    PlacedRow,
    Separator,
    TableLayout,
    suffix_of,
)
from limbeck.corpus.files.json_files import read_json_rows, read_jsonl, read_jsonl_rows
from limbeck.corpus.files.opening import open_file
from limbeck.corpus.files.parquet_files import parquet_text_size, read_parquet, read_parquet_rows
from limbeck.corpus.files.saved_datasets import read_arrow, read_arrow_rows
from limbeck.corpus.files.table_files import read_csv_rows, read_csv_texts, read_tsv_rows, read_tsv_texts
from limbeck.corpus.files.tagged_files import read_sentences
from limbeck.corpus.files.text_files import read_markup, read_text
from limbeck.corpus.files.tmx_files import read_tmx_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

FILE_KINDS: Registry[FileKind] = Registry("kind of file", CorpusError)
"""Suffix → kind of file."""

# Bytes at the beginning of a compressed file's content, by which the size of the whole content is estimated.
_SAMPLED_BYTES = 2**22


def readable_suffixes(content: Content) -> list[str]:
    """Return the suffixes of the files that hold texts, or labelled rows."""
    suffixes: list[str] = []
    for suffix, file_kind in FILE_KINDS.items():
        reader = file_kind.texts if content == "texts" else file_kind.rows
        if reader is not None:
            suffixes.append(suffix)
    return suffixes


def names_file(path: FilePath) -> bool:
    """Whether the suffix of a path is that of a compressed file or of a kind of file that can be read."""
    return is_compressed(path) or suffix_of(path) in FILE_KINDS


def read_file(
    path: FilePath, text_column: str, report: SourceReport, cursor: Cursor, separator: Separator | None = None
) -> Iterator[Document]:
    """Iterate over the documents of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        text_column: Column of the text, for kinds that have columns.
        report: Receives everything that is skipped or repaired.
        cursor: Position at which reading begins. It is moved behind every document before that is given.
        separator: Separates the documents of a text file; None finds it out by the file.

    Raises:
        CorpusError: if the operating system refuses to read the file.
    """
    kind = FILE_KINDS[suffix_of(path)]
    assert kind.texts is not None, path
    # The cursor moves while the file is read, and the reader needs the position at which it began.
    start = replace(cursor)
    position = 0 if kind.counts_rows else start.position
    with open_file(path, report, position, is_binary=kind.is_binary) as stream:
        # A remote parquet file has no buffer that can be peeked at.
        is_empty = cursor.at_start and isinstance(stream, io.BufferedReader) and not stream.peek(1)
        if is_empty:
            # A file that is damaged at its beginning is reported as damaged when it is closed.
            if opening.damage_of(stream) is None:
                report.note("empty file", str(path))
            return

        # A small file may give text without end: a dictionary column of parquet can refer to one long text again and
        # again. So the characters are counted, and compared with the size of the file.
        characters = 0
        most_characters: int | None = None
        texts = kind.texts(OpenFile(stream, path, text_column, report, start, separator=separator))
        for text in documents.texts_behind(cursor, texts, report):
            where = f"{path}:{text.line}" if text.line else str(path)
            yield from documents.split_documents(text, where, cursor, report)
            characters += len(text.text)
            if characters <= limits.EXPANSION_FREE:
                continue
            # The size, of a remote file a request, is asked for once, and only when much text has been read.
            if most_characters is None:
                most_characters = limits.most_unpacked(addresses.file_size(path))
            if characters > most_characters:
                report.note(
                    opening.DAMAGED,
                    f"{path}: it unpacks to more than {limits.MOST_EXPANSION} times its size, as files made to fill "
                    "a disk do",
                )
                return


def read_rows(
    path: FilePath, report: SourceReport, *, of_words: bool = False, layout: TableLayout = UNKNOWN_LAYOUT
) -> Iterator[PlacedRow]:
    """Iterate over the rows of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        report: Receives everything that is skipped or repaired.
        of_words: Read tables as tagged sentences: a line for each word with its tag, a blank line between sentences.
        layout: Layout of a table.

    Raises:
        CorpusError: if the operating system refuses to read the file, or its layout is wrong.
    """
    kind = FILE_KINDS[suffix_of(path)]
    read = kind.rows
    if of_words and kind.sentences is not None:
        read = kind.sentences
    assert read is not None, path
    with open_file(path, report, is_binary=kind.is_binary) as stream:
        yield from read(OpenFile(stream, path, "", report, layout=layout))


def text_size(path: FilePath, text_column: str) -> int:
    """Estimate the bytes of text in a file: for parquet the size of its text, otherwise the size of the file.

    For a compressed file the size of its content is estimated, as if all of it were packed as densely as the first
    4 MiB.

    Args:
        path: The file.
        text_column: Column of the text, for parquet; empty for labelled rows, of which all columns count.
    """
    kind = FILE_KINDS[suffix_of(path)]
    stored_size = addresses.file_size(path)
    unused_report = SourceReport()
    with open_file(path, unused_report, is_binary=kind.is_binary) as stream:
        if is_compressed(path):
            sampled_size = len(stream.read(_SAMPLED_BYTES))
            if sampled_size < _SAMPLED_BYTES:  # The whole file was read.
                return sampled_size
            # The stream of a compressed file has a `GuardedStream` below its buffer.
            packed_size = stream.raw.packed_position()  # type: ignore[attr-defined]
            return stored_size * sampled_size // max(packed_size, 1)
        if kind.text_size is not None:
            return kind.text_size(OpenFile(stream, path, text_column, unused_report))
    return stored_size


FILE_KINDS.register(".json", FileKind(rows=read_json_rows))
FILE_KINDS.register(".jsonl", FileKind(texts=read_jsonl, rows=read_jsonl_rows))
FILE_KINDS.register(".ndjson", FILE_KINDS[".jsonl"])
# In a folder of text a table is more likely something else. It is read as text where it is named.
FILE_KINDS.register(".csv", FileKind(read_csv_texts, read_csv_rows, texts_in_folders=False, counts_rows=True))
FILE_KINDS.register(
    ".tsv", FileKind(read_tsv_texts, read_tsv_rows, read_sentences, texts_in_folders=False, counts_rows=True)
)
# In a folder of labelled rows a text file is more likely a README than a table.
FILE_KINDS.register(".txt", FileKind(read_text, read_tsv_rows, read_sentences, rows_in_folders=False))
FILE_KINDS.register(
    ".parquet",
    FileKind(read_parquet, read_parquet_rows, is_binary=True, counts_rows=True, text_size=parquet_text_size),
)
FILE_KINDS.register(".arrow", FileKind(read_arrow, read_arrow_rows, is_binary=True, counts_rows=True))
for _suffix in (".conll", ".conllu", ".bio", ".iob", ".iob2"):
    FILE_KINDS.register(_suffix, FileKind(rows=read_sentences))
# A translation memory has a sentence in several languages a row, and no labels, so a folder of rows passes over it.
FILE_KINDS.register(".tmx", FileKind(rows=read_tmx_rows, rows_in_folders=False, is_binary=True))
FILE_KINDS.register(".md", FileKind(texts=read_markup))
FILE_KINDS.register(".rst", FileKind(texts=read_markup))
