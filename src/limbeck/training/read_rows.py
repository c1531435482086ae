"""Notes of the rows of a student's embedding tables that the batches of a stage read.

A row that no batch read was not trained, however long the training was; records list such rows. *Ranges* are the text
form of a set of rows, such as `0-98,103`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from limbeck.corpus.batches.batch import FILLER
from limbeck.models.families import embedding_tables, family_of
from limbeck.models.packing import padded_batch_positions
from limbeck.training.gathering import sum_over_ranks


class ReadRows:
    """Notes which rows of a student's embedding tables training batches read: tokens, positions and segments.

    A row is read where a real token has its id, its position or its segment, whatever masking or replacing put there.
    Padding reads none. The notes stay on the device: no step waits for them.

    Args:
        student: The student, or one of many that read the same batches.
    """

    def __init__(self, student: PreTrainedModel) -> None:
        config = student.config
        self._padding = config.pad_token_id if family_of(config).padded_positions else None
        # For each table a bool for every row, and a last one that stands for padding: positions of padding are noted
        # there, so that they need not be cut out, and no shape depends on the batch.
        self._read: dict[str, torch.Tensor] = {}
        for kind, table in embedding_tables(student).items():
            self._read[kind] = torch.zeros(table.module.num_embeddings + 1, dtype=torch.bool)

    def move(self, device: torch.device) -> None:
        """Place the notes on the device of the batches."""
        self._read = {kind: read.to(device) for kind, read in self._read.items()}

    def note(self, batch: Mapping[str, Any]) -> None:
        """Note the rows that a batch reads.

        Args:
            batch: `input_ids` and `attention_mask`, `[B, L]`, and `token_type_ids` where there are segments; a batch
                that fills up a step reads no rows.
        """
        if FILLER in batch:
            return
        ids = batch["input_ids"]
        is_token = batch["attention_mask"].bool()
        rows = {
            "tokens": ids,
            "positions": padded_batch_positions(ids, self._padding),
            "segments": batch.get("token_type_ids", torch.zeros_like(ids)),
        }
        for kind, read in self._read.items():
            # Positions of padding are noted in a last entry, which is no row of the table.
            row_of_padding = len(read) - 1
            read_now = torch.where(is_token, rows[kind], row_of_padding).flatten()
            read.index_fill_(0, read_now, True)

    def merge(self) -> None:
        """Join the notes of all processes; all must call this together."""
        self._read = {kind: sum_over_ranks(read.int()) > 0 for kind, read in self._read.items()}

    def unread(self) -> dict[str, str]:
        """Return the ranges of the rows that were not read, by kind of table."""
        ranges: dict[str, str] = {}
        for kind, read in self._read.items():
            without_padding = read[:-1].cpu().numpy()
            ranges[kind] = write_ranges(~without_padding)
        return ranges

    def load(self, unread: Mapping[str, str] | None) -> None:
        """Restore the notes of a checkpoint.

        Args:
            unread: The ranges of `unread`, by kind of table. None in checkpoints from before there were notes: every
                row then counts as read.
        """
        for kind, read in self._read.items():
            ranges = "" if unread is None else unread.get(kind, "")
            is_unread = read_ranges(ranges, len(read) - 1)
            read[:-1] = torch.from_numpy(~is_unread).to(read.device)


def write_ranges(rows: NDArray[np.bool_]) -> str:
    """Write the numbers of the rows that are true as ranges."""
    # With a False added on both sides, the mask changes where a range begins and, one place behind it, where it ends.
    changes = np.flatnonzero(np.diff(np.pad(rows, 1).astype(np.int8))).tolist()
    starts = changes[::2]
    ends = changes[1::2]
    ranges = []
    for first, end in zip(starts, ends, strict=True):
        last = end - 1
        if first == last:
            ranges.append(str(first))
        else:
            ranges.append(f"{first}-{last}")
    return ",".join(ranges)


def read_ranges(text: str, rows: int) -> NDArray[np.bool_]:
    """Read ranges as a mask.

    Args:
        text: Written by `write_ranges`.
        rows: Rows of the table.

    Returns:
        Bool `[rows]`, true where the ranges have the row.
    """
    mask = np.zeros(rows, dtype=np.bool_)
    if not text:
        return mask
    for part in text.split(","):
        # `3-7`, or a single row such as `3`.
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        mask[int(first) : int(last) + 1] = True
    return mask
