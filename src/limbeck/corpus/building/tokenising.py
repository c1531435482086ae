"""Stored documents and rows made token rows, by several processes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.core.cache import NothingToBuildError, finish_piece, read_piece
from limbeck.core.process_pools import map_parallel
from limbeck.core.seals import HashedFile
from limbeck.corpus.batches.grouped_rows import QUERY
from limbeck.corpus.building import splitting
from limbeck.corpus.rows.row_kind import RowEncoder
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored import store
from limbeck.corpus.stored.store import Progress
from limbeck.corpus.tokens.blocks import SPLITS, BlockEncoding
from limbeck.corpus.tokens.packing import PackingCounts

_WAITING = "waiting for another process that tokenises"


@dataclass(frozen=True)
class RowEncoding:
    """Labelled rows to token rows.

    Args:
        encoder: Makes tokens of rows.
        schema: Columns of the result.
        roles: Of each stored file what becomes of its rows.
    """

    encoder: RowEncoder
    schema: pa.Schema
    roles: Mapping[Path, splitting.Roles] = field(default_factory=dict)

    def batches(
        self, path: Path, counts: dict[str, PackingCounts], report: SourceReport
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Encode the rows of each split; see `BlockEncoding.batches`."""
        first_row = 0
        for examples, keys in store.read_labelled(path):
            roles = self.roles[path][first_row : first_row + len(examples)]
            first_row += len(examples)
            for split, role in zip(SPLITS, (splitting.TRAINED, splitting.HELD_OUT), strict=True):
                indices = np.flatnonzero(roles == role)
                if not len(indices):
                    continue
                rows = self.encoder.encode([examples[index] for index in indices], report)
                if not rows.input_ids:
                    continue
                lengths = [len(ids) for ids in rows.input_ids]
                columns: list[Any] = [rows.input_ids, lengths, rows.labels]
                if rows.token_type_ids is not None:
                    columns.append(rows.token_type_ids)
                if QUERY in self.schema.names:
                    # The key of its text numbers the query, and Arrow's column is signed.
                    columns.append(keys[indices].view(np.int64))
                counts[split].blocks += len(lengths)
                counts[split].tokens += sum(lengths)
                yield split, pa.record_batch(columns, schema=self.schema)


def tokenise(
    files: Sequence[Path],
    folder: Path,
    encoding: BlockEncoding | RowEncoding,
    nothing: str,
    *,
    workers: int | None = 1,
    progress: Progress | None = None,
    amount: tuple[int, str] = (0, ""),
) -> tuple[dict[str, dict[str, int]], list[int], list[str], SourceReport]:
    """Write the token rows of stored files: of each a file a split, named after its number.

    Args:
        files: Arrow files of documents or rows.
        folder: Where the files of token rows go; those that a killed builder has finished stay.
        encoding: Makes the token rows.
        nothing: The message where there is no row to train on.
        workers: Processes; `None` is one per CPU core.
        progress: Called as files are finished.
        amount: Size of all files together, for `progress`, and its unit.

    Returns:
        The counts of each split; of each file the rows to train on, and a hash of all rows; everything that was cut or
        left out.

    Raises:
        CorpusError: if there is no row to train on.
    """
    total, unit = amount
    step = store.bind_progress(progress, "tokenising")
    counts_by_split = {split: Counter(asdict(PackingCounts())) for split in SPLITS}
    rows: list[int] = []
    digests: list[str] = []
    report = SourceReport()
    if step is not None:
        step(0, total, unit)
    work = partial(_tokenise_file, folder, encoding)
    for piece in map_parallel(work, list(enumerate(files)), workers):
        for split in SPLITS:
            counts_by_split[split].update(piece["counts"][split])
        rows.append(piece["counts"]["train"]["blocks"])
        digests.append(piece["content"])
        report.merge(SourceReport.from_dict(piece["report"]))
        if step is not None:
            finished_files = len(rows)
            step(total * finished_files // len(files), total, unit)
    if sum(rows) == 0:
        raise NothingToBuildError(nothing)
    splits = {split: dict(counts) for split, counts in counts_by_split.items()}
    return splits, rows, digests, report


def _tokenise_file(folder: Path, encoding: BlockEncoding | RowEncoding, numbered: tuple[int, Path]) -> dict[str, Any]:
    """Write the token rows of one file, unless a killed builder has; return counts, hash and report as JSON values."""
    number, path = numbered
    name = f"tokens-{number:05d}"
    piece = read_piece(folder, name)
    if piece is not None and "content" in piece:  # Pieces of an older version have no hash of their content.
        return piece

    counts = {split: PackingCounts() for split in SPLITS}
    report = SourceReport()
    file_names = {split: f"{split}-{number:05d}.arrow" for split in SPLITS}
    # A hash of the values of each column, so that it does not depend on how they are stored.
    digests = {
        (split, column_name): hashlib.blake2b(digest_size=12)
        for split in SPLITS
        for column_name in encoding.schema.names
    }
    with ExitStack() as stack:
        writers = {}
        for split, file_name in file_names.items():
            file = stack.enter_context(HashedFile(folder / file_name))
            writers[split] = stack.enter_context(pa.ipc.new_stream(file, encoding.schema))
        for split, batch in encoding.batches(path, counts, report):
            writers[split].write_batch(batch)
            for column_name, column in zip(encoding.schema.names, batch.columns, strict=True):
                values = column if pa.types.is_primitive(column.type) else column.flatten()
                digests[split, column_name].update(values.to_numpy(zero_copy_only=False).tobytes())
    piece = {
        "counts": {split: asdict(counts[split]) for split in SPLITS},
        "content": store.digest_of(digest.hexdigest() for digest in digests.values()),
        "report": report.to_dict(),
    }
    finish_piece(folder, name, [*file_names.values()], piece)
    return piece
