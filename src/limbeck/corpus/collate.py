"""Batches of token blocks: padded to the longest of the batch, on either side, without a loop over tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from limbeck.corpus.masking import IGNORED_LABEL
from limbeck.errors import CorpusError, suggestion

LabelKind: TypeAlias = Literal["none", "token", "class", "value", "span"]


class PadCollator:
    """Pads a batch of B rows to its longest, L tokens.

    Rows are grouped by length when the batches are drawn, so that little or nothing is padded here. Token types are
    padded where the rows have them: a block of text is one segment, and not every model knows them.

    | `labels` | a row's `labels` | in the batch |
    |---|---|---|
    | `"none"` | not read | absent |
    | `"token"` | as many as tokens | int64 `[B, L]`, padded with -100 |
    | `"class"` | a whole number | int64 `[B]` |
    | `"value"` | a number | float32 `[B]` |
    | `"span"` | first and last token of an answer | int64 `[B, 2]`, counted in the padded row; -100 stays |

    Args:
        pad_token_id: Id that fills the room.
        side: Where the padding goes, `"right"` or `"left"`.
        multiple_of: Round L up to a multiple of this; 8 suits GPUs.
        labels: What the rows' labels are.

    Raises:
        CorpusError: if `side` or `labels` is none of these, there is no padding id, or `multiple_of` is not positive.
    """

    def __init__(
        self,
        pad_token_id: int | None,
        side: str = "right",
        multiple_of: int = 1,
        labels: LabelKind = "none",
    ) -> None:
        if side not in ("right", "left"):
            raise CorpusError(f"Unknown padding side '{side}'.{suggestion(side, ('right', 'left'))}")
        if pad_token_id is None:
            raise CorpusError("The tokenizer has no padding token: set one, for example its eos token.")
        if multiple_of < 1:
            raise CorpusError(f"multiple_of is {multiple_of}: give 1 or more.")
        if labels not in get_args(LabelKind):
            raise CorpusError(f"Unknown kind of labels '{labels}'.{suggestion(labels, get_args(LabelKind))}")
        self._pad_token_id = pad_token_id
        self._side = side
        self._multiple_of = multiple_of
        self._labels = labels

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `attention_mask`, int64 `[B, L]`; `token_type_ids`, the same; and `labels`.

        Args:
            features: Rows with `input_ids`; `token_type_ids` where all of them have it; `labels` as announced.

        Raises:
            CorpusError: if labels were announced and a row has none, or not as many as tokens.
        """
        rows = [np.asarray(feature["input_ids"], dtype=np.int64) for feature in features]
        lengths = np.array([len(row) for row in rows])[:, None]
        width = -(-int(lengths.max()) // self._multiple_of) * self._multiple_of
        columns = np.arange(width)[None, :]
        valid = columns < lengths if self._side == "right" else columns >= width - lengths
        batch = {"input_ids": _fill(rows, valid, self._pad_token_id), "attention_mask": valid.astype(np.int64)}
        if "token_type_ids" in features[0]:
            types = [np.asarray(feature["token_type_ids"], dtype=np.int64) for feature in features]
            batch["token_type_ids"] = _fill(types, valid, 0)
        if self._labels != "none":
            batch["labels"] = self._collate_labels(features, lengths, valid)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _collate_labels(
        self, features: Sequence[Mapping[str, Any]], lengths: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> NDArray[Any]:
        if not all("labels" in feature for feature in features):
            raise CorpusError(f"A row has no labels, but labels of the kind '{self._labels}' are asked of this batch.")
        given = [feature["labels"] for feature in features]
        if self._labels == "token":
            rows = [np.asarray(labels, dtype=np.int64) for labels in given]
            if [len(row) for row in rows] != lengths[:, 0].tolist():
                raise CorpusError("A row has not as many labels as tokens: with labels='token' every token has one.")
            return _fill(rows, valid, IGNORED_LABEL)
        if self._labels == "value":
            return np.asarray(given, dtype=np.float32)
        labels = np.asarray(given, dtype=np.int64)
        if self._labels == "span" and self._side == "left":
            labels = np.where(labels == IGNORED_LABEL, labels, labels + valid.shape[1] - lengths)
        return labels


def _fill(rows: Sequence[NDArray[np.int64]], valid: NDArray[np.bool_], filler: int) -> NDArray[np.int64]:
    """Lay the rows into the places that are valid, `[B, L]`."""
    filled = np.full(valid.shape, filler, dtype=np.int64)
    filled[valid] = np.concatenate(rows)
    return filled


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return the share of padding in batches made of `lengths` in the given order, from 0 to below 1."""
    real = sum(lengths)
    batches = (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    padded = sum(max(batch) * len(batch) for batch in batches)
    return 1 - real / padded if padded else 0.0
