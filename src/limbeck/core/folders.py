"""Output folders: made for one piece of work, and taken up again by it alone."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core import files
from limbeck.errors import Interrupted, LimbeckError, OutputError


@dataclass(frozen=True)
class FolderKind:
    """A kind of output folder, and the record that says what a folder of it was made for.

    Attributes:
        name: The name in messages, such as "search".
        record: File name of the record.
        check: Called as `check(folder, saved_record, identity)`; raises `OutputError` where the work of this identity
            must not continue in the folder. None lets it continue in every folder of the kind.
        way_out: The end of the message on a record that cannot be read.
        beside: Names of files that may be in an empty folder, such as a journal that is written before the record.
        read: Reads the record of an occupied folder; None reads `record` as JSON.
    """

    name: str
    record: str
    check: Callable[[Path, dict[str, Any], Mapping[str, Any]], None] | None = None
    way_out: str = "choose another folder"
    beside: frozenset[str] = frozenset()
    read: Callable[[Path], dict[str, Any]] | None = None

    def is_occupied(self, folder: Path) -> bool:
        """Whether a folder holds more files than a start that failed early may leave; empty folders do not count."""
        if not folder.is_dir():
            return False
        nothing_yet = {*self.beside, f"{self.record}.partial"}
        return any(path.name not in nothing_yet and _holds_files(path) for path in folder.iterdir())

    def look(self, folder: Path) -> dict[str, Any]:
        """Return the record of a folder of this kind, or an empty one for a new or empty folder; nothing is written.

        Raises:
            OutputError: if it is a file, or holds something else or a damaged record.
        """
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"Output '{folder}' is a file; give a folder.")
        if not self.is_occupied(folder):
            return {}
        return self.read_record(folder)

    def read_record(self, folder: Path) -> dict[str, Any]:
        """Read the record of an occupied folder.

        Raises:
            OutputError: if there is none, or it is damaged.
        """
        if self.read is not None:
            return self.read(folder)
        path = folder / self.record
        # The record is empty if the file is missing or cannot be read as JSON.
        record = files.read_json(path)
        if record:
            return record
        if path not in folder.iterdir():
            raise OutputError(f"Output folder '{folder}' holds no {self.name}; choose an empty or new folder.")
        raise OutputError(f"'{path}' cannot be read; {self.way_out}.")


def claim(folder: Path, kind: FolderKind, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Make an output folder, or take it up if its record is of the same identity.

    Args:
        folder: The folder.
        kind: Its kind.
        identity: The settings that decide the results in it, as plain values.

    Returns:
        The saved record; empty in a new folder, whose record the caller writes.

    Raises:
        OutputError: if it is a file, holds something else or a damaged record, was made for another identity, or
            cannot be written.
    """
    saved = kind.look(folder)
    if kind.check is not None and kind.is_occupied(folder):
        kind.check(folder, saved, identity)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return saved


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn the system's errors of writing into an output folder into one `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None


@contextmanager
def unused_removed(folder: Path, first_files: Collection[str]) -> Iterator[None]:
    """Remove a new folder after a mistake in what was asked; a folder in which work has begun stays.

    Args:
        folder: The folder, which was not there before.
        first_files: Names of the files that are in the folder before any work has begun.
    """
    try:
        yield
    except Interrupted:
        # The user may go on with what was stopped.
        raise
    except LimbeckError:
        with suppress(OSError):
            names = {path.name for path in folder.iterdir()}
            if names <= set(first_files):
                for name in names:
                    files.remove(folder / name)
                folder.rmdir()
        raise


class Difference(NamedTuple):
    """The first place where two documents differ, its keys joined by dots, and their values there."""

    place: str
    old: Any
    new: Any


def first_difference(old: Any, new: Any, place: str = "") -> Difference | None:
    """Find the first place where two documents of plain values differ, in the order of the old one.

    Args:
        old: A document, or a value within one.
        new: The other document, or its value at the same place.
        place: The place of both values, its keys joined by dots; empty for whole documents.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _first_difference_within(old, new, place)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return _first_difference_within(dict(enumerate(old)), dict(enumerate(new)), place)
    if old != new:
        return Difference(place, old, new)
    return None


def _first_difference_within(old: Mapping[Any, Any], new: Mapping[Any, Any], place: str) -> Difference | None:
    """Find the first difference of two mappings, or of two lists as mappings from position to value."""
    for key in dict.fromkeys((*old, *new)):
        place_below = f"{place}.{key}" if place else str(key)
        # A key that one of them lacks counts as None there.
        difference = first_difference(old.get(key), new.get(key), place_below)
        if difference is not None:
            return difference
    return None


def _holds_files(path: Path) -> bool:
    """Return whether a path is a file, a link, or a folder with files at any depth."""
    if path.is_symlink() or not path.is_dir():
        return True
    return any(_holds_files(child) for child in path.iterdir())
