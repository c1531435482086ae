"""Batches of token blocks: padded to the longest of the batch, on either side, without a loop over tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from limbeck.errors import CorpusError, suggestion


class PadCollator:
    """Pads the `input_ids` of a batch of B blocks to its longest, L tokens.

    Blocks are grouped by length when the batches are drawn, so that little or nothing is padded here. There
    are no token types: a block is one segment, and not every model knows them.

    Args:
        pad_token_id: Id that fills the room.
        side: Where the padding goes, `"right"` or `"left"`.
        multiple_of: Round L up to a multiple of this; 8 suits GPUs.

    Raises:
        CorpusError: if `side` is neither, there is no padding id, or `multiple_of` is not positive.
    """

    def __init__(self, pad_token_id: int | None, side: str = "right", multiple_of: int = 1) -> None:
        if side not in ("right", "left"):
            raise CorpusError(f"Unknown padding side '{side}'.{suggestion(side, ('right', 'left'))}")
        if pad_token_id is None:
            raise CorpusError("The tokenizer has no padding token: set one, for example its eos token.")
        if multiple_of < 1:
            raise CorpusError(f"multiple_of is {multiple_of}: give 1 or more.")
        self._pad_token_id = pad_token_id
        self._side = side
        self._multiple_of = multiple_of

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `attention_mask`, both int64 `[B, L]`.

        Args:
            features: Rows of the corpus; only `input_ids` is read.
        """
        rows = [np.asarray(feature["input_ids"], dtype=np.int64) for feature in features]
        lengths = np.array([len(row) for row in rows])[:, None]
        width = -(-int(lengths.max()) // self._multiple_of) * self._multiple_of
        columns = np.arange(width)[None, :]
        valid = columns < lengths if self._side == "right" else columns >= width - lengths
        ids = np.full((len(rows), width), self._pad_token_id, dtype=np.int64)
        ids[valid] = np.concatenate(rows)
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(valid.astype(np.int64)),
        }


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return the share of padding in batches made of `lengths` in the given order, from 0 to below 1."""
    real = sum(lengths)
    batches = (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    padded = sum(max(batch) * len(batch) for batch in batches)
    return 1 - real / padded if padded else 0.0
