"""Tokenising: stored documents or rows are written as files of token rows, by several processes.

Each stored file is one *piece* of the work. A build that was killed continues behind its finished pieces.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict, cast

import pyarrow as pa

from limbeck.core.cache import NothingToBuildError, finish_piece, read_piece
from limbeck.core.process_pools import map_parallel
from limbeck.core.seals import HashedFile
from limbeck.corpus.building.token_columns import SPLITS, SplitBatch
from limbeck.corpus.digests import DIGEST_BYTES, digest_of
from limbeck.corpus.progress import Progress, step_progress
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.packing import PackingCounts

WAITING = "waiting for another process that tokenises"
"""The step of a process that waits for the token rows of another one."""


class Encoding(Protocol):
    """Turns stored documents or labelled rows into token rows: a `BlockEncoding` or a `RowEncoding`."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the token rows."""

    def batches(self, path: Path, counts: dict[str, PackingCounts], report: SourceReport) -> Iterator[SplitBatch]:
        """Iterate over the token rows of a stored file; see `BlockEncoding.batches`."""


class Amount(NamedTuple):
    """The size of all files together, for progress.

    Args:
        total: The size.
        unit: Its unit.
    """

    total: int = 0
    unit: str = ""


_UNKNOWN_AMOUNT = Amount()


class TokenRows(NamedTuple):
    """Counts and hashes of the token rows of some stored files.

    Args:
        splits: Counts of each split, `train` and `held_out`; see `PackingCounts`.
        rows_by_file: Number of rows to train on of each file.
        held_out_rows_by_file: Number of held-out rows of each file.
        digests: A hash of all token rows of each file.
        report: Everything that was cut or left out.
    """

    splits: dict[str, dict[str, int]]
    rows_by_file: list[int]
    held_out_rows_by_file: list[int]
    digests: list[str]
    report: SourceReport


def tokenise(
    files: Sequence[Path],
    folder: Path,
    encoding: Encoding,
    message_without_rows: str,
    *,
    workers: int | None = 1,
    progress: Progress | None = None,
    amount: Amount = _UNKNOWN_AMOUNT,
) -> TokenRows:
    """Write the token rows of stored files: for each stored file one file a split, with the same number.

    Args:
        files: Arrow files of documents or rows.
        folder: Folder for the files of token rows. Files there that a build which was killed has finished are kept.
        encoding: Turns documents or rows into token rows.
        message_without_rows: Message of the error if there is no row to train on.
        workers: Number of processes; `None` is one per CPU core.
        progress: Called as files are finished.
        amount: Size of all files together, for `progress`.

    Raises:
        CorpusError: if there is no row to train on.
    """
    step = step_progress(progress, "tokenising")
    if step is not None:
        step(0, amount.total, amount.unit)

    # The fields of `PackingCounts`, summed over all files. Each begins at 0.
    counts_by_split = {split: Counter(asdict(PackingCounts())) for split in SPLITS}
    rows_by_file: list[int] = []
    held_out_rows_by_file: list[int] = []
    digests: list[str] = []
    report = SourceReport()
    tokenise_file = partial(_tokenise_file, folder, encoding)
    numbered_files = [_NumberedFile(number, path) for number, path in enumerate(files)]
    for piece in map_parallel(tokenise_file, numbered_files, workers):
        for split in SPLITS:
            counts_by_split[split].update(piece["counts"][split])
        # A token row is a block, or a whole labelled row, which is counted as one block.
        rows_by_file.append(piece["counts"]["train"]["blocks"])
        held_out_rows_by_file.append(piece["counts"]["held_out"]["blocks"])
        digests.append(piece["content"])
        report.merge(SourceReport.from_dict(piece["report"]))
        if step is not None:
            finished_files = len(rows_by_file)
            step(amount.total * finished_files // len(files), amount.total, amount.unit)

    if sum(rows_by_file) == 0:
        raise NothingToBuildError(message_without_rows)
    splits = {split: dict(counts) for split, counts in counts_by_split.items()}
    return TokenRows(
        splits=splits,
        rows_by_file=rows_by_file,
        held_out_rows_by_file=held_out_rows_by_file,
        digests=digests,
        report=report,
    )


class _NumberedFile(NamedTuple):
    """A stored file.

    Args:
        number: Its number, which the files of its token rows have too.
        path: Its path.
    """

    number: int
    path: Path


class _Piece(TypedDict):
    """Facts of the token rows of one stored file, in JSON values, as the note of a finished piece has them.

    Attributes:
        counts: The fields of `PackingCounts` of each split.
        content: A hash of all token rows.
        report: Everything that was cut or left out, as `SourceReport.to_dict` gives it.
    """

    counts: dict[str, dict[str, int]]
    content: str
    report: dict[str, Any]


def _tokenise_file(folder: Path, encoding: Encoding, stored: _NumberedFile) -> _Piece:
    """Write the token rows of one stored file, unless a build that was killed has written them.

    Args:
        folder: Folder for the files of token rows.
        encoding: Turns documents or rows into token rows.
        stored: The stored file.
    """
    name = f"tokens-{stored.number:05d}"
    finished = read_piece(folder, name)
    if finished is not None and "content" in finished:  # Pieces of an older version have no hash of their content.
        return cast(_Piece, finished)

    # Each split has a file, and a hash of each of its columns.
    file_names = {split: f"{split}-{stored.number:05d}.arrow" for split in SPLITS}
    digests = {split: _ColumnDigests(encoding.schema) for split in SPLITS}
    counts = {split: PackingCounts() for split in SPLITS}
    report = SourceReport()
    with ExitStack() as open_files:
        writers = {}
        for split, file_name in file_names.items():
            file = open_files.enter_context(HashedFile(folder / file_name))
            writers[split] = open_files.enter_context(pa.ipc.new_stream(file, encoding.schema))
        for split, records in encoding.batches(stored.path, counts, report):
            writers[split].write_batch(records)
            digests[split].update(records)

    digests_of_columns: list[str] = []
    for split in SPLITS:
        digests_of_columns += digests[split].of_columns()
    piece: _Piece = {
        "counts": {split: asdict(counts[split]) for split in SPLITS},
        "content": digest_of(digests_of_columns),
        "report": report.to_dict(),
    }
    finish_piece(folder, name, list(file_names.values()), dict(piece))
    return piece


class _ColumnDigests:
    """A hash of the values of each column, which does not depend on how Arrow stores them.

    Args:
        schema: The columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in schema]

    def update(self, records: pa.RecordBatch) -> None:
        """Take in further rows."""
        for digest, column in zip(self._digests, records.columns, strict=True):
            values = column if pa.types.is_primitive(column.type) else column.flatten()
            digest.update(values.to_numpy(zero_copy_only=False).tobytes())

    def of_columns(self) -> list[str]:
        """Return the hash of each column so far."""
        return [digest.hexdigest() for digest in self._digests]
