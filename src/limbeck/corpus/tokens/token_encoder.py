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

# Characters that are tokenised at once. A tokenizer needs some hundred bytes of memory for each of them.
_LONGEST_PIECE = 200_000
PROBES = ("a", "the", "0", ".", "一")


class TokenEncoder:
    """Encodes texts without padding, truncation, special tokens or warnings; the tokenizer is not changed.

    Text that spells a special token ("[SEP]", "</s>") is encoded as plain text: a document can neither end a
    block nor mask a word.

    Args:
        tokenizer: A `transformers` tokenizer.

    Attributes:
        prefix: Ids of the special tokens before a single text.
        suffix: Ids of the special tokens after a single text.
        separator: Id of the token between two joined texts, or `None` if the tokenizer has none.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._backend: Tokenizer | None = None
        self._words: WordTable | None = None
        self._tokenizer = None if tokenizer.is_fast else tokenizer
        if tokenizer.is_fast:
            self._backend = plain_backend(tokenizer)
            mark = word_mark(self._backend)
            self._words = None if mark is None else WordTable(self._backend, mark)
        separator = tokenizer.sep_token_id
        self.separator: int | None = tokenizer.eos_token_id if separator is None else separator
        self.prefix, self.suffix = self._special_tokens()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text, special tokens left out."""
        encoded = self._ids([text if len(text) <= _LONGEST_PIECE else "" for text in texts])
        for position, text in enumerate(texts):
            if len(text) > _LONGEST_PIECE:
                encoded[position] = np.concatenate([self._ids([piece])[0] for piece in cut_text(text, _LONGEST_PIECE)])
        return encoded

    def encode_sentences(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text, sentence by sentence; a sentence's first token t is marked: it stands as ~t.

        A marked id is negative, so that the marks stay with their tokens however the text is cut and joined.
        """
        sentences: list[str] = []
        # The number of the first sentence of each text, and behind the last the number of all.
        first_sentences = [0]
        for text in texts:
            sentences += UNITS["sentence"](text)
            first_sentences.append(len(sentences))

        encoded = self.encode(sentences)
        ids = np.concatenate([*encoded, np.zeros(0, np.int32)])
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # A sentence without tokens has no first one to mark.
        first_tokens = starts[:-1][lengths > 0]
        ids[first_tokens] = ~ids[first_tokens]
        borders = starts[first_sentences].tolist()
        return [ids[start:end] for start, end in pairwise(borders)]

    def fingerprint(self) -> str:
        """Return a hash of everything that decides the ids."""
        if self._backend is not None:
            content = self._backend.to_str()
        else:
            assert self._tokenizer is not None
            vocabulary = sorted(self._tokenizer.get_vocab().items())
            content = json.dumps([type(self._tokenizer).__name__, vocabulary])
        special = json.dumps([self.prefix, self.suffix, self.separator])
        return hashlib.blake2b((content + special).encode(), digest_size=16).hexdigest()

    def _ids(self, texts: list[str]) -> list[NDArray[np.int32]]:
        ids_by_words = None if self._words is None else self._words.encode(texts)
        return [np.array(ids, np.int32) for ids in self._encode(texts)] if ids_by_words is None else ids_by_words

    def _encode(self, texts: list[str], special_tokens: bool = False) -> list[list[int]]:
        if self._backend is not None:
            self._backend.encode_special_tokens = True  # Not part of the serialised form.
            batch = self._backend.encode_batch_fast(texts, add_special_tokens=special_tokens)
            return [encoding.ids for encoding in batch]
        assert self._tokenizer is not None
        encoded = self._tokenizer(texts, add_special_tokens=special_tokens, verbose=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """Find the special tokens around a text by encoding a short one with and without them."""
        for probe in PROBES:
            plain = self._encode([probe])[0]
            whole = self._encode([probe], special_tokens=True)[0]
            for start in range(len(whole) - len(plain) + 1):
                if plain and whole[start : start + len(plain)] == plain:
                    return whole[:start], whole[start + len(plain) :]
        raise CorpusError("The tokenizer turns plain text into no tokens: it is empty or broken.")


def plain_backend(tokenizer: Any) -> Tokenizer:
    """Copy a fast tokenizer's backend without padding and truncation, which some files have baked in."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    return backend
