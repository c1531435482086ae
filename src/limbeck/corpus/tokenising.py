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
from limbeck.corpus import splitting, store
from limbeck.corpus.blocks import SPLITS, BlockEncoding
from limbeck.corpus.grouped_rows import QUERY
from limbeck.corpus.packing import PackingCounts
from limbeck.corpus.row_kind import RowEncoder
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.store import Progress

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
        before = 0
        for examples, keys in store.read_labelled(path):
            roles = self.roles[path][before : before + len(examples)]
            before += len(examples)
            for split, role in zip(SPLITS, (splitting.TRAINED, splitting.HELD_OUT), strict=True):
                chosen = np.flatnonzero(roles == role)
                own = [examples[index] for index in chosen]
                rows = self.encoder.encode(own, report) if own else None
                if rows is not None and rows.input_ids:
                    lengths = list(map(len, rows.input_ids))
                    more: list[Any] = [] if rows.token_type_ids is None else [rows.token_type_ids]
                    if QUERY in self.schema.names:
                        more.append(keys[chosen].view(np.int64))
                    counts[split].blocks += len(lengths)
                    counts[split].tokens += sum(lengths)
                    yield split, pa.record_batch([rows.input_ids, lengths, rows.labels, *more], schema=self.schema)


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
    splits = {split: Counter(asdict(PackingCounts())) for split in SPLITS}
    rows, digests, report = [], [], SourceReport()
    if step is not None:
        step(0, total, unit)
    work = partial(_tokenise_file, folder, encoding)
    for done in map_parallel(work, list(enumerate(files)), workers):
        for split in SPLITS:
            splits[split].update(done["counts"][split])
        rows.append(done["counts"]["train"]["blocks"])
        digests.append(done["content"])
        report.merge(SourceReport.from_dict(done["report"]))
        if step is not None:
            step(total * len(rows) // len(files), total, unit)
    if sum(rows) == 0:
        raise NothingToBuildError(nothing)
    return {split: dict(counts) for split, counts in splits.items()}, rows, digests, report


def _tokenise_file(folder: Path, encoding: BlockEncoding | RowEncoding, numbered: tuple[int, Path]) -> dict[str, Any]:
    """Write the token rows of one file, unless a killed builder has; return counts, hash and report as JSON values."""
    number, path = numbered
    name = f"tokens-{number:05d}"
    finished = read_piece(folder, name)
    if finished is None or "content" not in finished:
        counts, report = {split: PackingCounts() for split in SPLITS}, SourceReport()
        files = {split: f"{split}-{number:05d}.arrow" for split in SPLITS}
        with ExitStack() as stack:
            writers = {}
            for split, file_name in files.items():
                file = stack.enter_context(HashedFile(folder / file_name))
                writers[split] = stack.enter_context(pa.ipc.new_stream(file, encoding.schema))
            # Of the values, so that it does not depend on how they are stored.
            parts = {
                (split, part): hashlib.blake2b(digest_size=12) for split in SPLITS for part in encoding.schema.names
            }
            for split, batch in encoding.batches(path, counts, report):
                writers[split].write_batch(batch)
                for part, column in zip(encoding.schema.names, batch.columns, strict=True):
                    values = column if pa.types.is_primitive(column.type) else column.flatten()
                    parts[split, part].update(values.to_numpy(zero_copy_only=False).tobytes())
        finished = {
            "counts": {split: asdict(counts[split]) for split in SPLITS},
            "content": store.digest_of(digest.hexdigest() for digest in parts.values()),
            "report": report.to_dict(),
        }
        finish_piece(folder, name, [*files.values()], finished)
    return finished
