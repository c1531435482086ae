"""`store_of_file`: a file of texts and targets, read and checked once into a store in limbeck's cache.

Students learn from that store as from one that `limbeck teach` made. A text is found by its key, which is that of the
text as corpora clean it: a corpus with the same texts, from this file or another, has the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.paths import default_cache_dir
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import Progress, StepProgress, count_items, step_progress, waiting_notice
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.source_kinds import RowSource
from limbeck.corpus.stored.seen_keys import AddKeys, seen_keys
from limbeck.corpus.stored.source_content import name_of_build
from limbeck.corpus.text.documents import clean_text
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import CorpusError
from limbeck.targets.facts import StoreFacts, write_facts
from limbeck.targets.store import Store
from limbeck.targets.target_file import TargetFile, TargetRow, read_target_rows, source_of
from limbeck.targets.target_values import read_target
from limbeck.targets.writer import StoreWriter, open_store

FILE_STORE_FORMAT = 1
"""Raise it when the same file would give another store: older ones are then built anew."""
_CACHE_FOLDER = "targets"
"""Folder of the cache with a store for each file of targets."""
_READING = "reading and checking the targets"
_WAITING = "waiting for another process that reads the targets"
_ROWS_AT_ONCE = 1024
"""Rows whose targets are written together."""
_BYTES_OF_REPEATED = 64_000_000
"""Targets of repeated texts that wait in memory to be compared with those of the first."""
_DIGEST_BYTES = 16
"""Bytes of the hash of all targets."""
_LARGEST_DIFFERENCE = 1e-3
"""Targets of one text are the same if they differ by at most this share of the largest number."""


@dataclass(frozen=True)
class StoreOfFile:
    """The store that a file became.

    Args:
        folder: Its folder.
        summary: What the file holds and what was left out, in a line.
    """

    folder: Path
    summary: str


@dataclass(frozen=True)
class _Target:
    """A text with its target.

    Args:
        where: The place of the row, for messages.
        key: The key of the text or pair.
        values: The target, `[width]`.
    """

    where: str
    key: int
    values: NDArray[np.float32]


@dataclass
class _Counts:
    """Figures of a file while it is read.

    Args:
        texts: Different texts.
        repeated: Rows whose text was there before, with the same target.
        least_length: Length of the shortest vector.
        most_length: Length of the longest vector.
        report: Rows that were left out.
    """

    texts: int = 0
    repeated: int = 0
    least_length: float = math.inf
    most_length: float = 0.0
    report: SourceReport = field(default_factory=SourceReport)

    def add(self, values: NDArray[np.float32], is_new: NDArray[np.bool_]) -> None:
        """Add the targets of some rows, `[rows, width]`, which are new or repeat an earlier text."""
        new_rows = int(is_new.sum())
        self.texts += new_rows
        self.repeated += len(is_new) - new_rows
        lengths = np.linalg.norm(values, axis=1)
        self.least_length = min(self.least_length, float(lengths.min()))
        self.most_length = max(self.most_length, float(lengths.max()))


def store_of_file(file: TargetFile, progress: Progress | None = None) -> StoreOfFile:
    """Return the store of a file, which is read and checked unless its content is in the cache already.

    Args:
        file: The file.
        progress: Called as the file is read; not where its content is in the cache.

    Raises:
        CorpusError: for a file that cannot be read, and the first row that no student could learn.
    """
    source = source_of(file)
    # What decides the content of the store beside that of the file: the columns that are read, and what they mean.
    meaning = [file.text, file.pair, file.column, file.form, list(file.classes)]
    identity = [FILE_STORE_FORMAT, source.fingerprint(), meaning]
    cache = default_cache_dir()
    # The name follows from the identity and from hashes of the file.
    folder = cache / _CACHE_FOLDER / name_of_build(cache, identity, [source], progress=progress)

    # The store is written in a folder aside, which then takes its place in the cache with the returned manifest.
    def build(aside: Path) -> dict[str, Any]:
        maker = _StoreMaker(file, source, aside, step_progress(progress, _READING))
        return {"format": FILE_STORE_FORMAT, "summary": maker.make()}

    manifest = build_once(folder, build, waiting=waiting_notice(progress, _WAITING))
    return StoreOfFile(folder, manifest["summary"])


class _StoreMaker:
    """Makes the store of a file.

    Args:
        file: The file.
        source: Its rows.
        folder: The folder of the store, empty.
        progress: Called with the number of rows that were read.
    """

    def __init__(self, file: TargetFile, source: RowSource, folder: Path, progress: StepProgress | None = None) -> None:
        self._file = file
        self._source = source
        self._folder = folder
        self._progress = progress
        self._counts = _Counts()
        # Targets of texts that were there before, until they are compared with the stored ones, and the bytes that
        # these targets take.
        self._repeated: list[_Target] = []
        self._bytes_of_repeated = 0

    def make(self) -> str:
        """Write the store, and return a summary of it in one line.

        Raises:
            CorpusError: for the first row that no student could learn, and a file without any row.
        """
        # The first target says how wide all of them are, which a store has to know when it is made.
        targets = self._read_targets()
        first = next(targets, None)
        if first is None:
            raise CorpusError(nothing_in(self._file.place, "text with a target", self._counts.report))
        width = len(first.values)
        facts = StoreFacts(
            teacher=Path(self._file.place).name,
            weights="",  # Known only once all targets are read.
            streams={self._file.stream: width},
            labels=self._file.classes,
        )
        open_store(self._folder, facts)
        # The keys of all texts may not fit into memory, so they wait in a file beside the rows.
        with seen_keys(self._folder / "seen.sqlite") as add_keys, StoreWriter(self._folder) as writer:
            content = self._write(chain([first], targets), width, add_keys, writer)
        self._compare_repeated()
        # What identifies the teacher is the content of its targets, wherever they lie.
        write_facts(self._folder, replace(facts, weights=content))
        return self._summary(width)

    def _read_targets(self) -> Iterator[_Target]:
        """Iterate over the rows with a text, each with the key of its text and its checked target."""
        report = self._counts.report
        rows = read_target_rows(self._file, self._source, report)
        for row in count_items(rows, self._progress, "rows"):
            # `_cleaned_text` reports each empty text, so both texts of a pair are looked at before the row is left out.
            text = _cleaned_text(row.text, row, report)
            second_text = None
            lacks_second = False
            if self._file.pair is not None:
                second_text = _cleaned_text(row.pair, row, report)
                lacks_second = second_text is None
            if text is None or lacks_second:
                continue
            yield _Target(row.where, text_key(text, pair=second_text), read_target(row, self._file))

    def _write(self, targets: Iterator[_Target], width: int, add_keys: AddKeys, writer: StoreWriter) -> str:
        """Write the targets, each text once, and return a hash of all of them.

        Args:
            targets: The targets.
            width: The width of the first.
            add_keys: Adds keys of texts to those that were there before.
            writer: Writes the store.
        """
        digest = blake2b(digest_size=_DIGEST_BYTES)
        while batch := list(islice(targets, _ROWS_AT_ONCE)):
            _check_widths(batch, width)
            values = np.stack([target.values for target in batch])
            keys = np.array([target.key for target in batch], dtype=np.int64)
            is_new = np.array(add_keys(keys.view(np.uint64).tolist()))
            writer.add(keys[is_new], {self._file.stream: values[is_new]})
            digest.update(keys[is_new].tobytes())
            digest.update(values[is_new].tobytes())
            self._counts.add(values, is_new)

            for index in np.flatnonzero(~is_new):
                self._repeated.append(batch[index])
                self._bytes_of_repeated += batch[index].values.nbytes
            if self._bytes_of_repeated >= _BYTES_OF_REPEATED:
                self._compare_repeated()
        return digest.hexdigest()

    def _compare_repeated(self) -> None:
        """Compare the targets in `_repeated` with those that are stored of the same texts, and empty the list.

        Raises:
            CorpusError: for a text that has another target than in its first row, with the places of both rows.
        """
        if not self._repeated:
            return
        # Both `[repeated rows, width]`.
        repeated_values = np.stack([target.values for target in self._repeated])
        keys = np.array([target.key for target in self._repeated], dtype=np.int64)
        stored_values = Store(self._folder).read(keys)[self._file.stream]

        # Services that compute vectors do not repeat the last digits, so a target is the same up to a small difference.
        largest_values = np.maximum(np.abs(repeated_values), np.abs(stored_values)).max(axis=1)
        largest_differences = np.abs(repeated_values - stored_values).max(axis=1)
        has_other_target = largest_differences > _LARGEST_DIFFERENCE * largest_values
        if has_other_target.any():
            row = self._repeated[int(np.flatnonzero(has_other_target)[0])]
            raise CorpusError(
                f"{safe_name(self._first_place(row.key))} and {safe_name(row.where)} have the same text, but "
                "different targets; leave one of the two rows out."
            )
        self._repeated = []
        self._bytes_of_repeated = 0

    def _first_place(self, key: int) -> str:
        """Return the place of the first row of a text; the file is read again for it."""
        for target in self._read_targets():
            if target.key == key:
                return target.where
        raise AssertionError("the text was read before")

    def _summary(self, width: int) -> str:
        """Summarise in one line what the file holds, and which rows were left out."""
        counts = self._counts
        unit = "text" if self._file.pair is None else "pair"
        parts = [f"{self._file.stream} ({counted(width, 'number')}) of {counted(counts.texts, unit)}"]
        if self._file.form == "vector":
            parts.append(f"vectors of length {counts.least_length:.3g} to {counts.most_length:.3g}")
        if counts.repeated:
            parts.append(f"{counted(counts.repeated, 'row')} with a text and target of an earlier row")
        parts += counts.report.lines()
        return "; ".join(parts)


def _cleaned_text(value: Any, row: TargetRow, report: SourceReport) -> str | None:
    """Return a text as corpora clean it.

    None where it is empty: corpora leave such a row out too, and so does the caller. The report notes the row.
    """
    if value is not None and not isinstance(value, str):
        raise CorpusError(
            f"{safe_name(row.where)} has {safe_name(repr(value))} in its column of texts, which is not text; name "
            "another column under 'teacher'."
        )
    cleaned = clean_text(value or "")
    if cleaned:
        return cleaned
    report.note("row without a text, left out", row.where)
    return None


def _check_widths(targets: Sequence[_Target], width: int) -> None:
    """Refuse a target of another width than the first of the file."""
    for target in targets:
        if len(target.values) != width:
            raise CorpusError(
                f"{safe_name(target.where)} has a vector of {len(target.values)} numbers, but the vector of the "
                f"first row has {width}; give vectors of one model only."
            )
