"""Kinds of tokens in a vocabulary: the mask token, tokens that begin a word, and tokens that are whole words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import CorpusError

# Beginnings of tokens that begin a word, in vocabularies of byte-level BPE and of SentencePiece.
_WORD_MARKS = ("Ġ", "▁")
# The beginning of tokens that continue a word, in vocabularies of WordPiece.
_CONTINUATION = "##"
_FEWEST_WORDS = 32


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
            f"The tokenizer ({type(tokenizer).__name__}) has no mask token: choose a method without masked "
            "language modelling, or a teacher that was trained by masked language modelling."
        )
    return mask_id


def word_beginnings(tokenizer: Any) -> dict[str, int]:
    """Return the tokens that begin a word, with their ids; special tokens are left out.

    Args:
        tokenizer: A `transformers` tokenizer: WordPiece, byte-level BPE or SentencePiece.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    special_ids = set(tokenizer.all_special_ids)
    # Byte-level BPE and SentencePiece mark where words begin, WordPiece where they go on.
    marks_beginnings = any(token.startswith(_WORD_MARKS) for token in vocabulary)
    beginnings: dict[str, int] = {}
    for token, index in vocabulary.items():
        begins_word = not token.startswith(_CONTINUATION)
        if marks_beginnings:
            begins_word = token.startswith(_WORD_MARKS)
        if begins_word and index not in special_ids:
            beginnings[token] = index
    return beginnings


def word_ids(tokenizer: Any) -> NDArray[np.int64]:
    """Return the ids of the tokens that are whole words of two letters or more, sorted.

    If the vocabulary has fewer than 32 of them, the ids of all tokens but the special ones are returned.

    Args:
        tokenizer: A `transformers` tokenizer: WordPiece, byte-level BPE or SentencePiece.
    """
    ids: list[int] = []
    for token, index in word_beginnings(tokenizer).items():
        letters = token.lstrip("".join(_WORD_MARKS))
        if len(letters) > 1 and letters.isalpha():
            ids.append(index)
    if len(ids) < _FEWEST_WORDS:
        special_ids = set(tokenizer.all_special_ids)
        ids = [index for index in tokenizer.get_vocab().values() if index not in special_ids]
    return np.asarray(sorted(ids), dtype=np.int64)
