"""`Files`: the files that a path, a folder, a pattern or an address names, as a source of documents or rows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic, iglob
from itertools import accumulate
from pathlib import Path
from typing import Any

from limbeck.core.beside import tried_beside
from limbeck.core.collecting import without_collecting
from limbeck.corpus.files import file_readers
from limbeck.corpus.files.addresses import (
    GLOB_CHARACTERS,
    UNKNOWN_SIZE,
    FilePath,
    file_size,
    file_system,
    is_compressed,
    is_remote,
    one_line_errors,
)
from limbeck.corpus.files.file_kinds import UNKNOWN_LAYOUT, PlacedRow, Separator, TableLayout, suffix_of
from limbeck.corpus.files.file_readers import FILE_KINDS
from limbeck.corpus.files.listing import ListedFiles, list_files, match_pattern, supported_types
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import ITEMS_BETWEEN_REPORTS, StepProgress
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.hub_datasets import HUB_NAME, HUB_PREFIX
from limbeck.corpus.sources.source_kinds import source_forms
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

ANY_TEXT_COLUMN = ""
"""Column of the text for callers of `find_files` that need the files of texts and do not read them."""
_SAMPLED_FILES = 16
"""Files by which the size of the text in all files is estimated."""


@dataclass
class Files:
    """The documents or labelled rows of files, in the order of the files; every file is a shard.

    Args:
        files: Files of known kinds.
        places: For each file its path with links resolved; for a remote file its address.
        ignored: Other files that were found beside them.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.
        layout: Layout of the tables among the files.
        separator: Separates the documents of text files among the files; None finds it out by each file.
    """

    files: Sequence[FilePath]
    places: Sequence[str]
    ignored: Sequence[FilePath]
    text_column: str | None
    layout: TableLayout = UNKNOWN_LAYOUT
    separator: Separator | None = None

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file, and the settings that decide how files are read."""
        # Only settings that were given are in it, so that a new kind of setting leaves other fingerprints as they are.
        settings: list[Any] = []
        if self.text_column is not None:
            settings.append(self.text_column)
        if self.layout != UNKNOWN_LAYOUT:
            settings.append(self.layout)
        if self.separator is not None:
            settings.append({"separator": self.separator})
        states = [file_state(file, place) for file, place in zip(self.files, self.places, strict=True)]
        return ["files", *settings, states]

    def read_files(self) -> Sequence[FilePath]:
        """Return the files."""
        return self.files

    def shards(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one file; see `read_file`."""
        return file_readers.read_file(self.files[shard], self.text_column or "", report, cursor, self.separator)

    def stored_size(self) -> int | None:
        """Return the size of all files as they are stored, or `None` if a server does not state one."""
        size = sum(map(file_size, self.files))
        # An unknown size is very large, so the sum shows it.
        return size if size < UNKNOWN_SIZE else None

    def size(self) -> int | None:
        """Return an estimate of the bytes of text, from a sample of the files; see `text_size`."""
        stored = self.stored_size()
        if stored is None:
            return None
        step = math.ceil(len(self.files) / _SAMPLED_FILES)
        sample = self.files[::step]
        sampled_text = sum(file_readers.text_size(file, self.text_column or "") for file in sample)
        sampled_stored = sum(map(file_size, sample))
        return stored * sampled_text // max(sampled_stored, 1)

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the stored bytes that were read, and those of all files.
            cursor: Position at which reading begins.
        """
        if cursor is None:
            cursor = Cursor()
        if cursor.shard == 0 and cursor.at_start:
            self._report_ignored(report)
        report_bytes = self._byte_reporter(progress, cursor)
        report_bytes()
        while cursor.shard < len(self.files):
            for number, document in enumerate(self.read(cursor.shard, cursor, report), start=1):
                if number % ITEMS_BETWEEN_REPORTS == 0:
                    report_bytes()
                yield document
            cursor.move(cursor.shard + 1)
            report_bytes()

    def rows(
        self, report: SourceReport, progress: StepProgress | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read, the number of all files and their unit.
            of_words: Read tables as sentences of tagged words; see `read_rows`.
        """
        self._report_ignored(report)
        if progress is not None:
            progress(0, len(self.files), "files")
        for done, path in enumerate(self.files, start=1):
            yield from file_readers.read_rows(path, report, of_words=of_words, layout=self.layout)
            if progress is not None:
                progress(done, len(self.files), "files")

    def _report_ignored(self, report: SourceReport) -> None:
        for path in self.ignored:
            report.note("file of another kind, skipped", str(path))

    def _byte_reporter(self, progress: StepProgress | None, cursor: Cursor) -> Callable[[], None]:
        """Return a function that reports how many stored bytes lie in front of the cursor, which moves."""
        if progress is None:
            return lambda: None
        # The bytes of all files in front of each file, and at the end the bytes of all files.
        bytes_before = [0, *accumulate(map(file_size, self.files))]
        total = bytes_before[-1] if bytes_before[-1] < UNKNOWN_SIZE else None

        def report_bytes() -> None:
            done = bytes_before[cursor.shard]
            is_within_file = bool(cursor.position) and cursor.shard < len(self.files)
            if is_within_file and _has_byte_positions(self.files[cursor.shard]):
                done = min(done + int(cursor.position), bytes_before[cursor.shard + 1])
            progress(done, total, "bytes")

        return report_bytes


@without_collecting()
def find_files(text: str, text_column: str | None = None) -> Files:
    """Find the files that a file, folder, glob pattern or address names.

    Args:
        text: The source string.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.

    Raises:
        CorpusError: if the string names nothing, or nothing that can be read.
    """
    path = expand_home(text)
    suffixes = _suffixes_to_find(text, path, has_rows=text_column is None)
    if is_remote(text):
        listed = _list_remote(text, suffixes)
    elif _exists(path):
        listed = list_files([path], text, suffixes)
    elif GLOB_CHARACTERS.intersection(text):
        listed = list_files(match_pattern(path), text, suffixes)
    else:
        hint = _suggest(path)
        if HUB_NAME.fullmatch(text):
            hint += f" For a Hub data set, write '{HUB_PREFIX}{safe_name(text)}'."
        raise CorpusError(f"There is no file, folder or data set '{safe_name(text)}'.{hint}")
    return Files(listed.files, listed.places, listed.ignored, text_column)


def check_files(text: str) -> None:
    """Refuse a path or pattern that leads to no file or folder; addresses are checked when they are read.

    Raises:
        CorpusError: if there is no such file or folder.
    """
    path = expand_home(text)
    if is_remote(text) or _exists(path):
        return
    # Path.glob would raise for patterns that are refused in one line when they are read.
    if has_magic(text) and any(iglob(str(path), recursive=True)):  # noqa: PTH207
        return
    *forms, last_form = ["a file", "a folder", "a glob", *source_forms()]
    raise CorpusError(
        f"Corpus source '{safe_name(text)}' does not exist{tried_beside(text)}; give {', '.join(forms)} or {last_form}."
    )


def expand_home(text: str) -> Path:
    """Return a path in which a `~` at the beginning is replaced by the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # The user has no home folder.
        return Path(text)


def file_state(file: FilePath, place: str) -> list[Any]:
    """Return path, size and time of change of a file; for a remote file its address and a key of its version.

    Args:
        file: The file.
        place: Its path with links resolved.
    """
    if isinstance(file, str):
        with one_line_errors(f"Cannot reach '{safe_name(file)}'"):
            system, name = file_system(file)
            return [file, str(system.ukey(name))]
    try:
        stat = file.stat()
        return [place, stat.st_size, stat.st_mtime_ns]
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(file)}': {error.strerror}.") from error


def _has_byte_positions(path: FilePath) -> bool:
    """Whether positions in a file count the bytes of the file as it is stored."""
    return not is_compressed(path) and not FILE_KINDS[suffix_of(path)].counts_rows


def _suffixes_to_find(text: str, path: Path, *, has_rows: bool) -> list[str]:
    """Return the suffixes of the files that a source is read from.

    Args:
        text: The source string.
        path: Its path.
        has_rows: Whether labelled rows are read, and not texts.
    """
    if not has_rows:
        # Tables are read as text where the source itself names their kind, as `reviews.csv` and `reviews-*.csv` do.
        suffix_in_source = suffix_of(text)
        suffixes = file_readers.readable_suffixes("texts")
        return [suffix for suffix in suffixes if FILE_KINDS[suffix].texts_in_folders or suffix == suffix_in_source]

    suffixes = file_readers.readable_suffixes("rows")
    if is_remote(text) or not _exists(path) or not path.is_dir():
        return suffixes
    # In a folder, some kinds of files are more likely something else than labelled rows.
    return [suffix for suffix in suffixes if FILE_KINDS[suffix].rows_in_folders]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # A name too long for the system, or with a NUL.
        return False


def _list_remote(text: str, suffixes: Collection[str]) -> ListedFiles:
    """List the files at an address; see `list_files`."""
    with one_line_errors(f"Cannot reach '{safe_name(text)}'"):
        system, name = file_system(text)
        # A pattern, a folder with all that is below it, or one file.
        if GLOB_CHARACTERS.intersection(name):
            names = sorted(system.glob(name))
        elif system.isdir(name):
            names = sorted(system.find(name))
        elif system.exists(name):
            names = [name]
        else:
            names = []
        addresses = [system.unstrip_protocol(name) for name in names]
    if not addresses:
        raise CorpusError(f"There is no file at the address '{safe_name(text)}': check the spelling.")
    files = [address for address in addresses if suffix_of(address) in suffixes]
    if not files:
        types = supported_types(suffixes, addresses[0])
        raise CorpusError(f"'{safe_name(text)}' names no file of a supported type; supported are {types}")
    ignored = [address for address in addresses if suffix_of(address) not in suffixes]
    return ListedFiles(files, places=files, ignored=ignored)


def _suggest(path: Path) -> str:
    """Return the end of an error about a path that does not exist, with a suggestion.

    It names the most similar path in the same folder, or form of a source. If there is no such folder, it lists all
    forms of sources.
    """
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        *forms, last_form = ["paths", "globs", *source_forms()]
        return f" Sources are {', '.join(forms)} and {last_form}."
    near_names = difflib.get_close_matches(path.name, names, n=1)
    if near_names:
        return f" Did you mean '{safe_name(path.parent / near_names[0])}'?"
    near_forms = difflib.get_close_matches(str(path), source_forms(), n=1)
    if near_forms:
        return f" Did you mean '{near_forms[0]}'?"
    return ""
