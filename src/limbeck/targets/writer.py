"""`StoreWriter`: adds rows to a store, so that a process that is killed loses at most the batch that it was at.

Rows go into the *journal* of their process, batch by batch. When they are enough they become a *file of rows*, and the
journal is emptied. A file is finished once the *note* with its hash is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from limbeck.core.files import atomic_file, atomic_text
from limbeck.core.folder_lock import folder_lock, is_locked
from limbeck.core.folders import FolderKind, writing
from limbeck.core.paths import INPUTS, LOCK
from limbeck.core.seals import file_facts, sealed_text
from limbeck.errors import OutputError
from limbeck.targets.facts import STORE_FACTS, TEACHER_FOLDER, StoreFacts, read_facts, write_facts
from limbeck.targets.journal import Journal, read_journal
from limbeck.targets.row_files import KEY, NUMBER_FORMATS, Tensors, check_widths, map_tensors
from limbeck.targets.store import JOURNALS, NOTE, ROWS, Store, finished_files, unfinished_files

FILE_BYTES = 128_000_000
"""A file of rows ends with the batch that reaches so many bytes."""
_STORE = FolderKind("store", STORE_FACTS, beside=frozenset({LOCK, INPUTS, TEACHER_FOLDER, f"{TEACHER_FOLDER}.partial"}))


class StoreWriter:
    """Adds rows to a store, which `open_store` has made.

    Args:
        folder: The folder.
        process: The number of this process among those that write, each of which has files of its own.

    Raises:
        ModelError: for a folder that is no store.

    Example:
        >>> open_store(folder, StoreFacts("e5", weights="…", streams={"vector": 384}))
        >>> with StoreWriter(folder) as writer:
        ...     writer.add(np.array([text_key("A text.")]), {"vector": vectors})
    """

    def __init__(self, folder: str | Path, process: int = 0) -> None:
        self._folder = Path(folder).expanduser()
        self._facts = read_facts(self._folder)
        self._process = process
        self._format = NUMBER_FORMATS[self._facts.number_format]
        self._journal = Journal(self._folder / f"{ROWS}-{process:03d}.journal")
        # The batches in the journal, which will be the next file, and the number of their rows.
        self._batches: list[Tensors] = []
        self._rows = 0

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, keys: NDArray[np.int64], streams: Mapping[str, NDArray[np.float32]]) -> None:
        """Add the rows of some texts; when this returns, no end of the process loses them.

        Args:
            keys: The key of each text, `[rows]`; each key once, and none that the store has.
            streams: The numbers of each stream, `[rows, width]`, by its name.

        Raises:
            ModelError: for a stream that is missing or of another width, or numbers that cannot be kept.
            OutputError: for a disk that is full.
        """
        tensors: Tensors = {KEY: np.asarray(keys, dtype=np.int64)}
        check_widths({**tensors, **streams}, self._facts.streams, "A batch of targets")
        for name in self._facts.streams:
            tensors |= self._format.encode(name, streams[name])
        with writing(self._folder):
            self._journal.add(tensors)
            self._batches.append(tensors)
            self._rows += len(keys)
            if self._rows * self._facts.row_bytes >= FILE_BYTES:
                self._write_file()

    def _write_file(self) -> None:
        """Write the rows of the journal as a file, and empty the journal."""
        if not self._batches:
            return
        joined: Tensors = {}
        for name in self._batches[0]:
            joined[name] = np.concatenate([batch[name] for batch in self._batches])
        write_rows(self._folder, self._process, joined)
        self._journal.clear()
        self._batches = []
        self._rows = 0

    def close(self) -> None:
        """Write the last file."""
        with writing(self._folder):
            self._write_file()
            self._journal.close()


def hold_store(folder: Path) -> ExitStack | None:
    """Hold a store, so that no other run writes to it.

    Args:
        folder: The folder of the store; it is made if it is not there.

    Returns:
        What releases the store when it is closed. None while another run holds it, and for a folder whose files cannot
        be written: such a store can only be read.

    Raises:
        OutputError: for a folder with other files.
    """
    _make_folder(folder)
    try:
        return _lock_folder(folder)
    except OutputError:
        return None


def hold_store_alone(folder: Path) -> ExitStack:
    """Hold a store, or refuse where another run holds it.

    Args:
        folder: The folder of the store; it is made if it is not there.

    Returns:
        What releases the store when it is closed.

    Raises:
        OutputError: for a store that another process writes to, for a folder with other files, and for one whose files
            cannot be written.
    """
    _make_folder(folder)
    try:
        return _lock_folder(folder)
    except OutputError:
        if is_locked(folder):
            raise OutputError(
                f"Another process is writing to the store '{folder}'; wait until that process has ended, and run "
                "the command again."
            ) from None
        raise


def open_store(folder: Path, facts: StoreFacts, option: str = "--output") -> Store:
    """Make a store, or take up one of the same teacher; one process does this before any of them writes.

    Rows that a process which was killed left in its journal are put into files.

    Args:
        folder: The folder; the teacher's files are in it already, if it has any.
        facts: Whose outputs it is to hold.
        option: The option that names the folder, for messages.

    Raises:
        OutputError: for a folder with the outputs of another teacher, or with other files.
        ModelError: for a store that is damaged or of a newer version.
    """
    # Inside of `writing`, errors of the system such as a full disk become an `OutputError`.
    with writing(folder):
        if (folder / STORE_FACTS).is_file():
            check_same_store(folder, facts, option)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_facts(folder, facts)
        _remove_unfinished(folder)
        _empty_journals(folder, facts)
    return Store(folder)


def check_same_store(folder: Path, facts: StoreFacts, option: str = "--output") -> None:
    """Refuse a store with the rows of another teacher, or with rows in another form.

    Args:
        folder: The folder of the store.
        facts: Whose outputs it is to hold.
        option: The option that names the folder, for the message.

    Raises:
        OutputError: with the first difference.
    """
    stored = read_facts(folder)
    way_out = f"give another folder as {option}"
    # Stores of earlier versions do not know what their teacher computed in.
    computes_alike = stored.computed_in in ("", facts.computed_in)
    # The limit to which texts were cut is a part of `weights`, so it is looked at first, for a message of its own.
    stored_cut = stored.endpoint.cut_to if stored.endpoint is not None else ""
    new_cut = facts.endpoint.cut_to if facts.endpoint is not None else ""
    if stored.teacher == facts.teacher and stored_cut != new_cut:
        difference = f"holds what was said of {_describe_cut(stored_cut)}, not of {_describe_cut(new_cut)}"
    elif stored.weights != facts.weights:
        difference = f"holds what '{stored.teacher}' said, which is not this '{facts.teacher}'"
    elif dict(stored.streams) != dict(facts.streams):
        difference = f"holds {_describe_streams(stored.streams)}, not {_describe_streams(facts.streams)}"
    elif dict(stored.prompts) != dict(facts.prompts):
        new_prompts = _describe_prompts(facts.prompts)
        difference = f"holds vectors of texts with {_describe_prompts(stored.prompts)}, not with {new_prompts}"
    elif stored.number_format != facts.number_format:
        difference = f"holds numbers as {stored.number_format}, not {facts.number_format}"
    elif not computes_alike:
        difference = f"holds what '{stored.teacher}' computed in {stored.computed_in}, not {facts.computed_in}"
        way_out = f"set teacher.dtype to {stored.computed_in} to go on with it, or {way_out}"
    else:
        return
    raise OutputError(f"The store '{folder}' {difference}; {way_out}.")


def write_rows(folder: Path, process: int, tensors: Tensors) -> Path:
    """Write a file of rows with its note, and return it.

    Args:
        folder: The folder of the store.
        process: The number of the process, whose files are its own.
        tensors: The rows.
    """
    # The first number that no file of this process has.
    number = 0
    while (path := folder / f"{ROWS}-{process:03d}-{number:05d}.safetensors").exists():
        number += 1
    with atomic_file(path) as partial:
        save_file(tensors, partial)
    note = {"files": {path.name: file_facts(path)}, "rows": len(tensors[KEY])}
    atomic_text(path.with_suffix(NOTE), sealed_text(note))
    return path


def merge_files(folder: Path) -> int:
    """Put the rows of small files into larger ones, and return how many files were merged.

    No other process may write to the store meanwhile.
    """
    facts = read_facts(folder)
    # Two files of less than half of the size fit into one.
    small_files = [path for path in finished_files(folder) if path.stat().st_size < FILE_BYTES // 2]
    merged_files = 0
    for group in _groups_to_merge(small_files):
        if len(group) > 1:
            _merge(folder, group, facts)
            merged_files += len(group)
    return merged_files


def _make_folder(folder: Path) -> None:
    """Make the folder of a store if it is not there, and refuse one with other files."""
    # A damaged store is reported where it is read.
    if not (folder / STORE_FACTS).is_file():
        _STORE.look(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _lock_folder(folder: Path) -> ExitStack:
    """Lock a folder, and return what releases it; see `folder_lock` for the errors."""
    lock = ExitStack()
    lock.enter_context(folder_lock(folder))
    return lock


def _describe_cut(cut_to: str) -> str:
    return f"texts cut to {cut_to}" if cut_to else "whole texts"


def _describe_prompts(prompts: Mapping[str, str]) -> str:
    """Return prompts in words."""
    if not any(prompts.values()):
        return "no prompts"
    return "the prompts " + ", ".join(f"{role}={prompt!r}" for role, prompt in prompts.items())


def _describe_streams(streams: Mapping[str, int]) -> str:
    return " and ".join(f"{name} of {width} numbers" for name, width in streams.items())


def _remove_unfinished(folder: Path) -> None:
    """Remove files of rows whose process was killed before it wrote their note; the journal still has their rows."""
    for path in unfinished_files(folder):
        path.unlink()


def _empty_journals(folder: Path, facts: StoreFacts) -> None:
    """Put the rows of all journals, which processes that were killed have left, into files."""
    journals = sorted(folder.glob(JOURNALS))
    if not journals:
        return
    store = Store(folder)
    keys_of_journals: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for path in journals:
        keys_of_journals += [np.asarray(batch[KEY], dtype=np.int64) for batch in read_journal(path)]
    keys = np.unique(np.concatenate(keys_of_journals))
    # A process may have been killed after it wrote a file and before it emptied its journal.
    is_in_file = _keys_in_files(store, keys)
    keys_to_write = keys[~is_in_file]
    # An open store reads the rows of journals too, so it gives the rows that go into the new file.
    if len(keys_to_write):
        number_format = NUMBER_FORMATS[facts.number_format]
        tensors: Tensors = {KEY: keys_to_write}
        for name, values in store.read(keys_to_write).items():
            tensors |= number_format.encode(name, values)
        write_rows(folder, process=0, tensors=tensors)
    for path in journals:
        path.unlink()


def _keys_in_files(store: Store, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys are in the files of a store, rather than in its journals alone."""
    file_keys = np.concatenate([np.empty(0, np.int64), *store.keys_of_files()])
    return np.isin(keys, file_keys)


def _groups_to_merge(files: Sequence[Path]) -> list[list[Path]]:
    """Divide files into groups of neighbours, each as large as fits into one file."""
    groups: list[list[Path]] = []
    bytes_of_group = 0
    for path in files:
        size = path.stat().st_size
        if not groups or bytes_of_group + size > FILE_BYTES:
            groups.append([])
            bytes_of_group = 0
        groups[-1].append(path)
        bytes_of_group += size
    return groups


def _merge(folder: Path, group: list[Path], facts: StoreFacts) -> None:
    """Write the rows of some files as one, and remove the files."""
    parts = [map_tensors(path, facts.streams) for path in group]
    joined: Tensors = {}
    for name in parts[0]:
        joined[name] = np.concatenate([part[name] for part in parts])
    with writing(folder):
        # Until the old files are removed their rows are there twice, which readers take as once.
        write_rows(folder, process=0, tensors=joined)
        for path in group:
            path.with_suffix(NOTE).unlink()
            path.unlink()
