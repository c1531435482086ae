"""`SharedPieces`: which texts hold only pieces that a cut vocabulary has too, so that both tokenizers cut them alike.

A tokenizer that was cut (`limbeck.models.vocabulary_cut`) cuts a text as the whole one does exactly where all pieces of
the text have stayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limbeck.corpus.tokens.token_encoder import TokenEncoder


class SharedPieces:
    """The pieces that a whole tokenizer shares with one that was cut from it; it can be sent to another process.

    Args:
        whole: The whole `transformers` tokenizer.
        cut: The cut one.

    Attributes:
        encoder: Encodes texts by the whole tokenizer.
    """

    def __init__(self, whole: Any, cut: Any) -> None:
        self.encoder = TokenEncoder(whole)
        ids = whole.get_vocab()
        names_that_stay = cut.get_vocab().keys()
        self._stays = np.zeros(max(ids.values()) + 1, dtype=np.bool_)
        for name, piece_id in ids.items():
            self._stays[piece_id] = name in names_that_stay

    def cover(self, texts: Sequence[str], *, by_sentence: bool = False) -> list[bool]:
        """Tell for each text whether all of its pieces have stayed.

        Args:
            texts: The texts, with their prompts.
            by_sentence: Whether they are encoded sentence by sentence, as those of pairs of segments are.
        """
        if not by_sentence:
            return [bool(self._stays[ids].all()) for ids in self.encoder.encode(texts)]
        # The first token of a sentence is marked: its id is stored as the bitwise complement, which is below 0.
        encoded = self.encoder.encode_sentences(texts)
        return [bool(self._stays[np.where(ids < 0, ~ids, ids)].all()) for ids in encoded]
