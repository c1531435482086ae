"""The sample of a store: some of its texts, which are sent to its endpoint again, to see whether that has changed.

The sample is a file in the store. It has the texts as they were sent, with their keys. It is written when the store is
made, so it has texts of the corpus of that time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from limbeck.core.files import atomic_text
from limbeck.core.folders import writing
from limbeck.corpus.building.plain_texts import PlainText
from limbeck.errors import ModelError
from limbeck.targets.drift import Drift, measure_drift
from limbeck.targets.endpoint.client import EmbeddingsClient
from limbeck.targets.endpoint.options import STREAM
from limbeck.targets.endpoint.survey import describe_sending, in_batches
from limbeck.targets.store import Store

_SAMPLE = "sample.json"
"""File of a store with the sample: a list of objects with `key` and `text`."""


def write_sample(folder: Path, sample: Sequence[PlainText]) -> None:
    """Write the sample of a store, unless an earlier call did.

    Args:
        folder: The folder of the store.
        sample: The texts, as they are sent.
    """
    path = folder / _SAMPLE
    if path.is_file():
        return
    rows = [{"key": text.key, "text": text.content} for text in sample]
    with writing(folder):
        atomic_text(path, json.dumps(rows, ensure_ascii=False))


def read_sample(folder: Path) -> list[PlainText]:
    """Read the sample of a store.

    Raises:
        ModelError: for a file that is missing or damaged.
    """
    path = folder / _SAMPLE
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [PlainText(int(row["key"]), str(row["text"])) for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        raise ModelError(
            f"The sample of texts '{path}' is missing or damaged; remove this file, and run the same `limbeck "
            "teach` command that made the store, which writes a new sample."
        ) from None


def check_drift(store: Store, client: EmbeddingsClient, batch_size: int, console: Console) -> Drift:
    """Ask an endpoint for the sample of a store again, and compare its vectors with those that are stored.

    Args:
        store: The store.
        client: Asks the endpoint that the store was filled from.
        batch_size: Texts of a request.
        console: Receives a line on how much text is sent where.

    Raises:
        ModelError: for an endpoint that refuses, and for a store without a row of its sample.
    """
    # A store that was not filled to its end has only some of the sample.
    sample = read_sample(store.folder)
    is_stored = store.has(_keys_of(sample))
    texts = [text for text, has_row in zip(sample, is_stored.tolist(), strict=True) if has_row]
    if not texts:
        raise ModelError(
            f"The store '{store.folder}' does not yet have the vectors that are compared with the endpoint; first "
            "continue the `limbeck teach` that makes the store."
        )
    characters = sum(len(text.content) for text in texts)
    sending = describe_sending(client, len(texts), characters)
    console.print(f"Endpoint: {sending}, to be compared", highlight=False, markup=False, soft_wrap=True)

    # The client refuses vectors of another width than those in the store.
    client.width = store.facts.streams[STREAM]
    current_vectors = []
    for batch in in_batches(texts, batch_size):
        answer = client.embed([text.content for text in batch])
        current_vectors.append(answer.vectors)
    return measure_drift(store.read(_keys_of(texts)), {STREAM: np.concatenate(current_vectors)})


def _keys_of(texts: Sequence[PlainText]) -> NDArray[np.int64]:
    """Return the keys of texts, `[texts]`."""
    return np.array([text.key for text in texts], dtype=np.int64)
