"""Teachings that read a store: `StoredTeaching` loads no teacher, and `RememberingTeaching` asks one for what lacks.

Both read whole rows (`reads="rows"`): they find the outputs of a text by its key, so each row of a batch needs one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.corpus.batches.batch import Batch
from limbeck.errors import CorpusError
from limbeck.methods.teaching import Teaching, register_as_teaching
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.teaching_facts import TeachingFacts
from limbeck.targets.facts import read_facts
from limbeck.targets.store import Store
from limbeck.targets.writer import StoreWriter


@register_as_teaching("stored")
class StoredTeaching(Teaching):
    """Gives what a store says of the texts of a batch. A recipe has it by `teacher: {stored: FOLDER}`.

    Args:
        folder: The folder of the store.

    Attributes:
        prompts: The text before texts of each role, see `StoreFacts`.
        endpoint: The server that the outputs came from; None for any other teacher.

    Raises:
        ModelError: for a folder that is no store, is damaged, or of a newer version.
    """

    remedy = (
        "run `limbeck teach` on this corpus with the same length and prompts, or let the teacher compute them: "
        "teacher.model and teacher.missing: compute"
    )

    def __init__(self, folder: str) -> None:
        self.folder = folder
        stored = read_facts(folder)
        self.prompts = stored.prompts
        self.endpoint = stored.endpoint
        # Messages on missing texts name a remedy. The one of the class is for a store that a model made.
        if stored.endpoint is not None:
            self.remedy = (
                "run the `limbeck teach --endpoint` that made the store again, with this corpus, which sends them"
            )
        self.facts = TeachingFacts(
            f"the stored outputs of {stored.teacher}",
            widths=stored.streams,
            hidden_width=stored.hidden_width,
            labels=stored.labels,
            identity=stored.identity,
            # A store finds the outputs of a text by its key, which a row of a batch has and its tokens have not.
            reads="rows",
        )

    @cached_property
    def store(self) -> Store:
        """The store, whose files are compared with their hashes as it is opened."""
        return Store(self.folder)

    def missing(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which texts the store lacks, bool `[keys]`."""
        return ~self.store.has(keys)

    def read(self, batch: Batch, scored: Tensor | None = None) -> Streams:
        """Look the texts of a batch up; see `Teaching.read`.

        `scored` chooses tokens, and a store has outputs of whole texts alone.
        """
        return _as_streams(self.store.read(_keys_of(batch)), batch, self.facts.output_layer)


class RememberingTeaching(Teaching):
    """Gives what a store says, asks a teacher that is a model for the texts that it lacks, and stores the answers.

    Args:
        teacher: Answers for texts that are not in the store.
        folder: The folder of the store, which `open_store` has made or taken up.
        process: The number of this process among those of a run.
        lock: What this process holds the store with, see `hold_store`; it is closed with the teaching.
        writes: Whether answers are stored; not while another run holds the store.
    """

    def __init__(
        self,
        teacher: Teaching,
        folder: Path,
        process: int = 0,
        *,
        lock: ExitStack | None = None,
        writes: bool = True,
    ) -> None:
        self.teacher = teacher
        self.facts = replace(teacher.facts, reads="rows")
        self._store = Store(folder)
        self._lock = lock
        self._writer: StoreWriter | None = None
        if writes:
            self._writer = StoreWriter(folder, process)
        # The rows that this process has computed: the numbers of each stream by the key of the text. The writer puts
        # them into the folder too, but `_store` does not see rows that were added after it was opened.
        self._new_rows: dict[int, dict[str, NDArray[np.float32]]] = {}

    def read(self, batch: Batch, scored: Tensor | None = None) -> Streams:
        """Look the texts of a batch up, and ask the teacher for the others; see `Teaching.read`.

        `scored` chooses tokens, and the outputs here are of whole texts.
        """
        keys = _keys_of(batch)
        self._compute_missing(keys, batch)

        # Now each text is in the store as it was opened, or in `_new_rows`. Each stream is put together from both.
        is_stored = self._store.has(keys)
        stored = self._store.read(keys[is_stored])
        values = {}
        for name, width in self._store.facts.streams.items():
            values[name] = np.empty((len(keys), width), dtype=np.float32)
            values[name][is_stored] = stored[name]
            for row in np.flatnonzero(~is_stored):
                values[name][row] = self._new_rows[int(keys[row])][name]
        return _as_streams(values, batch, self.facts.output_layer)

    def _compute_missing(self, keys: NDArray[np.int64], batch: Batch) -> None:
        """Ask the teacher for texts that are neither in the store nor in `_new_rows`, and put its outputs into both."""
        # The rows of the batch whose texts are neither in the store nor in `_new_rows`.
        unknown_rows = [row for row in np.flatnonzero(~self._store.has(keys)) if int(keys[row]) not in self._new_rows]
        if not unknown_rows:
            return
        # A text that is in the batch twice is computed once, from its first row.
        new_keys, first_rows = np.unique(keys[unknown_rows], return_index=True)
        rows_to_compute = np.array(unknown_rows)[first_rows]
        rows = torch.from_numpy(rows_to_compute).to(batch.teacher["input_ids"].device)
        inputs = {name: tensor[rows] for name, tensor in batch.teacher.items()}
        answer = self.teacher.read(batch._replace(teacher=inputs))
        values = as_rows(answer)
        if self._writer is not None:
            self._writer.add(new_keys, values)
        for index, key in enumerate(new_keys.tolist()):
            self._new_rows[key] = {name: stream[index] for name, stream in values.items()}

    def move(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place the teacher on the device of the batches."""
        self.teacher.move(device, pack=pack)

    def close(self) -> None:
        """Write the last rows, let go of the store, and close the teacher; a second call does no harm."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            self._lock.close()
        self.teacher.close()


def as_rows(streams: Streams) -> dict[str, NDArray[np.float32]]:
    """Return streams of whole texts as a store keeps them: by name, `[rows, width]`, on the CPU."""
    values = {}
    for key, stream in streams.items():
        values[key.name] = stream.float().cpu().numpy()
    return values


def _as_streams(values: dict[str, NDArray[np.float32]], batch: Batch, layer: int) -> Streams:
    """Return the rows of a store as streams on the device of a batch.

    Args:
        values: Stream to its numbers, `[rows, width]`.
        batch: The batch.
        layer: The layer under which terms read the teacher's outputs, see `TeachingFacts.output_layer`.
    """
    device = batch.student["input_ids"].device
    streams = {}
    for name, stream in values.items():
        streams[StreamKey(name, layer)] = torch.from_numpy(stream).to(device, non_blocking=True)
    return streams


def _keys_of(batch: Batch) -> NDArray[np.int64]:
    """Return the keys of the texts of a batch, `[rows]`.

    Raises:
        CorpusError: for a batch without them.
    """
    if batch.text_keys is None:
        raise CorpusError(
            "The rows of this batch have no text_key, by which stored outputs are found; build the corpus with "
            "text keys."
        )
    keys: NDArray[np.int64] = batch.text_keys.cpu().numpy()
    return keys
