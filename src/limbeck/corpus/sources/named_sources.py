"""Sources by their names: opening and checking the sources that a recipe or a command line names.

`SOURCES` is the one list of the kinds of sources, see `SourceKind`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from limbeck.corpus.files import file_kinds
from limbeck.corpus.files.addresses import FilePath, file_size, is_remote
from limbeck.corpus.files.file_kinds import UNKNOWN_LAYOUT, TableLayout
from limbeck.corpus.files.file_readers import FILE_KINDS
from limbeck.corpus.files.table_files import COLUMN_FOUND
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings.parallel import names_parallel_text
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.file_sources import ANY_TEXT_COLUMN, Files, check_files, expand_home, find_files
from limbeck.corpus.sources.hub_datasets import HUB_PREFIX, HubDataset, names_hub_dataset
from limbeck.corpus.sources.installed_docs import InstalledDocs, InstalledText
from limbeck.corpus.sources.parallel_text import ParallelText, open_parallel_text
from limbeck.corpus.sources.source_kinds import SOURCES as SOURCES
from limbeck.corpus.sources.source_kinds import RowSource, Source, SourceKind
from limbeck.corpus.sources.text_lines import TextLines
from limbeck.corpus.sources.wordnet import WordNet
from limbeck.errors import CorpusError


def source_kind(text: str) -> SourceKind:
    """Return the kind of source that a string names; any string may name files."""
    kinds = [kind for _, kind in SOURCES.items()]
    # Files match every string. They were registered first, so they are asked last.
    for kind in reversed(kinds):
        if kind.matches(text):
            return kind
    raise AssertionError("any string may name files")


def open_source(
    text: str,
    text_column: str = "text",
    workers: int | None = None,
    separator: file_kinds.Separator | None = None,
) -> Source:
    """Open the source that a string names.

    Args:
        text: A file, folder or glob pattern; an address such as `https://host/file.jsonl` or `s3://bucket/*.parquet`;
            `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name` where there is no such path;
            `installed-docs`, or `installed-docs:FOLDER` for the Python files of one folder; `installed-text` or
            `installed-text:FOLDER`, which have pages such as read-me files too; `wordnet`, definitions and example
            sentences that come with limbeck.
        text_column: Column of the text, for kinds that have columns.
        workers: Processes for sources that are read in parallel.
        separator: Separates the documents of text files; None finds it out by each file.

    Raises:
        CorpusError: if the string names nothing, or nothing that can be read.
    """
    source: Source = source_kind(text).open(text, text_column, workers)
    if isinstance(source, Files):
        return replace(source, separator=separator)
    return source


def open_rows(text: str, layout: TableLayout = UNKNOWN_LAYOUT, text_of_line: str | None = None) -> RowSource:
    """Open the source of rows that a string names.

    Args:
        text: A file, folder, glob pattern or address; `hub:owner/name[:config][@split][#revision]`, or a bare
            `owner/name` where there is no such path. A `.txt` file is read as TSV where it is named, and skipped in
            a folder.
        layout: Layout of its tables.
        text_of_line: The column that each line of a source of texts fills, where rows have no labels; None where they
            need more than a text.

    Raises:
        CorpusError: if the string names nothing, or nothing that can be read.
    """
    if text_of_line is not None and holds_texts_alone(text):
        return TextLines(safe_name(text), open_source(text), text_of_line)
    kind = source_kind(text)
    if not kind.is_labelled:
        raise CorpusError(
            f"The source '{text}' has only texts, without labels or second texts, but corpus.task needs rows: give "
            "a source of rows, or leave out corpus.task."
        )
    source: RowSource = kind.open(text, None, None)
    if isinstance(source, Files):
        return replace(source, layout=layout)
    return source


def holds_texts_alone(text: str) -> bool:
    """Whether a source has texts and no tables: text files and pages, or docstrings of installed packages.

    A folder or pattern with tables is read as tables, and its text files are left out, as a README is.

    Raises:
        CorpusError: if the string names nothing, or nothing that can be read.
    """
    kind = source_kind(text)
    if not kind.is_labelled:
        return True
    # The other kind with labelled rows is a data set of the Hub, which is a table.
    if kind is not SOURCES["files"]:
        return False
    try:
        files = find_files(text, ANY_TEXT_COLUMN)
    except CorpusError:
        # No file holds texts, so the source is read as a table; the reader of tables refuses it if it is none.
        return False
    return not any(_is_table_in_folder(file) for file in (*files.files, *files.ignored))


def check_source(text: str, content: file_kinds.Content | None = None) -> None:
    """Refuse a source that names no file, early, before models are loaded.

    Hub data sets and addresses are checked when they are read.

    Args:
        text: The source string.
        content: What the files are read as. If it is given, empty files and files of other kinds are refused too.

    Raises:
        CorpusError: if the string names nothing, or with `content` only files that are empty or of other kinds.
    """
    kind = source_kind(text)
    if kind.check is not None:
        kind.check(text)
    if content is None or not _is_local(text):
        return
    # Without a column `find_files` looks for files of labelled rows.
    text_column = ANY_TEXT_COLUMN if content == "texts" else None
    if find_files(text, text_column).stored_size() == 0:
        raise CorpusError(
            f"The source '{safe_name(text)}' holds no {content}: its files are empty, or of other types. Give a "
            f"source with {content}."
        )


def check_text(
    text: str,
    text_column: str,
    separator: file_kinds.Separator | None = None,
    *,
    may_be_rows: bool = False,
    is_named: bool = False,
) -> None:
    """Refuse local files without any text, such as tables without the column, before models are loaded.

    Reading ends at the first text. Other sources are checked when they are read.

    Args:
        text: The source string.
        text_column: Column of the text, for kinds that have columns.
        separator: As for `open_source`.
        may_be_rows: Whether files of types that only rows have, such as `.json`, are passed over.
        is_named: Whether the user named the column, so that no other one is read in its place.

    Raises:
        CorpusError: if the files hold no text, or none in the column that the user named.
    """
    if not _is_local(text):
        return
    try:
        source = open_source(text, text_column, separator=separator)
    except CorpusError:
        if may_be_rows:
            return
        raise
    report = SourceReport()
    first_text = next(source.documents(report), None)
    if first_text is None:
        raise CorpusError(nothing_in(text, "text", report))
    if is_named and any(note.startswith(COLUMN_FOUND) for note in report.counts):
        raise CorpusError(
            f"The source '{safe_name(text)}' has no column '{safe_name(text_column)}': {'; '.join(report.lines())}. "
            "Leave --text-column out to read this column, or name another one."
        )


def shards_of(source: Source) -> Any:
    """Return the names and sizes of a source's files, which stay the same if the files are moved together.

    For a source that has no files, its fingerprint is returned.
    """
    if not isinstance(source, Files):
        return source.fingerprint()
    paths = [PurePosixPath(str(file)) for file in source.files]
    # Names are relative to the lowest folder that has all files. The name of a single file is left out, as ".".
    base = str(paths[0])
    if len(paths) > 1:
        base = os.path.commonpath([path.parent for path in paths])
    shards: list[list[Any]] = []
    for path, file in zip(paths, source.files, strict=True):
        shards.append([str(path.relative_to(base)), file_size(file)])
    return ["files", shards]


def stored_size(text: str) -> int | None:
    """Return the size of the files that a string names, as they are stored; `None` for remote files and other sources.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if not _is_local(text):
        return None
    return find_files(text, ANY_TEXT_COLUMN).stored_size()


