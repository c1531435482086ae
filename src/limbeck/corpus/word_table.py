"""Ids of words: texts whose tokenizer reads every word by itself are looked up, and each word is tokenised once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise, repeat

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
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    if kinds != ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return None
    if not all(token["special"] for token in parts["added_tokens"]):
        return None
    known = parts["model"]["vocab"]
    return next((mark for mark in _MARKS if mark in known and mark != parts["model"]["unk_token"]), None)


class WordTable:
    """The ids of the words that were met, for a tokenizer with a `word_mark`.

    Text repeats its words: looking one up takes a tenth of the time of its tokenisation. A full table begins anew, so
    that memory does not grow with the text.

    Args:
        backend: The tokenizer.
        mark: Its mark, which parts words that are tokenised together.
    """

    def __init__(self, backend: Tokenizer, mark: str) -> None:
        self._backend, self._mark = backend, mark
        number = backend.token_to_id(mark)
        assert number is not None, mark
        self._mark_id = np.int32(number)
        self._begin()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]] | None:
        """Return the ids of each text, without special tokens; `None` where most of the text is in new words.

        So it is in scripts without spaces: such text is tokenised faster as a whole.
        """
        spaced = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _APART, r" \1 ")
        cut = pc.split_pattern(spaced, " ")
        found = cut.flatten().dictionary_encode()
        words: list[str] = found.dictionary.to_pylist()
        numbers = np.fromiter(map(self._numbers.get, words, repeat(-1)), np.int64, len(words))
        if len(missing := np.flatnonzero(numbers < 0)):
            new = [words[place] for place in missing]
            if len(self._numbers) > _JUDGED_WORDS and sum(map(len, new)) > _MOST_NEW * sum(map(len, texts)):
                return None
            if self._bytes > _MOST_BYTES:
                self._begin()
                new = [word for word in words if word not in self._numbers]
            self._add(new)
            numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        of_text = numbers[found.indices.to_numpy()]
        counts = self._counts[of_text]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        ids = self._ids[np.repeat(self._starts[of_text] - ends[:-1], counts) + np.arange(ends[-1])]
        borders = ends[cut.offsets.to_numpy()].tolist()
        return [ids[start:end] for start, end in pairwise(borders)]

    def _begin(self) -> None:
        self._numbers = {"": 0, self._mark: 1}
        self._ids = np.array([self._mark_id])
        self._starts, self._counts = np.zeros(2, np.int64), np.array([0, 1])
        self._bytes = 0

    def _add(self, words: list[str]) -> None:
        groups = [words[start : start + _WORDS_AT_ONCE] for start in range(0, len(words), _WORDS_AT_ONCE)]
        joined = [self._mark.join([*group, ""]) for group in groups]
        self._backend.encode_special_tokens = True  # Not part of the serialised form.
        encoded = self._backend.encode_batch_fast(joined, add_special_tokens=False)
        ids = np.concatenate([np.array(encoding.ids, np.int32) for encoding in encoded])
        marks = np.flatnonzero(ids == self._mark_id)
        assert len(marks) == len(words), self._mark
        counts = np.diff(marks, prepend=-1) - 1
        starts = len(self._ids) + np.cumsum(counts) - counts
        self._numbers.update(zip(words, range(len(self._numbers), len(self._numbers) + len(words)), strict=True))
        self._ids = np.concatenate([self._ids, ids[ids != self._mark_id]])
        self._starts, self._counts = np.concatenate([self._starts, starts]), np.concatenate([self._counts, counts])
        self._bytes += sum(map(len, words)) + _BYTES_OF_WORD * len(words)
