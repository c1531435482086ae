"""`WordTable`: the token ids of texts are looked up word by word, for tokenizers that encode every word by itself.

Each word is tokenised only once. BERT's tokenizers allow this, see `word_mark`. Here a *word* is what stands between
two spaces, or a punctuation character by itself. A *mark* is a punctuation character that is a token of its own: it is
put between words, so that many words can be tokenised in one text.
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

_PUNCTUATION = r"([!-/:-@\[-`{-~\n])"
"""ASCII punctuation and newlines. Each is a word by itself, also without spaces around it."""
_MARKS = "|~^#*.,!"
"""Punctuation that may be the mark. Characters such as ` ; < = > are left out: Unicode decomposes others into them."""
_WORDS_AT_ONCE = 1000
"""Words that are tokenised in one text."""
_MOST_BYTES = 2**25
"""Bytes of memory of a full table."""
_BYTES_PER_WORD = 150
"""Bytes of memory that the table takes for a word, beside its letters."""
_WORDS_TO_JUDGE_BY = 10_000
"""The share of new words in texts is only judged once the table has so many words."""
_MOST_NEW = 0.5
"""Share of the characters of texts that are in new words, above which the texts are not looked up."""
_TYPES_OF_BERT = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
"""The types of the parts of BERT's tokenizers."""


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

    Each word has a number. The ids of all words lie one after the other in a single array, and two further arrays have
    for each number the place of its first id there, and the count of its ids.

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
        self._empty()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]] | None:
        """Return the ids of each text, without special tokens; `None` if most of the text is in new words.

        That is the case in scripts without spaces. The caller then tokenises whole texts, which is faster.
        """
        # Arrow cuts the texts into words. In Arrow's list of all words, each word is an index into the distinct words,
        # and text t has the words from `offsets[t]` to `offsets[t + 1]`.
        spaced_texts = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _PUNCTUATION, r" \1 ")
        words_of_texts = pc.split_pattern(spaced_texts, " ")
        offsets = words_of_texts.offsets.to_numpy()
        words = words_of_texts.flatten().dictionary_encode()
        distinct_words: list[str] = words.dictionary.to_pylist()
        if not self._learn(distinct_words, characters=sum(map(len, texts))):
            return None

        # The number of each word in the table.
        numbers_of_distinct = np.array([self._numbers[word] for word in distinct_words], np.int64)
        numbers = numbers_of_distinct[words.indices.to_numpy()]

        # The ids of all words, one word after the other.
        counts = self._counts[numbers]
        ids = self._ids[_places_of_runs(self._first_places[numbers], counts)]

        # The ids of a text begin behind those of all words of the texts before it.
        ids_before_word = np.concatenate([[0], np.cumsum(counts)])
        borders = ids_before_word[offsets].tolist()
        return [ids[start:end] for start, end in pairwise(borders)]

    def _learn(self, words: list[str], characters: int) -> bool:
        """Put the new words of some texts into the table, unless too much of the texts is new.

        Args:
            words: The distinct words of the texts.
            characters: Number of characters of the texts.

        Returns:
            Whether all words are in the table now.
        """
        new_words = [word for word in words if word not in self._numbers]
        if not new_words:
            return True
        # In a small table most words are new.
        can_be_judged = len(self._numbers) > _WORDS_TO_JUDGE_BY
        if can_be_judged and sum(map(len, new_words)) > _MOST_NEW * characters:
            return False
        if self._bytes > _MOST_BYTES:
            # In the empty table all words of the texts are new.
            self._empty()
            new_words = [word for word in words if word not in self._numbers]
        self._add(new_words)
        return True

    def _empty(self) -> None:
        """Empty the table. It always has the empty word, which has no ids, and the mark."""
        self._numbers: dict[str, int] = {"": 0, self._mark: 1}
        # The ids of word n are the `_counts[n]` ids from `_ids[_first_places[n]]` on.
        self._ids = np.array([self._mark_id])
        self._first_places = np.array([0, 0], np.int64)
        self._counts = np.array([0, 1], np.int64)
        self._bytes = 0

    def _add(self, words: list[str]) -> None:
        """Tokenise new words, many in one text, with a mark behind each word.

        The mark is a punctuation character, and each of these is a word by itself. So no other word has the mark in
        it, and the mark itself is never new: the table has it from the start.
        """
        marked_texts: list[str] = []
        for first in range(0, len(words), _WORDS_AT_ONCE):
            part = words[first : first + _WORDS_AT_ONCE]
            marked_texts.append("".join(f"{word}{self._mark}" for word in part))
        # Special tokens in a text are encoded as plain text. The option is lost when a tokenizer is serialised.
        self._backend.encode_special_tokens = True
        encodings = self._backend.encode_batch_fast(marked_texts, add_special_tokens=False)
        ids = np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])

        # The ids of a word are those between two marks. Each text ends with one, so no word goes on in the next text.
        is_mark = ids == self._mark_id
        mark_places = np.flatnonzero(is_mark)
        assert len(mark_places) == len(words), self._mark
        counts = np.diff(mark_places, prepend=-1) - 1
        # They are put behind the ids that the table has already: a word is a first place there, and a number of ids.
        first_places = len(self._ids) + _sums_before(counts)

        for number, word in enumerate(words, start=len(self._numbers)):
            self._numbers[word] = number
        self._ids = np.concatenate([self._ids, ids[~is_mark]])
        self._first_places = np.concatenate([self._first_places, first_places])
        self._counts = np.concatenate([self._counts, counts])
        self._bytes += sum(map(len, words)) + _BYTES_PER_WORD * len(words)


def _places_of_runs(first_places: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of several runs of neighbours: the runs (5, count 3) and (0, count 2) have 5, 6, 7, 0, 1.

    Args:
        first_places: The first place of each run.
        counts: How many places each run has.
    """
    # The result at index i is i, moved by the difference between the place at which its run begins and the index at
    # which it begins in the result.
    moves = first_places - _sums_before(counts)
    return np.arange(counts.sum()) + np.repeat(moves, counts)


def _sums_before(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each count the sum of the counts before it: 2, 3, 1 gives 0, 2, 5."""
    return np.cumsum(counts) - counts
