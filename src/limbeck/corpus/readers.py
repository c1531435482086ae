"""Kinds of files: how the texts and the labelled rows of each are read, each also through `.gz`, `.xz` and `.zst`.

`FILE_KINDS` is the one list of them: sources, recipes and tasks ask it which files there are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from limbeck.corpus import addresses, documents, limits, opening
from limbeck.corpus.addresses import FilePath, is_compressed
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.documents import Document
from limbeck.corpus.file_kinds import FILE_KINDS, FileKind, OpenFile, PlacedRow, suffix_of
from limbeck.corpus.json_files import read_json_rows, read_jsonl, read_jsonl_rows
from limbeck.corpus.opening import open_file
from limbeck.corpus.parquet_files import parquet_text_size, read_parquet, read_parquet_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tables import read_csv_rows, read_tsv_rows
from limbeck.corpus.tagged_files import read_sentences
from limbeck.corpus.text_files import read_markup, read_text

if TYPE_CHECKING:
    pass

_SIZED_BYTES = 2**22


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
            if characters > limits.EXPANSION_FREE and characters > limits.most_unpacked(addresses.file_size(path)):
                report.note(opening.DAMAGED, f"{path}: it unpacks to more than {limits.MOST_EXPANSION} times its size")
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
    size = addresses.file_size(path)
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


FILE_KINDS.register(".json", FileKind(rows=read_json_rows))
FILE_KINDS.register(".jsonl", FileKind(texts=read_jsonl, rows=read_jsonl_rows))
FILE_KINDS.register(".csv", FileKind(rows=read_csv_rows))
FILE_KINDS.register(".tsv", FileKind(rows=read_tsv_rows, sentences=read_sentences))
# In a folder of labelled rows a text file is more likely a README than a table.
FILE_KINDS.register(".txt", FileKind(read_text, read_tsv_rows, read_sentences, rows_in_folders=False))
FILE_KINDS.register(".parquet", FileKind(read_parquet, read_parquet_rows, is_binary=True, text_size=parquet_text_size))
for _suffix in (".conll", ".conllu", ".bio", ".iob", ".iob2"):
    FILE_KINDS.register(_suffix, FileKind(rows=read_sentences))
FILE_KINDS.register(".md", FileKind(texts=read_markup))
FILE_KINDS.register(".rst", FileKind(texts=read_markup))
