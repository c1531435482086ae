"""Source strings to sources of labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from limbeck.corpus import hub
from limbeck.corpus.finding import INSTALLED_DOCS, FoundFiles, file_states, find_files
from limbeck.corpus.labelled_readers import ROW_READERS, read_rows
from limbeck.corpus.rows import PlacedRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

Step = Callable[[int, int | None, str], None]


class RowSource(Protocol):
    """Something that gives rows."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""

    def rows(self, report: SourceReport, progress: Step | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows; `progress` is told what is done, the total if it is known, and what is counted."""


class RowFiles:
    """Rows of files, in the order given.

    Args:
        found: Files of known kinds, and those that were found beside them.
    """

    def __init__(self, found: FoundFiles) -> None:
        self._found = found

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        return ["files", file_states(self._found.files)]

    def rows(self, report: SourceReport, progress: Step | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read, the number of all files and what they are.
        """
        for path in self._found.ignored:
            report.note("file of another kind, passed over", str(path))
        for done, path in enumerate(self._found.files):
            if progress is not None:
                progress(done, len(self._found.files), "files")
            yield from read_rows(path, report)
        if progress is not None:
            progress(len(self._found.files), len(self._found.files), "files")


class RowsOfHub:
    """Rows of a Hub data set.

    Args:
        name: `owner/name[:config][@split][#revision]`; the split is `train` unless said otherwise.

    Raises:
        CorpusError: if the name is not of that form.
    """

    def __init__(self, name: str) -> None:
        self._data = hub.HubDataset(name, text_column="")

    def fingerprint(self) -> Any:
        """Return what decides the rows."""
        return self._data.fingerprint()

    def rows(self, report: SourceReport, progress: Step | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows, streaming; `progress` is called with the number of rows read."""
        return self._data.rows(progress)


def open_rows(text: str) -> RowSource:
    """Find out what a source string names.

    Args:
        text: A file, folder or glob pattern; `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name`
            where there is no such path. A `.txt` file is read as TSV where it is named, and passed over in a folder.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if text.partition(":")[0] == INSTALLED_DOCS:
        raise CorpusError(f"The source '{text}' has no labels: leave out the task, or give labelled rows.")
    kinds = set(ROW_READERS)
    if Path(text).expanduser().is_dir():
        kinds.remove(".txt")
    found = find_files(text, kinds)
    return RowsOfHub(text.removeprefix(hub.PREFIX)) if found is None else RowFiles(found)
