"""`TokenEncoder`: a tokenizer reduced to what packing needs, plain ids and the special tokens of a block."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from limbeck.corpus.document import cut_text
from limbeck.errors import CorpusError

# Characters that are tokenised at once. A tokenizer needs some hundred bytes of memory for each of them.
_LONGEST_PIECE = 200_000
_PROBES = ("a", "the", "0", ".", "一")


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
        self._tokenizer = None if tokenizer.is_fast else tokenizer
        if tokenizer.is_fast:
            # A copy, because files such as sentence-transformers' have padding and truncation baked in.
            self._backend = _plain(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
        separator = tokenizer.sep_token_id
        self.separator: int | None = tokenizer.eos_token_id if separator is None else separator
        self.prefix, self.suffix = self._special_tokens()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, special tokens left out."""
        encoded = self._encode([text if len(text) <= _LONGEST_PIECE else "" for text in texts])
        for position, text in enumerate(texts):
            if len(text) > _LONGEST_PIECE:
                pieces = (self._encode([piece])[0] for piece in cut_text(text, _LONGEST_PIECE))
                encoded[position] = [token for piece in pieces for token in piece]
        return encoded

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

    def _encode(self, texts: list[str], special_tokens: bool = False) -> list[list[int]]:
        if self._backend is not None:
            batch = self._backend.encode_batch_fast(texts, add_special_tokens=special_tokens)
            return [encoding.ids for encoding in batch]
        assert self._tokenizer is not None
        encoded = self._tokenizer(texts, add_special_tokens=special_tokens, verbose=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """Find what the tokenizer puts around a text, by the difference it makes to a short one."""
        for probe in _PROBES:
            plain = self._encode([probe])[0]
            whole = self._encode([probe], special_tokens=True)[0]
            for start in range(len(whole) - len(plain) + 1):
                if plain and whole[start : start + len(plain)] == plain:
                    return whole[:start], whole[start + len(plain) :]
        raise CorpusError("The tokenizer gives no token for any plain text: it is empty or broken.")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_backend": self._backend and self._backend.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["_backend"] is not None:
            self._backend = _plain(Tokenizer.from_str(state["_backend"]))


def _plain(backend: Tokenizer) -> Tokenizer:
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True  # Not part of the serialised form.
    return backend
