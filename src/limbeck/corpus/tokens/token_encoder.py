"""`TokenEncoder`: ids of texts, without padding, truncation and special tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from limbeck.corpus.text.documents import cut_text
from limbeck.corpus.text.pieces import UNITS
from limbeck.corpus.tokens.word_table import WordTable, word_mark
from limbeck.errors import CorpusError

# Characters of a text that are tokenised at once. A tokenizer needs some hundred bytes of memory for each of them.
_LONGEST_PART = 200_000
_SHOWN_CHARACTERS = 60
"""Most characters of foreign text in a message."""
PROBES = ("a", "the", "0", ".", "一")
"""Short texts. Every tokenizer that works has a token for one of them."""


class TokenEncoder:
    """Encodes texts without padding, truncation, special tokens or warnings; the tokenizer is not changed.

    Text that spells a special token ("[SEP]", "</s>") is encoded as plain text, so that no document can end a block or
    mask a word.

    Args:
        tokenizer: A `transformers` tokenizer.

    Attributes:
        prefix: Ids of the special tokens before a single text.
        suffix: Ids of the special tokens after a single text.
        separator: Id of the token between two joined texts, or `None` if the tokenizer has none.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer: _FastTokenizer | _SlowTokenizer
        if tokenizer.is_fast:
            self._tokenizer = _FastTokenizer(tokenizer)
        else:
            self._tokenizer = _SlowTokenizer(tokenizer)
        self.prefix, self.suffix = _find_special_tokens(self._tokenizer)
        # Models without pairs of texts have no separator of their own.
        self.separator: int | None = tokenizer.sep_token_id
        if self.separator is None:
            self.separator = tokenizer.eos_token_id

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text, without special tokens."""
        # A text that would need too much memory is encoded in parts; an empty text takes its place in the batch.
        short_texts = [text if len(text) <= _LONGEST_PART else "" for text in texts]
        encoded = self._tokenizer.encode_plain(short_texts)
        for number, text in enumerate(texts):
            if len(text) > _LONGEST_PART:
                parts: list[NDArray[np.int32]] = []
                for part in cut_text(text, _LONGEST_PART):
                    parts += self._tokenizer.encode_plain([part])
                encoded[number] = np.concatenate(parts)
        return encoded

    def encode_sentences(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text, which is encoded sentence by sentence; the first token of a sentence is marked.

        Instead of the id t a marked token has the bitwise complement ~t, which is negative. So a mark stays with its
        token wherever the text is cut and joined.
        """
        sentences: list[str] = []
        # The index of the first sentence of each text, and at the end the number of all sentences.
        first_sentences = [0]
        for text in texts:
            sentences += UNITS["sentence"](text)
            first_sentences.append(len(sentences))

        encoded = self.encode(sentences)
        # The ids of all sentences, one after the other. The empty array stands for no sentence at all.
        ids = np.concatenate([*encoded, np.zeros(0, np.int32)])
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        # The place of each sentence's first id, and at the end the number of all ids.
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # A sentence without tokens has no first token.
        first_tokens = starts[:-1][lengths > 0]
        ids[first_tokens] = ~ids[first_tokens]
        borders_of_texts = starts[first_sentences].tolist()
        return [ids[start:end] for start, end in pairwise(borders_of_texts)]

    def begins(self, text: str) -> NDArray[np.int64]:
        """Return where each token of a text begins, as an index of its characters, int64 `[tokens]`.

        Raises:
            CorpusError: for a tokenizer in Python, which does not tell it.
        """
        begins: list[int] = []
        begin_of_part = 0
        for part in cut_text(text, _LONGEST_PART):
            begins += [begin_of_part + begin for begin in self._tokenizer.begins(part)]
            begin_of_part += len(part)
        return np.array(begins, np.int64)

    def fingerprint(self) -> str:
        """Return a hash of everything that decides the ids."""
        special = json.dumps([self.prefix, self.suffix, self.separator])
        content = self._tokenizer.content() + special
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def plain_backend(tokenizer: Any) -> Tokenizer:
    """Copy a fast tokenizer's backend without padding and truncation, which some files have baked in."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    return backend


class _FastTokenizer:
    """A tokenizer of the `tokenizers` library. Words are looked up in a table where that gives the same ids.

    Args:
        tokenizer: The `transformers` tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._backend = plain_backend(tokenizer)
        self._words: WordTable | None = None
        mark = word_mark(self._backend)
        if mark is not None:
            self._words = WordTable(self._backend, mark)

    def encode_plain(self, texts: list[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text without special tokens."""
        if self._words is not None:
            ids_of_texts = self._words.encode(texts)
            if ids_of_texts is not None:
                return ids_of_texts
        return [np.array(ids, np.int32) for ids in self.encode(texts, special_tokens=False)]

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """Return the ids of each text."""
        # Special tokens in a text are encoded as plain text. The option is lost when a tokenizer is serialised.
        self._backend.encode_special_tokens = True
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=special_tokens)
        return [encoding.ids for encoding in encodings]

    def begins(self, text: str) -> list[int]:
        """Return the index of the first character of each token."""
        self._backend.encode_special_tokens = True
        encoding = self._backend.encode(text, add_special_tokens=False)
        return [begin for begin, _ in encoding.offsets]

    def content(self) -> str:
        """Return a text of everything that decides the ids."""
        return str(self._backend.to_str())


class _SlowTokenizer:
    """A tokenizer that is written in Python.

    Args:
        tokenizer: The `transformers` tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode_plain(self, texts: list[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text without special tokens."""
        return [np.array(ids, np.int32) for ids in self.encode(texts, special_tokens=False)]

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """Return the ids of each text."""
        encoded = self._tokenizer(texts, add_special_tokens=special_tokens, verbose=False)
        ids_of_texts: list[list[int]] = encoded["input_ids"]
        return ids_of_texts

    def begins(self, text: str) -> list[int]:
        """Refuse, since these tokenizers do not know where their tokens stand."""
        raise CorpusError(
            f"A text is longer than 'length', and the teacher's tokenizer ({type(self._tokenizer).__name__}) does "
            "not tell where its tokens stand, so that the student cannot read the same part; give a larger "
            "'length', or save the tokenizer as a fast one (tokenizer.json). The text: "
            f"{text[:_SHOWN_CHARACTERS]!r}"
        )

    def content(self) -> str:
        """Return a text of everything that decides the ids."""
        vocabulary = sorted(self._tokenizer.get_vocab().items())
        return json.dumps([type(self._tokenizer).__name__, vocabulary])


def _find_special_tokens(tokenizer: _FastTokenizer | _SlowTokenizer) -> tuple[list[int], list[int]]:
    """Find the special tokens before and after a text by encoding a short one with and without them.

    Raises:
        CorpusError: if the tokenizer gives no token for any plain text.
    """
    for probe in PROBES:
        (plain,) = tokenizer.encode([probe], special_tokens=False)
        (whole,) = tokenizer.encode([probe], special_tokens=True)
        if not plain:
            continue
        for start in range(len(whole) - len(plain) + 1):
            end = start + len(plain)
            if whole[start:end] == plain:
                return whole[:start], whole[end:]
    raise CorpusError(
        "The tokenizer turns plain text into no tokens, so it is empty or damaged: copy or download the model again."
    )
