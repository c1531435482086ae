"""`Store`: reads what a teacher said of texts from a folder, by the keys of the texts.

The rows are in *parts*: a part is a finished file of rows, or a batch in the journal of a process that is at work or
was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.core.seals import examine
from limbeck.errors import ModelError
from limbeck.targets.facts import read_facts
from limbeck.targets.journal import read_journal
from limbeck.targets.row_files import KEY, NUMBER_FORMATS, Tensors, check_widths, map_tensors

ROWS = "rows"
"""Beginning of the names of the files of rows."""
ROW_FILES = f"{ROWS}-*.safetensors"
NOTE = ".json"
"""Ending of the note beside each file of rows, which has its hash; a file without a note was not finished."""
JOURNALS = f"{ROWS}-*.journal"
NOT_FOUND = -1


class _Places(NamedTuple):
    """Where the row of each key lies.

    Args:
        part: The index of its part, `[keys]`.
        row_in_part: Its index in that part, `[keys]`.
    """

    part: NDArray[np.int64]
    row_in_part: NDArray[np.int64]


class Store:
    """The rows of a folder, opened for reading; files are memory maps.

    Rows that another process adds later are not seen.

    Args:
        folder: The folder.

    Attributes:
        folder: The folder.
        facts: Whose outputs they are.
        keys: The keys of all rows, sorted, each once.
        files: The files of rows.

    Raises:
        ModelError: for a folder that is no store, is damaged, or of a newer version.

    Example:
        >>> store = Store("stores/e5")
        >>> store.read(np.array([text_key("A text.")]))["vector"].shape
        (1, 384)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.facts = read_facts(self.folder)
        self.files = finished_files(self.folder)
        self._format = NUMBER_FORMATS[self.facts.number_format]
        self._parts: list[Tensors] = list(self._open_parts())

        # The key and the place of every row, part after part. A store without parts has these empty arrays alone.
        keys = [np.empty(0, np.int64)]
        parts = [np.empty(0, np.int64)]
        rows_in_part = [np.empty(0, np.int64)]
        for number, part in enumerate(self._parts):
            keys_of_part = np.asarray(part[KEY], dtype=np.int64)
            keys.append(keys_of_part)
            parts.append(np.full(len(keys_of_part), number))
            rows_in_part.append(np.arange(len(keys_of_part)))

        # A row that was written to a file just before its process was killed may be in the journal too. The first one
        # of each key counts.
        self.keys, first_rows = np.unique(np.concatenate(keys), return_index=True)
        self._places = _Places(np.concatenate(parts)[first_rows], np.concatenate(rows_in_part)[first_rows])

    def __len__(self) -> int:
        return len(self.keys)

    def _open_parts(self) -> Iterator[Tensors]:
        """Iterate over the tensors of each file, and of each batch of the journals."""
        for path in self.files:
            yield map_tensors(path, self.facts.streams)
        for path in sorted(self.folder.glob(JOURNALS)):
            for batch in read_journal(path):
                check_widths(batch, self.facts.streams, f"The store's journal '{path}'")
                yield batch

    def keys_of_files(self) -> list[NDArray[np.int64]]:
        """Return the keys of each file, without those of the journals."""
        # The parts of files come before those of journals.
        return [np.asarray(part[KEY], dtype=np.int64) for part in self._parts[: len(self.files)]]

    def has(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which keys the store has, bool `[keys]`."""
        return self._find(keys) != NOT_FOUND

    def read(self, keys: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Return each stream of some texts, `[keys, width]`, in the order of the keys.

        Raises:
            ModelError: for a key that the store does not have.
        """
        indices = self._find(keys)
        missing = int((indices == NOT_FOUND).sum())
        if missing:
            raise ModelError(
                f"{missing} of {len(keys)} texts are not in the store '{self.folder}'; add them by running "
                "`limbeck teach` with this text."
            )
        parts = self._places.part[indices]
        rows_in_part = self._places.row_in_part[indices]
        streams = {name: np.empty((len(keys), width), dtype=np.float32) for name, width in self.facts.streams.items()}
        # The rows are read part by part and put in the places of their keys.
        for part in np.unique(parts):
            is_in_part = parts == part
            for name, values in streams.items():
                values[is_in_part] = self._format.decode(name, self._parts[part], rows_in_part[is_in_part])
        return streams

    def _find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each key in `keys` of the store, or `NOT_FOUND`."""
        if len(self.keys) == 0:
            return np.full(len(keys), NOT_FOUND)
        # The keys are sorted, so a search gives the index at which each key is, if it is there. A key above all others
        # would get an index behind the last, so it is sent to the last.
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[indices] == keys, indices, NOT_FOUND)


def finished_files(folder: Path) -> list[Path]:
    """Return the files of rows in a folder, compared with their hashes; a file that was not finished is left out.

    Raises:
        ModelError: for a file that has changed since it was written.
    """
    files = []
    for path in sorted(folder.glob(ROW_FILES)):
        examined = examine(path.with_suffix(NOTE))
        if examined.damage is not None:
            raise ModelError(
                f"The store '{folder}' is damaged: {examined.damage}; copy the store again, or remove '{path}' and "
                "its note and run `limbeck teach` again, which computes the lost rows."
            )
        # Without damage and without a listing there is no note.
        if examined.listing is not None:
            files.append(path)
    return files


def unfinished_files(folder: Path) -> list[Path]:
    """Return the files of rows in a folder that have no note: their process was killed before it wrote it."""
    return [path for path in sorted(folder.glob(ROW_FILES)) if not path.with_suffix(NOTE).is_file()]
