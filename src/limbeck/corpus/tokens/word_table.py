"""`WordTable`: ids of texts looked up word by word, for tokenizers that read every word by itself.

Each word is tokenised once. BERT's tokenizers are of this kind, see `word_mark`.
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

# ASCII punctuation and newlines, which stand apart from the words beside them.
_APART = r"([!-/:-@\[-`{-~\n])"
# Punctuation that no other character is decomposed into, unlike `;<=>.
_MARKS = "|~^#*.,!"
_WORDS_AT_ONCE = 1000
_MOST_BYTES = 2**25
"""Bytes of memory of a full table."""
_BYTES_PER_WORD = 150
"""Bytes of memory that the table takes for a word, beside its letters."""
_WORDS_TO_JUDGE_BY = 10_000
"""Words that are known before texts are judged by their share of new ones."""
_MOST_NEW = 0.5
"""Share of a text's characters in new words, above which words are not looked up."""


_TYPES_OF_BERT = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}


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
    for name, needed_type in _TYPES_OF_BERT.items():
        part = parts[name]
        if part is None or part.get("type") != needed_type:
            return None
    if not all(token["special"] for token in parts["added_tokens"]):
        return None

    # Any mark that is a token serves.
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
        # Arrow cuts the texts into words, and numbers the distinct ones.
        spaced_texts = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _APART, r" \1 ")
        words_of_texts = pc.split_pattern(spaced_texts, " ")
        words = words_of_texts.flatten().dictionary_encode()
        distinct_words: list[str] = words.dictionary.to_pylist()
        if not self._learn(distinct_words, characters=sum(map(len, texts))):
            return None

        # The number in the table of each word of the texts.
        number_of_distinct = np.array([self._numbers[word] for word in distinct_words], np.int64)
        numbers = number_of_distinct[words.indices.to_numpy()]

        # The ids of all words, one behind the other. An id's place in the table is where its word starts there, and as
        # far behind that as the id is behind the first of its word here.
        counts = self._counts[numbers]
        ends = np.cumsum(counts)
        starts = ends - counts
        places = np.arange(counts.sum()) + np.repeat(self._starts[numbers] - starts, counts)
        ids = self._ids[places]

        borders = np.concatenate([[0], ends])[words_of_texts.offsets.to_numpy()].tolist()
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
        is_judged = len(self._numbers) > _WORDS_TO_JUDGE_BY
        if is_judged and sum(map(len, new)) > _MOST_NEW * characters:
            return False
        if self._bytes > _MOST_BYTES:
            self._begin()
            new = [word for word in words if word not in self._numbers]
        self._add(new)
        return True

    def _begin(self) -> None:
        """Empty the table, but for the empty word, which has no id, and the mark."""
        self._numbers: dict[str, int] = {"": 0, self._mark: 1}
        # The ids of all words stand in one row, `_ids`. Word n has `_counts[n]` of them, from `_starts[n]` on.
        self._ids = np.array([self._mark_id])
        self._starts = np.array([0, 0], np.int64)
        self._counts = np.array([0, 1], np.int64)
        self._bytes = 0

    def _add(self, words: list[str]) -> None:
        """Tokenise new words, many at once, with a mark behind each."""
        marked_texts: list[str] = []
        for first in range(0, len(words), _WORDS_AT_ONCE):
            part = words[first : first + _WORDS_AT_ONCE]
            marked_texts.append("".join(f"{word}{self._mark}" for word in part))
        self._backend.encode_special_tokens = True  # As plain text; it is not part of the serialised form.
        encodings = self._backend.encode_batch_fast(marked_texts, add_special_tokens=False)
        ids = np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])

        # The ids of a word stand between two marks.
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