def local_files(sources: Iterable[str]) -> list[Path]:
    """Return the local files that some sources of labelled rows name, with links resolved.

    Sources of other kinds, such as Hub data sets, are passed over.

    Raises:
        CorpusError: for a path that names nothing, or nothing that can be read.
    """
    files: list[Path] = []
    for text in sources:
        if _is_local(text):
            files += [Path(place) for place in find_files(text).places]
    return files


def places_of_files(text: str) -> set[str]:
    """Return the local files that a source names, with links resolved; none for a source of another kind.

    Files of texts and of rows are both among them.
    """
    places: set[str] = set()
    if not _is_local(text):
        return places
    for text_column in (ANY_TEXT_COLUMN, None):
        # A source may have files of only one of the two kinds.
        with suppress(CorpusError):
            places.update(find_files(text, text_column).places)
    return places


def _is_local(text: str) -> bool:
    """Whether a string names files of this machine."""
    return source_kind(text) is SOURCES["files"] and not is_remote(text)


def _is_table_in_folder(file: FilePath) -> bool:
    """Whether a file is read as labelled rows where it lies in a folder."""
    suffix = file_kinds.suffix_of(file)
    if suffix not in FILE_KINDS:
        return False
    kind = FILE_KINDS[suffix]
    return kind.rows is not None and kind.rows_in_folders


def _any_text(_text: str) -> bool:
    return True


def _open_files(text: str, text_column: str | None, _workers: int | None) -> Files:
    return find_files(text, text_column)


def _open_hub(text: str, text_column: str | None, _workers: int | None) -> HubDataset:
    return HubDataset(text.removeprefix(HUB_PREFIX), text_column or "")


def _open_parallel(text: str, _text_column: str | None, _workers: int | None) -> ParallelText:
    return open_parallel_text(text)


def _check_parallel(text: str) -> None:
    open_parallel_text(text)


def _installed_kind(cls: type[InstalledDocs]) -> SourceKind:
    """Return the kind of source that `cls` reads. Its strings are the `name` of the class, or `name:FOLDER`."""

    def matches(text: str) -> bool:
        name, _, _ = text.partition(":")
        return name == cls.name

    def open_installed(text: str, _text_column: str | None, workers: int | None) -> InstalledDocs:
        _, _, folder = text.partition(":")
        roots = [expand_home(folder)] if folder else []
        return cls(roots, workers)

    def check(text: str) -> None:
        _, _, folder = text.partition(":")
        if folder:
            check_files(folder)

    return SourceKind(form=cls.name, matches=matches, open=open_installed, check=check, is_labelled=False)


def _names_wordnet(text: str) -> bool:
    return text == WordNet.name


def _open_wordnet(_text: str, _text_column: str | None, _workers: int | None) -> WordNet:
    return WordNet()


SOURCES.register("files", SourceKind(form="", matches=_any_text, open=_open_files, check=check_files))
SOURCES.register("hub", SourceKind(form="hub:owner/name", matches=names_hub_dataset, open=_open_hub))
SOURCES.register(InstalledDocs.name, _installed_kind(InstalledDocs))
SOURCES.register(InstalledText.name, _installed_kind(InstalledText))
SOURCES.register(
    "parallel",
    SourceKind(
        form="parallel: {en: FILE, de: FILE}",
        matches=names_parallel_text,
        open=_open_parallel,
        check=_check_parallel,
        is_labelled=False,
    ),
)
SOURCES.register(
    WordNet.name, SourceKind(form=WordNet.name, matches=_names_wordnet, open=_open_wordnet, is_labelled=False)
)
