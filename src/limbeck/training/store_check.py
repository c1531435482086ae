"""`check_store`: the files of a store are compared with their hashes, and a sample of its rows with the live teacher.

The *sample* of a store is a batch of some rows as its teacher read them. `teach` writes it, with a note that has its
hash. The rows of the sample are in the store too, so running the teacher on the batch shows whether it has changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from limbeck.core.files import atomic_file, atomic_text
from limbeck.core.seals import examine, file_facts, sealed_text
from limbeck.corpus.batches.batch import Batch, read_batch
from limbeck.errors import ModelError, shorten_error
from limbeck.evaluation.stored_side import COMPARED
from limbeck.models.families import shape_of
from limbeck.models.heads import head_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import finished_pooling
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.targets.drift import Drift, describe_drift, measure_drift
from limbeck.targets.facts import StoreFacts
from limbeck.targets.store import Store, unfinished_files
from limbeck.targets.stored_teaching import as_rows
from limbeck.targets.writer import hold_store_alone, merge_files

SAMPLE = "sample.safetensors"
"""File of a store with its sample."""
SAMPLE_NOTE = "sample.note.json"
"""File beside it with its hash."""


@dataclass(frozen=True)
class CheckedStore:
    """What a check of a store found.

    Args:
        store: The store, with its files merged.
        merged: Files that were merged.
        drift: How far some rows are from what the live teacher says of their texts; None where it was not asked.
        notes: Sentences on parts of the store that could not be checked, and on the size of the drift.
    """

    store: Store
    merged: int
    drift: Drift | None = None
    notes: tuple[str, ...] = ()


def check_store(folder: Path, model: str | None = None) -> CheckedStore:
    """Compare the files of a store with their hashes, merge small ones, and compare a sample with the live teacher.

    Args:
        folder: The folder of the store.
        model: The teacher; None compares nothing.

    Raises:
        ModelError: for a store that is damaged, and for a teacher of other streams.
        OutputError: for a store that another process writes to.
    """
    with hold_store_alone(folder):
        merged = merge_files(folder)
    # Opening a store compares its files with their hashes. The vectors by which students are compared with the teacher
    # are a second store inside of the first; it is opened for this check alone.
    store = Store(folder)
    if (folder / COMPARED).is_dir():
        Store(folder / COMPARED)
    notes = [
        f"'{path}' has no note, so its rows do not count; run `limbeck teach` again for them."
        for path in unfinished_files(folder)
    ]
    if model is None:
        return CheckedStore(store, merged, notes=tuple(notes))

    sample = _read_sample(folder)
    if sample is None:
        notes.append("Not compared with its teacher: the store has no sample; run `limbeck teach` again to add one.")
        return CheckedStore(store, merged, notes=tuple(notes))
    assert sample.text_keys is not None
    keys = sample.text_keys.numpy()
    is_stored = store.has(keys)
    if not is_stored.any():
        notes.append("Not compared with its teacher: no row of its sample is stored yet; run `limbeck teach` again.")
        return CheckedStore(store, merged, notes=tuple(notes))
    stored = store.read(keys[is_stored])
    current: dict[str, NDArray[np.float32]] = {}
    for name, values in _ask_model(model, sample, store.facts).items():
        current[name] = values[is_stored]
    drift = measure_drift(stored, current)
    notes.append(describe_drift(drift, store.facts))
    return CheckedStore(store, merged, drift=drift, notes=tuple(notes))


def write_sample(folder: Path, columns: Mapping[str, Tensor]) -> None:
    """Write the sample of a store, with its note.

    Args:
        folder: The folder of the store.
        columns: The columns of a batch of rows, as the teacher reads them, with the keys of their texts.
    """
    with atomic_file(folder / SAMPLE) as partial_file:
        save_file(dict(columns), partial_file)
    atomic_text(folder / SAMPLE_NOTE, sealed_text({"files": {SAMPLE: file_facts(folder / SAMPLE)}}))


def _read_sample(folder: Path) -> Batch | None:
    """Read the rows that `write_sample` wrote; None where there are none.

    Raises:
        ModelError: for a damaged file.
    """
    path = folder / SAMPLE
    if not path.is_file():
        return None
    examined = examine(folder / SAMPLE_NOTE)
    damage = examined.damage
    if damage is None:
        try:
            return read_batch(load_file(path))
        except (SafetensorError, OSError) as error:
            # The samples of earlier versions have no note, by which damage would be known before.
            damage = shorten_error(error)
    raise ModelError(
        f"The sample '{path}' is damaged ({damage}), so the store cannot be compared with its teacher; run "
        "`limbeck teach` with the store's recipe again, which writes a new sample."
    )


def _ask_model(name: str, batch: Batch, facts: StoreFacts) -> dict[str, NDArray[np.float32]]:
    """Run a model on a batch, and return its outputs of the kinds that a store holds.

    Args:
        name: The model.
        batch: The batch, as the teacher of the store read it.
        facts: The facts of the store. Its `streams` are the width of each kind of output, by the names `pooled`,
            `vector` and `logits`.

    Returns:
        The outputs `[rows, width]` by these names.

    Raises:
        ModelError: for a model whose outputs have other widths.
    """
    config = load_config(name)
    # Only scores need the head of a task.
    head = None
    if "logits" in facts.streams:
        head = head_of(config)
    # A store of an earlier version does not know what its teacher computed in. The model then computes in float32.
    model = load_model(name, head=head, dtype=facts.computed_in or None)
    # Outputs of whole texts, also scores, are read as those of the last layer.
    last_layer = shape_of(config).layers
    keys = {StreamKey(stream, last_layer) for stream in facts.streams}
    # Vectors are made as the model's files say, else as the mean of its tokens.
    pooling = finished_pooling(sentence_pooling(name))
    with torch.no_grad(), StreamTap(model, keys, pooling=SentenceHead(pooling)) as tap:
        answers = as_rows(tap(**batch.teacher))
    for stream, width in facts.streams.items():
        if answers[stream].shape[-1] != width:
            raise ModelError(
                f"'{name}' gives a {stream} of {answers[stream].shape[-1]} numbers, but the store has {width}, so "
                "its teacher is another model; give that model, or make a new store."
            )
    return answers
