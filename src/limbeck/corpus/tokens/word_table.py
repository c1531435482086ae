"""`WordTable`: the token ids of texts are looked up word by word, for tokenizers that encode every word by itself.

Each word is tokenised only once. BERT's tokenizers allow this, see `word_mark`. A *mark* is a punctuation character
that is a token of its own: it is put between words, so that many words can be tokenised in one text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

# ASCII punctuation and newlines. Each is a word of its own, also without spaces around it.
_APART = r"([!-/:-@\[-`{-~\n])"
# Punctuation that may be the mark. Characters such as ` ; < = > are left out: Unicode decomposes others into them.
_MARKS = "|~^#*.,!"
_WORDS_AT_ONCE = 1000
_MOST_BYTES = 2**25
"""Bytes of memory of a full table."""
_BYTES_PER_WORD = 150
"""Bytes of memory that the table takes for a word, beside its letters."""
_WORDS_TO_JUDGE_BY = 10_000
"""The share of new words in texts is only judged once the table has so many words."""
_MOST_NEW = 0.5
"""Share of the characters of texts that are in new words, above which the texts are not looked up."""


_TYPES_OF_BERT = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}


def word_mark(backend: Tokenizer) -> str | None:
    """Return the mark of a tokenizer: a punctuation character with a token of its own.

    Words can be looked up one by one if the ids of a text are those of its words, one after the other. That holds for
    BERT's tokenizers: their normalisation changes single characters (it reorders accents, but never across a space or
    punctuation), and their pre-tokenisation cuts at spaces and punctuation. It does not hold if plain tokens were added
    to the vocabulary, since these may contain spaces.

    Args:
        backend: The tokenizer, which must treat special tokens in texts as plain text.

    Returns:
        The mark, or `None` if words cannot be looked up one by one.
    """
    parts = json.loads(backend.to_str())
    for name, needed_type in _TYPES_OF_BERT.items():
        part = parts[name]
        if part is None or part.get("type") != needed_type:
            return None
    if not all(token["special"] for token in parts["added_tokens"]):
        return None

    # Any punctuation that is a token will do.
    vocabulary = parts["model"]["vocab"]
    unknown = parts["model"]["unk_token"]
    for mark in _MARKS:
        if mark in vocabulary and mark != unknown:
            return mark
    return None


class WordTable:
    """The token ids of all words so far, for a tokenizer with a `word_mark`.

    Texts repeat their words, and looking a word up takes a tenth of the time of tokenising it. When the table is full
    it is emptied, so that memory does not grow with the text.

    Args:
        backend: The tokenizer.
        mark: Its mark.
    """

    def __init__(self, backend: Tokenizer, mark: str) -> None:
        self._backend = backend
        self._mark = mark
        mark_id = backend.token_to_id(mark)
        assert mark_id is not None, mark
        self._mark_id = np.int32(mark_id)
        self._begin()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]] | None:
        """Return the ids of each text, without special tokens; `None` if most of the text is in new words.

        That is the case in scripts without spaces. The caller then tokenises whole texts, which is faster.
        """
        # Arrow cuts the texts into words, and numbers the distinct words.
        spaced_texts = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _APART, r" \1 ")
        words_of_texts = pc.split_pattern(spaced_texts, " ")
        words = words_of_texts.flatten().dictionary_encode()
        distinct_words: list[str] = words.dictionary.to_pylist()
        if not self._learn(distinct_words, characters=sum(map(len, texts))):
            return None

        # For each word of the texts, its number in the table.
        number_of_distinct = np.array([self._numbers[word] for word in distinct_words], np.int64)
        numbers = number_of_distinct[words.indices.to_numpy()]

        # The ids of all words in one array. The ids of a word start at `starts` in this array, and at `self._starts` in
        # the table. Each id is found by its place in the array, moved by the difference of the two.
        counts = self._counts[numbers]
        ends = np.cumsum(counts)
        starts = ends - counts
        places_in_table = np.arange(counts.sum()) + np.repeat(self._starts[numbers] - starts, counts)
        ids = self._ids[places_in_table]

        # Where the ids of each text begin in the array: behind the ids of all words of earlier texts.
        borders = np.concatenate([[0], ends])[words_of_texts.offsets.to_numpy()].tolist()
        return [ids[start:end] for start, end in pairwise(borders)]

    def _learn(self, words: list[str], characters: int) -> bool:
        """Put the new words of some texts into the table, unless too much of the texts is new.

        Args:
            words: The distinct words of the texts.
            characters: Number of characters of the texts.

        Returns:
            Whether all words are in the table now.
        """
        new = [word for word in words if word not in self._numbers]
        if not new:
            return True
        is_judged = len(self._numbers) > _WORDS_TO_JUDGE_BY
        if is_judged and sum(map(len, new)) > _MOST_NEW * characters:
            return False
        if self._bytes > _MOST_BYTES:
            self._begin()
            new = [word for word in words if word not in self._numbers]
        self._add(new)
        return True

    def _begin(self) -> None:
        """Empty the table. It always has the empty word, which has no ids, and the mark."""
        self._numbers: dict[str, int] = {"": 0, self._mark: 1}
        # `_ids` has the ids of all words. Those of word n are `_ids[_starts[n] : _starts[n] + _counts[n]]`.
        self._ids = np.array([self._mark_id])
        self._starts = np.array([0, 0], np.int64)
        self._counts = np.array([0, 1], np.int64)
        self._bytes = 0

    def _add(self, words: list[str]) -> None:
        """Tokenise new words, many in one text, with a mark behind each word."""
        marked_texts: list[str] = []
        for first in range(0, len(words), _WORDS_AT_ONCE):
            part = words[first : first + _WORDS_AT_ONCE]
            marked_texts.append("".join(f"{word}{self._mark}" for word in part))
        # Special tokens in a text are encoded as plain text. The option is lost when a tokenizer is serialised.
        self._backend.encode_special_tokens = True
        encodings = self._backend.encode_batch_fast(marked_texts, add_special_tokens=False)
        ids = np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])

        # The ids of a word are those between two marks.
        is_mark = ids == self._mark_id
        mark_places = np.flatnonzero(is_mark)
        assert len(mark_places) == len(words), self._mark
        counts = np.diff(mark_places, prepend=-1) - 1
        starts = len(self._ids) + np.cumsum(counts) - counts

        for number, word in enumerate(words, start=len(self._numbers)):
            self._numbers[word] = number
        self._ids = np.concatenate([self._ids, ids[~is_mark]])
        self._starts = np.concatenate([self._starts, starts])
        self._counts = np.concatenate([self._counts, counts])
        self._bytes += sum(map(len, words)) + _BYTES_PER_WORD * len(words)
