"""A sample of the texts of a store, as they were sent to its endpoint: it tells later whether the endpoint has changed.

The file is in the store. It is made when the store is, of the texts of that time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
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


def write_sample(folder: Path, sample: Sequence[PlainText]) -> None:
    """Write some texts as they are sent, unless an earlier call did."""
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
            f"The sample of texts '{path}' is missing or damaged; remove it, and run the `limbeck teach` that made the "
            "store again, which makes a new one."
        ) from None


def check_drift(store: Store, client: EmbeddingsClient, batch_size: int, console: Console) -> Drift:
    """Ask an endpoint for the sample of a store again, and compare its vectors with those that are stored.

    Raises:
        ModelError: for an endpoint that refuses, and for a store without a row of its sample.
    """
    sample = read_sample(store.folder)
    keys = np.array([text.key for text in sample], dtype=np.int64)
    stored_rows = np.flatnonzero(store.has(keys))
    texts = [sample[row] for row in stored_rows.tolist()]
    if not texts:
        raise ModelError(f"The store '{store.folder}' has none of the texts of its sample yet; run `limbeck teach` on.")
    characters = sum(len(text.content) for text in texts)
    sending = describe_sending(client, len(texts), characters)
    console.print(f"Endpoint: {sending}, to be compared", highlight=False, markup=False, soft_wrap=True)

    client.width = store.facts.streams[STREAM]
    current = []
    for batch in in_batches(texts, batch_size):
        answer = client.embed([text.content for text in batch])
        current.append(answer.vectors)
    stored = store.read(keys[stored_rows])
    return measure_drift(stored, {STREAM: np.concatenate(current)})
