"""Replacing tokens by random words, so that a narrow corpus still reaches the whole vocabulary.

Distillation needs no labels: teacher and student read the same changed text, and the teacher's answer to it is as good
a target as to any other: what the student has to learn of a word shows in sentences that no one wrote, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from limbeck.errors import CorpusError

_WORD_STARTS = ("Ġ", "▁")
_ENOUGH_WORDS = 32


def word_ids(tokenizer: Any) -> NDArray[np.int64]:
    """Ids of the tokens that are whole words of letters; all but the special tokens where there are too few.

    Args:
        tokenizer: A `transformers` tokenizer: WordPiece, byte-level BPE or SentencePiece.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    special = set(tokenizer.all_special_ids)
    marked = any(token.startswith(_WORD_STARTS) for token in vocabulary)
    words = [
        index
        for token, index in vocabulary.items()
        if index not in special
        and (token.startswith(_WORD_STARTS) if marked else not token.startswith("##"))
        and len(letters := token.lstrip("".join(_WORD_STARTS))) > 1
        and letters.isalpha()
    ]
    if len(words) < _ENOUGH_WORDS:
        words = [index for index in vocabulary.values() if index not in special]
    return np.asarray(sorted(words), dtype=np.int64)


class ReplacedTokens(Dataset[dict[str, Any]]):
    """A data set of token blocks in which a share of the tokens is replaced by random words.

    What a block becomes is a function of its tokens and the seed, not of the order it is read in: a resumed run meets
    the same text.

    Args:
        blocks: Rows with `input_ids`; also the columns of the data set by name.
        share: Chance of each token that is not special to be replaced, above 0 up to 1.
        words: Ids to draw from, all equally likely; see `word_ids`.
        special: Ids that stay as they are.
        seed: Decides what is replaced by what.

    Raises:
        CorpusError: if the share is out of range.

    Source:
        Replacing words of the training text is TinyBERT's data augmentation (arXiv 1909.10351, section 3.2), which
        picks likely words by a language model; here all words are equally likely, to reach those that the text lacks.
    """

    def __init__(
        self, blocks: Any, share: float, *, words: NDArray[np.int64], special: Sequence[int], seed: int
    ) -> None:
        if not 0 < share <= 1:
            raise CorpusError(f"The share of replaced tokens is {share}: give a number above 0, up to 1.")
        self._blocks = blocks
        self._share = share
        self._words = words
        self._special = np.asarray(sorted(special), dtype=np.int64)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, key: Any) -> Any:
        return self._blocks[key] if isinstance(key, str) else self.replace(self._blocks[key])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several rows at once, as data loaders do."""
        columns = self._blocks[list(indices)]
        rows = zip(*columns.values(), strict=True)
        return [self.replace(dict(zip(columns, row, strict=True))) for row in rows]

    def replace(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Replace tokens of one row, whether it is of this data set or not."""
        ids = np.array(row["input_ids"], dtype=np.int64)
        generator = np.random.default_rng([self._seed, zlib.crc32(ids.tobytes())])
        chosen = (generator.random(len(ids)) < self._share) & ~np.isin(ids, self._special)
        ids[chosen] = generator.choice(self._words, int(chosen.sum()))
        return {**row, "input_ids": ids}
