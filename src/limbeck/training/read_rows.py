"""Rows of a student's embedding tables that the batches of a stage read."""

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


def write_ranges(rows: NDArray[np.bool_]) -> str:
    """Write the rows of a table that are true as ranges, such as `0-98,103`."""
    # A range begins and ends where the mask changes; behind the last row it is false.
    edges = np.flatnonzero(np.diff(np.pad(rows, 1).astype(np.int8))).tolist()
    ranges = []
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        last = end - 1
        ranges.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(ranges)


def read_ranges(text: str, rows: int) -> NDArray[np.bool_]:
    """Read what `write_ranges` wrote of a table with so many rows."""
    mask = np.zeros(rows, dtype=np.bool_)
    if not text:
        return mask
    for part in text.split(","):
        first, _, last = part.partition("-")
        mask[int(first) : int(last or first) + 1] = True
    return mask


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
        # By table a bool for each row, and one more, which padding reads: no shape depends on the batch.
        self._read: dict[str, torch.Tensor] = {}
        for name, table in embedding_tables(student).items():
            self._read[name] = torch.zeros(table.module.num_embeddings + 1, dtype=torch.bool)

    def move(self, device: torch.device) -> None:
        """Place the notes where the batches are."""
        self._read = {name: read.to(device) for name, read in self._read.items()}

    def note(self, batch: Mapping[str, Any]) -> None:
        """Note the rows that a batch reads; arguments as of `count_units`, with `input_ids` and `token_type_ids`."""
        if FILLER in batch:
            return
        ids = batch["input_ids"]
        valid = batch["attention_mask"].bool()
        rows = {
            "tokens": ids,
            "positions": padded_batch_positions(ids, self._padding),
            "segments": batch.get("token_type_ids", torch.zeros_like(ids)),
        }
        for name, read in self._read.items():
            row_of_padding = len(read) - 1
            read.index_fill_(0, torch.where(valid, rows[name], row_of_padding).flatten(), True)

    def merge(self) -> None:
        """Join the notes of all processes; every process has to do it."""
        self._read = {name: sum_over_ranks(read.int()) > 0 for name, read in self._read.items()}

    def unread(self) -> dict[str, str]:
        """Return the rows of each table that were not read, as ranges."""
        return {name: write_ranges(~read[:-1].cpu().numpy()) for name, read in self._read.items()}

    def load(self, unread: Mapping[str, str] | None) -> None:
        """Restore what `unread` returned.

        Args:
            unread: The ranges by table; None in checkpoints from before they were noted: every row counts as read.
        """
        for name, read in self._read.items():
            ranges = "" if unread is None else unread.get(name, "")
            mask = read_ranges(ranges, len(read) - 1)
            read[:-1] = torch.from_numpy(~mask).to(read.device)
