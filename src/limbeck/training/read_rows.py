"""Rows of a student's embedding tables that the batches of a stage read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from limbeck.corpus.batch import FILLER
from limbeck.models.families import embedding_tables, family_of
from limbeck.models.packing import padded_batch_positions
from limbeck.training.gathering import sum_over_ranks


def write_ranges(rows: NDArray[np.bool_]) -> str:
    """Write the rows of a table that are true as ranges, such as `0-98,103`."""
    edges = np.flatnonzero(np.diff(np.pad(rows, 1).astype(np.int8))).tolist()
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return ",".join(str(first) if end - first == 1 else f"{first}-{end - 1}" for first, end in pairs)


def read_ranges(text: str, rows: int) -> NDArray[np.bool_]:
    """Read what `write_ranges` wrote of a table with so many rows."""
    found = np.zeros(rows, dtype=np.bool_)
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found[int(first) : int(last or first) + 1] = True
    return found


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
        # One row more, which padding reads: no shape depends on the batch.
        self._read = {
            kind: torch.zeros(table.module.num_embeddings + 1, dtype=torch.bool)
            for kind, table in embedding_tables(student).items()
        }

    def move(self, device: torch.device) -> None:
        """Place the notes where the batches are."""
        self._read = {kind: read.to(device) for kind, read in self._read.items()}

    def note(self, batch: Mapping[str, Any]) -> None:
        """Note the rows that a batch reads; arguments as of `count_units`, with `input_ids` and `token_type_ids`."""
        if FILLER in batch:
            return
        ids, valid = batch["input_ids"], batch["attention_mask"].bool()
        rows = {"tokens": ids, "positions": padded_batch_positions(ids, self._padding)}
        rows["segments"] = batch.get("token_type_ids", torch.zeros_like(ids))
        for kind, read in self._read.items():
            read.index_fill_(0, torch.where(valid, rows[kind], len(read) - 1).flatten(), True)

    def merge(self) -> None:
        """Join the notes of all processes; every process has to do it."""
        self._read = {kind: sum_over_ranks(read.int()) > 0 for kind, read in self._read.items()}

    def unread(self) -> dict[str, str]:
        """Return the rows of each kind that were not read, as ranges."""
        return {kind: write_ranges(~read[:-1].cpu().numpy()) for kind, read in self._read.items()}

    def load(self, unread: Mapping[str, str] | None) -> None:
        """Take up what `unread` returned; None, of an older checkpoint, stands for notes that all rows were read."""
        for kind, read in self._read.items():
            found = read_ranges((unread or {}).get(kind, ""), len(read) - 1)
            read[:-1] = torch.from_numpy(~found).to(read.device)
