"""Ids of words: texts whose tokenizer reads every word by itself are looked up, and each word is tokenised once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

# A newline is a space, and ASCII punctuation a word of its own.
_APART = r"([!-/:-@\[-`{-~\n])"
# Punctuation that no other character is decomposed into, unlike `;<=>.
_MARKS = "|~^#*.,!"
_WORDS_AT_ONCE = 1000
_MOST_BYTES = 2**25
# Of the table's own for each word, beside its letters.
_BYTES_OF_WORD = 150
# The share of new words in a text is judged when so many are known.
_JUDGED_WORDS = 10_000
_MOST_NEW = 0.5


def word_mark(backend: Tokenizer) -> str | None:
    """Return punctuation with a token of its own, where the ids of a text are those of its words one by one.

    So it is with BERT's normalisation and pre-tokenisation: the first changes single characters (decomposed accents
    are reordered, but never across a space or punctuation), the second cuts at all of these. Tokens that were added
    may hold spaces, though.

    Args:
        backend: The tokenizer; special tokens in texts are plain text to it.

    Returns:
        The mark, or `None` where words must not be taken apart.
    """
    parts = json.loads(backend.to_str())
    types = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    if types != ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return None
    if not all(token["special"] for token in parts["added_tokens"]):
        return None
    vocabulary = parts["model"]["vocab"]
    unknown = parts["model"]["unk_token"]
    for mark in _MARKS:
        if mark in vocabulary and mark != unknown:
            return mark
    return None


class WordTable:
    """The ids of the words that were met, for a tokenizer with a `word_mark`.

    Text repeats its words: looking one up takes a tenth of the time of its tokenisation. A full table begins anew, so
    that memory does not grow with the text.

    Args:
        backend: The tokenizer.
        mark: Its mark, which parts words that are tokenised together.
    """

    # The ids of all words stand in one row, `_ids`. Word n has `_counts[n]` of them, from `_starts[n]` on.
    _numbers: dict[str, int]
    _ids: NDArray[np.int32]
    _starts: NDArray[np.int64]
    _counts: NDArray[np.int64]

    def __init__(self, backend: Tokenizer, mark: str) -> None:
        self._backend = backend
        self._mark = mark
        mark_id = backend.token_to_id(mark)
        assert mark_id is not None, mark
        self._mark_id = np.int32(mark_id)
        self._begin()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]] | None:
        """Return the ids of each text, without special tokens; `None` where most of the text is in new words.

        So it is in scripts without spaces: such text is tokenised faster as a whole.
        """
        # Texts become lists of words, and words numbers among the distinct ones of these texts.
        spaced = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _APART, r" \1 ")
        words_of_texts = pc.split_pattern(spaced, " ")
        encoded = words_of_texts.flatten().dictionary_encode()
        words: list[str] = encoded.dictionary.to_pylist()

        if not self._learn(words, sum(map(len, texts))):
            return None
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        word_numbers = numbers[encoded.indices.to_numpy()]

        # The ids of all words in a row: of each its start in the table, and how far the id is behind it.
        counts = self._counts[word_numbers]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        offsets = np.repeat(self._starts[word_numbers] - ends[:-1], counts)
        ids = self._ids[offsets + np.arange(ends[-1])]

        borders = ends[words_of_texts.offsets.to_numpy()].tolist()
        return [ids[start:end] for start, end in pairwise(borders)]

    def _learn(self, words: list[str], characters: int) -> bool:
        """Put words into the table; return False where they are mostly new ones, and are not put there.

        Args:
            words: The distinct words of some texts.
            characters: Of all these texts.
        """
        new = [word for word in words if word not in self._numbers]
        if not new:
            return True
        is_judged = len(self._numbers) > _JUDGED_WORDS
        if is_judged and sum(map(len, new)) > _MOST_NEW * characters:
            return False
        if self._bytes > _MOST_BYTES:
            self._begin()
            new = [word for word in words if word not in self._numbers]
        self._add(new)
        return True

    def _begin(self) -> None:
        """Empty the table, but for the empty word, which has no id, and the mark."""
        self._numbers = {"": 0, self._mark: 1}
        self._ids = np.array([self._mark_id])
        self._starts = np.zeros(2, np.int64)
        self._counts = np.array([0, 1])
        self._bytes = 0

    def _add(self, words: list[str]) -> None:
        """Tokenise new words, many at once, with a mark behind each."""
        groups = [words[first : first + _WORDS_AT_ONCE] for first in range(0, len(words), _WORDS_AT_ONCE)]
        marked = [self._mark.join([*group, ""]) for group in groups]
        # Not part of the serialised form of a tokenizer, so it is set here.
        self._backend.encode_special_tokens = True
        encodings = self._backend.encode_batch_fast(marked, add_special_tokens=False)
        ids = np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])

        # The ids of a word stand between two marks.
        is_mark = ids == self._mark_id
        marks = np.flatnonzero(is_mark)
        assert len(marks) == len(words), self._mark
        counts = np.diff(marks, prepend=-1) - 1
        starts = len(self._ids) + np.cumsum(counts) - counts

        first_number = len(self._numbers)
        for number, word in enumerate(words, start=first_number):
            self._numbers[word] = number
        self._ids = np.concatenate([self._ids, ids[~is_mark]])
        self._starts = np.concatenate([self._starts, starts])
        self._counts = np.concatenate([self._counts, counts])
        self._bytes += sum(map(len, words)) + _BYTES_OF_WORD * len(words)
