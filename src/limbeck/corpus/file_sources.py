"""Files as a source: those that a path, a folder, a pattern or an address names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic, iglob
from itertools import accumulate
from pathlib import Path
from typing import Any

from limbeck.core.beside import tried_beside
from limbeck.core.collecting import without_collecting
from limbeck.corpus import file_kinds, readers
from limbeck.corpus.addresses import (
    GLOB_CHARACTERS,
    UNKNOWN_SIZE,
    FilePath,
    file_size,
    file_system,
    is_compressed,
    is_remote,
    reaching,
)
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.documents import Document, Step
from limbeck.corpus.file_kinds import FILE_KINDS, PlacedRow, suffix_of
from limbeck.corpus.hub import HUB_NAME, HUB_PREFIX
from limbeck.corpus.listing import list_files, match_pattern, supported_types
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_kinds import STEP_EVERY, source_forms
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

_SIZED_FILES = 16


@dataclass
class Files:
    """Documents or labelled rows of files, in the order given; every file is a shard.

    Args:
        files: Files of known kinds.
        places: Their paths without links; of remote ones the addresses.
        ignored: Files that were found beside them and are of no known kind.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.
        header: Names of the fields of tables without a header.
    """

    files: Sequence[FilePath]
    places: Sequence[str]
    ignored: Sequence[FilePath]
    text_column: str | None
    header: tuple[str, ...] = ()

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        column: list[Any] = [] if self.text_column is None else [self.text_column]
        column += [list(self.header)] if self.header else []
        return ["files", *column, list(map(_file_state, self.files, self.places))]

    def shards(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one file; see `read_file`."""
        return readers.read_file(self.files[shard], self.text_column or "", report, cursor)

    def stored_size(self) -> int | None:
        """Return the size of all files as they are stored, or `None` if a server does not state one."""
        size = sum(map(file_size, self.files))
        return size if size < UNKNOWN_SIZE else None

    def size(self) -> int | None:
        """Return about how many bytes of text there are, judged by a few of the files; see `text_size`."""
        stored = self.stored_size()
        if stored is None:
            return None
        sample = self.files[:: -(-len(self.files) // _SIZED_FILES)]
        text = sum(readers.text_size(file, self.text_column or "") for file in sample)
        return stored * text // max(sum(map(file_size, sample)), 1)

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the stored bytes that were read, and those of all files.
            cursor: Where to begin.
        """
        cursor = cursor or Cursor()
        if cursor.shard == 0 and cursor.at_start:
            self._report_ignored(report)
        tell = self._byte_counter(progress, cursor)
        tell()
        while cursor.shard < len(self.files):
            for number, document in enumerate(self.read(cursor.shard, cursor, report), start=1):
                if number % STEP_EVERY == 0:
                    tell()
                yield document
            cursor.move(cursor.shard + 1)
            tell()

    def rows(
        self, report: SourceReport, progress: Step | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read, the number of all files and their unit.
            of_words: Read tables as sentences of tagged words; see `read_rows`.
        """
        self._report_ignored(report)
        for done, path in enumerate([*self.files, None]):
            if progress is not None:
                progress(done, len(self.files), "files")
            if path is not None:
                yield from readers.read_rows(path, report, of_words=of_words, header=self.header)

    def _report_ignored(self, report: SourceReport) -> None:
        for path in self.ignored:
            report.note("file of another kind, skipped", str(path))

    def _byte_counter(self, progress: Step | None, cursor: Cursor) -> Callable[[], None]:
        """Return a function that reports the stored bytes before the cursor."""
        ends = [0] if progress is None else [0, *accumulate(map(file_size, self.files))]

        def tell() -> None:
            if progress is None:
                return
            done = ends[cursor.shard]
            path = self.files[cursor.shard] if cursor.shard < len(self.files) else None
            # Elsewhere a position does not count stored bytes.
            if cursor.position and path and not is_compressed(path) and not FILE_KINDS[suffix_of(path)].is_binary:
                done = min(done + int(cursor.position), ends[cursor.shard + 1])
            progress(done, ends[-1] if ends[-1] < UNKNOWN_SIZE else None, "bytes")

        return tell


def _file_state(file: FilePath, place: str) -> list[Any]:
    """Return resolved path, size and time of change of a file; of a remote one the address and its state there."""
    if isinstance(file, str):
        with reaching(f"Cannot reach '{safe_name(file)}'"):
            system, name = file_system(file)
            return [file, str(system.ukey(name))]
    try:
        stat = file.stat()
        return [place, stat.st_size, stat.st_mtime_ns]
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(file)}': {error.strerror}.") from error


@without_collecting()
def find_files(text: str, text_column: str | None = None) -> Files:
    """Find the files that a file, folder, glob pattern or address names.

    Args:
        text: The source string.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    suffixes = file_kinds.readable_suffixes("rows" if text_column is None else "texts")
    if is_remote(text):
        return Files(*_find_remote(text, suffixes), text_column)
    path = path_of(text)
    if is_there(path):
        if text_column is None and path.is_dir():
            suffixes = [suffix for suffix in suffixes if FILE_KINDS[suffix].rows_in_folders]
        return Files(*list_files([path], text, suffixes), text_column)
    if GLOB_CHARACTERS.intersection(text):
        return Files(*list_files(match_pattern(path), text, suffixes), text_column)
    on_hub = f" For a Hub data set, write '{HUB_PREFIX}{safe_name(text)}'." if HUB_NAME.fullmatch(text) else ""
    raise CorpusError(f"There is no file, folder or data set '{safe_name(text)}'.{_nearby(path)}{on_hub}")


def check_files(text: str) -> None:
    """Refuse a path or pattern without a file or folder; addresses are checked when they are read.

    Raises:
        CorpusError: if there is none.
    """
    path = path_of(text)
    # Path.glob would raise for patterns that are refused in one line when they are read.
    if is_remote(text) or is_there(path) or (has_magic(text) and any(iglob(str(path), recursive=True))):  # noqa: PTH207
        return
    forms = ", ".join(["a file", "a folder", "a glob", *source_forms()[:-1]])
    raise CorpusError(
        f"Corpus source '{safe_name(text)}' does not exist{tried_beside(text)}; give {forms} or {source_forms()[-1]}."
    )


def path_of(text: str) -> Path:
    """Return a path with its `~` replaced by the home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # Of a user without a home.
        return Path(text)


def is_there(path: Path) -> bool:
    """Whether there is something at a path."""
    try:
        return path.exists()
    except (OSError, ValueError):  # A name too long for the system, or with a NUL.
        return False


def _find_remote(text: str, suffixes: Collection[str]) -> tuple[list[str], list[str], list[str]]:
    with reaching(f"Cannot reach '{safe_name(text)}'"):
        system, name = file_system(text)
        if GLOB_CHARACTERS.intersection(name):
            found = sorted(system.glob(name))
        else:
            found = sorted(system.find(name)) if system.isdir(name) else [name] if system.exists(name) else []
        addresses = [system.unstrip_protocol(path) for path in found]
    files = [address for address in addresses if suffix_of(address) in suffixes]
    if not addresses:
        raise CorpusError(f"There is no file at '{safe_name(text)}': check the address.")
    if not files:
        raise CorpusError(
            f"'{safe_name(text)}' names no file of a supported type: {supported_types(suffixes, addresses[0])}"
        )
    return files, files, [address for address in addresses if address not in files]


def _nearby(path: Path) -> str:
    """Return the end of an error line that names the nearest path that exists, if one is near."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return f" Sources are {', '.join(['paths', 'globs', *source_forms()[:-1]])} and {source_forms()[-1]}."
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f" Did you mean '{safe_name(path.parent / near[0])}'?"
    form = difflib.get_close_matches(str(path), source_forms(), n=1)
    return f" Did you mean '{form[0]}'?" if form else ""
