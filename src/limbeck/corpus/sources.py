"""Sources: what a recipe or a command line names, as documents or labelled rows, read from any position on.

`SOURCES` is the one list of the kinds of sources; each says which strings name one, and how it is opened and checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from limbeck.corpus import file_kinds, installed_docs
from limbeck.corpus.addresses import file_size, is_remote
from limbeck.corpus.file_sources import Files, check_files, find_files, path_of
from limbeck.corpus.hub import HUB_PREFIX, HubDataset, names_hub_dataset
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_kinds import SOURCES, RowSource, Source, SourceKind, source_kind
from limbeck.errors import CorpusError


def open_source(text: str, text_column: str = "text", workers: int | None = None) -> Source:
    """Open the source that a string names.

    Args:
        text: A file, folder or glob pattern; an address such as `https://host/file.jsonl` or `s3://bucket/*.parquet`;
            `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name` where there is no such path;
            `installed-docs`, or `installed-docs:FOLDER` for the Python files of one folder; `installed-text` the same,
            with the pages beside them.
        text_column: Column of the text, for kinds that have columns.
        workers: Processes for sources that are read in parallel.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    source: Source = source_kind(text).open(text, text_column, workers)
    return source


def open_rows(text: str, header: Sequence[str] = ()) -> RowSource:
    """Open the source of labelled rows that a string names.

    Args:
        text: A file, folder, glob pattern or address; `hub:owner/name[:config][@split][#revision]`, or a bare
            `owner/name` where there is no such path. A `.txt` file is read as TSV where it is named, and skipped in
            a folder.
        header: Names of the fields of its tables, where these have no header.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    kind = source_kind(text)
    if not kind.is_labelled:
        raise CorpusError(f"The source '{text}' has no labels: leave out the task, or give labelled rows.")
    source: RowSource = kind.open(text, None, None)
    return replace(source, header=tuple(header)) if isinstance(source, Files) and header else source


def check_source(text: str, content: file_kinds.Content | None = None) -> None:
    """Refuse a path that is not there before models are loaded; other kinds are checked when they are read.

    Args:
        text: The source string.
        content: What its files are to be read as; None says nothing of them.

    Raises:
        CorpusError: if the string names nothing, or with `content` only files that are empty or of other kinds.
    """
    kind = source_kind(text)
    if kind.check is not None:
        kind.check(text)
    column = "" if content == "texts" else None
    if content is not None and is_here(text) and find_files(text, column).stored_size() == 0:
        raise CorpusError(f"The source '{safe_name(text)}' holds no {content}: its files are empty.")


def shards_of(source: Source) -> Any:
    """Return names and sizes of a source's shards, wherever it lies; of one that has no files what it is known by."""
    if not isinstance(source, Files):
        return source.fingerprint()
    names = [PurePosixPath(file) for file in map(str, source.files)]
    # A lone file may have any name.
    place = os.path.commonpath([name.parent for name in names]) if len(names) > 1 else names[0]
    relative = [str(name.relative_to(place)) for name in names]
    return ["files", [[name, file_size(file)] for name, file in zip(relative, source.files, strict=True)]]


def stored_size(text: str) -> int | None:
    """Return the size of the files that a string names as they are stored, or `None` where asking needs a network.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if not is_here(text):
        return None
    return find_files(text, "").stored_size()


def local_files(sources: Iterable[str]) -> list[Path]:
    """Return the files of this machine that some sources of labelled rows name, resolved.

    Raises:
        CorpusError: for a path that names nothing, or nothing that can be read.
    """
    return [Path(place) for text in filter(is_here, sources) for place in find_files(text).places]


def is_here(text: str) -> bool:
    """Whether a string names files of this machine."""
    return source_kind(text) is SOURCES["files"] and not is_remote(text)


def _docs_folders(text: str) -> list[Path]:
    folder = text.partition(":")[2]
    return [path_of(folder)] if folder else []


SOURCES.register("files", SourceKind("", lambda _: True, lambda text, column, _: find_files(text, column), check_files))
SOURCES.register(
    "hub",
    SourceKind(
        "hub:owner/name",
        names_hub_dataset,
        lambda text, column, _: HubDataset(text.removeprefix(HUB_PREFIX), column or ""),
    ),
)


def _installed_kind(source: type[installed_docs.InstalledDocs]) -> SourceKind:
    return SourceKind(
        source.name,
        lambda text: text.partition(":")[0] == source.name,
        lambda text, _, workers: source(_docs_folders(text), workers),
        lambda text: check_files(text.partition(":")[2] or "."),
        is_labelled=False,
    )


for _source in (installed_docs.InstalledDocs, installed_docs.InstalledText):
    SOURCES.register(_source.name, _installed_kind(_source))
