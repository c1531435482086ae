"""Splits from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets

from limbeck.corpus.readers import PlacedRow, class_names
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.definition import HubSource


def read_split_of_hub(source: HubSource, cache_dir: Path | None = None) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split, downloaded as a whole and kept in the cache of `datasets`.

    Args:
        source: Data set, configuration and split.
        cache_dir: Where to keep it; the default is that of `datasets`.

    Raises:
        CorpusError: if the data set cannot be reached, or has no such configuration or split.
    """
    name = " ".join(filter(None, (source.name, source.config)))
    try:
        rows = datasets.load_dataset(
            source.name,
            source.config,
            split=source.split,
            revision=source.revision,
            cache_dir=None if cache_dir is None else str(cache_dir),
        )
    except Exception as error:  # The Hub's client raises of many kinds: network, names, formats.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CorpusError(
            f"Cannot load the split '{source.split}' of the Hub data set '{name}': {reason.rstrip('.')}. "
            f"Give a folder with its files instead."
        ) from error
    names = class_names(rows.features)
    for number, row in enumerate(rows, start=1):
        yield PlacedRow(f"{name} {source.split}:{number}", row, names)
