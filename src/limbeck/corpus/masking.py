"""Masking tokens for masked language modelling, anew in every epoch, and always the same in a repeated one."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from limbeck.errors import CorpusError

IGNORED_LABEL = -100
"""Label of a position that is not to be predicted."""

_MASKED, _RANDOM = 0.8, 0.1  # Of the chosen positions; the rest stays.


def mask_id_of(tokenizer: Any) -> int:
    """Return the id of the mask token.

    Args:
        tokenizer: A `transformers` tokenizer.

    Raises:
        CorpusError: if it has no mask token.
    """
    mask_id: int | None = tokenizer.mask_token_id
    if mask_id is None:
        raise CorpusError(
            f"The tokenizer ({type(tokenizer).__name__}) has no mask token: choose a method without masked language "
            f"modelling, or a teacher that was trained with it."
        )
    return mask_id


class MaskedTokens(Dataset[dict[str, Any]]):
    """A data set of token blocks with masked tokens and their `labels`, int64, as long as `input_ids`.

    Every token that is not special is chosen with the same chance. Of the chosen ones 80 % become the mask token,
    10 % a random token and 10 % stay; `labels` has their ids, and -100 at all other positions. A block that is short
    may have none.

    What is masked is a function of the block's tokens, the seed and the epoch, not of the order it is read in: a
    resumed run meets the same masks. Columns read by name are those of the wrapped blocks, without masks.

    Around `ReplacedTokens` the labels are the replaced ids: what the teacher reads is also what is to be predicted.

    Args:
        blocks: Rows with `input_ids`, read by number; other columns are passed on.
        share: Chance of each token that is not special to be chosen, above 0 up to 1; BERT has 0.15.
        mask_id: Id of the mask token; see `mask_id_of`.
        words: Ids to draw random tokens from, all equally likely; see `word_ids`.
        special: Ids that are never chosen; the mask token is one of them anyway.
        seed: Decides what is masked; 0 or more.

    Raises:
        CorpusError: if the share is out of range, there is no word, or the blocks have labels already.

    Source:
        BERT (arXiv 1810.04805, section 3.1) for the shares; RoBERTa (arXiv 1907.11692, section 4.1) for masking anew
        every time. Nearest alternative: `ReplacedTokens`, which changes the text and asks for no prediction.
    """

    def __init__(
        self,
        blocks: Any,
        share: float,
        *,
        mask_id: int,
        words: NDArray[np.int64],
        special: Sequence[int],
        seed: int,
    ) -> None:
        if not 0 < share <= 1:
            raise CorpusError(f"The share of masked tokens is {share}: give a number above 0, up to 1.")
        if len(words) == 0:
            raise CorpusError("There is no word to draw random tokens from: give the ids of at least one.")
        self._blocks = blocks
        self._share = share
        self._mask_id = mask_id
        self._words = words
        self._special = np.asarray(sorted({*special, mask_id}), dtype=np.int64)
        self._seed = seed
        # In shared memory: worker processes of a data loader that outlive the epoch see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of this epoch, 0 or more; it is 0 until said otherwise, as held-out blocks need it."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, key: Any) -> Any:
        return self._blocks[key] if isinstance(key, str) else self.mask(self._blocks[key])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several rows at once, as data loaders do."""
        return [self.mask(row) for row in self._blocks.__getitems__(list(indices))]

    def mask(self, row: Mapping[str, Any], epoch: int | None = None) -> dict[str, Any]:
        """Mask one row, whether it is of this data set or not.

        Args:
            row: The row.
            epoch: How often it was read before; the data set's own epoch by default.
        """
        if "labels" in row:
            raise CorpusError("Rows that have labels cannot be masked too: leave out the masking, or the task.")
        ids = np.array(row["input_ids"], dtype=np.int64)
        generator = np.random.default_rng(
            [self._seed, int(self._epoch) if epoch is None else epoch, zlib.crc32(ids.tobytes())]
        )
        chosen = (generator.random(len(ids)) < self._share) & ~np.isin(ids, self._special)
        labels = np.where(chosen, ids, IGNORED_LABEL)
        fate = generator.random(len(ids))
        ids[chosen & (fate < _MASKED)] = self._mask_id
        replaced = chosen & (fate >= _MASKED) & (fate < _MASKED + _RANDOM)
        ids[replaced] = generator.choice(self._words, int(replaced.sum()))
        return {**row, "input_ids": ids, "labels": labels}
