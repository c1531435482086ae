"""`LABEL_COLLATORS`: the functions that make one array of the labels of a batch, one for each kind of label."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.core import IGNORED_LABEL
from limbeck.core.kinds import LabelKind
from limbeck.corpus.batches.padding import PaddedLayout
from limbeck.errors import CorpusError

LabelCollator: TypeAlias = Callable[[Sequence[Any], PaddedLayout], NDArray[Any]]
"""Turns the labels of all rows, and the places of the rows' tokens in the padded batch, into one array."""


def collate_classes(labels: Sequence[Any], _layout: PaddedLayout) -> NDArray[np.int64]:
    """Return the number of each row's class, `[B]`."""
    return np.asarray(labels, dtype=np.int64)


def collate_numbers(labels: Sequence[Any], _layout: PaddedLayout) -> NDArray[np.float32]:
    """Return the number that each row is labelled with, `[B]`, or its several numbers, `[B, numbers]`."""
    return np.asarray(labels, dtype=np.float32)


def collate_token_classes(labels: Sequence[Any], layout: PaddedLayout) -> NDArray[np.int64]:
    """Return the class of each token, `[B, L]`, and -100 for padding.

    Raises:
        CorpusError: if the numbers of a row's labels and tokens differ.
    """
    rows = [np.asarray(row, dtype=np.int64) for row in labels]
    if [len(row) for row in rows] != layout.lengths.tolist():
        raise CorpusError(
            "A row has not as many labels as tokens, but with labels='token' every token needs a label: give the "
            "row one label for each token."
        )
    return layout.fill(rows, IGNORED_LABEL)


def collate_spans(labels: Sequence[Any], layout: PaddedLayout) -> NDArray[np.int64]:
    """Return the first and the last token of each row's answer, counted in the padded row, `[B, 2]`; -100 stays."""
    spans = np.asarray(labels, dtype=np.int64)
    padded_spans = spans + layout.starts[:, None]
    return np.where(spans == IGNORED_LABEL, IGNORED_LABEL, padded_spans)


LABEL_COLLATORS: Mapping[LabelKind, LabelCollator | None] = {
    "none": None,
    "token": collate_token_classes,
    "class": collate_classes,
    "classes": collate_numbers,
    "value": collate_numbers,
    "span": collate_spans,
    "relevance": collate_numbers,
}
"""Kind of label → its function; None for rows whose labels are not read."""
