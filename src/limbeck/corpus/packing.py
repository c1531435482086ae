"""Packing: a tokenizer reduced to plain ids and special tokens, and units cut into token blocks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tokenizers import Tokenizer

from limbeck.corpus.documents import cut_text
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
        self._tokenizer = None if tokenizer.is_fast else tokenizer
        if tokenizer.is_fast:
            self._backend = plain_backend(tokenizer)
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
        raise CorpusError("The tokenizer gives no token for any plain text: it is empty or broken.")


def plain_backend(tokenizer: Any) -> Tokenizer:
    """Copy a fast tokenizer's backend without padding and truncation, which some files have baked in."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    return backend


@dataclass
class PackingCounts:
    """Blocks and tokens that packing made, and those that it left out.

    Args:
        blocks: Number of blocks.
        tokens: Number of tokens in them, special tokens included.
        dropped_blocks: Blocks left out because they were too short.
        dropped_tokens: Tokens in those, special tokens not included.
    """

    blocks: int = 0
    tokens: int = 0
    dropped_blocks: int = 0
    dropped_tokens: int = 0


@dataclass
class BlockPacker:
    """Cuts token sequences into blocks of at most `length` tokens.

    Without `join`, a block holds tokens of one unit: long units are cut into full blocks and a rest, short
    ones make short blocks, so that batches of equal lengths waste nothing. With it, the units form one stream
    with the separator between them, cut into exactly full blocks; the rest at the end is dropped and
    counted.

    Args:
        length: Most tokens in a block, special tokens included.
        prefix: Special tokens before a block.
        suffix: Special tokens after a block.
        minimum: Blocks with fewer tokens than this, special tokens not counted, are dropped.
        join: Whether to fill blocks across units.
        separator: Token between joined units.

    Raises:
        CorpusError: if no token fits between the special ones, or `join` is asked without a separator.
    """

    length: int
    prefix: Sequence[int]
    suffix: Sequence[int]
    _: KW_ONLY
    minimum: int = 1
    join: bool = False
    separator: int | None = None

    def __post_init__(self) -> None:
        special = len(self.prefix) + len(self.suffix)
        self._room = self.length - special
        if self._room < 1:
            raise CorpusError(
                f"length is {self.length}, but this tokenizer puts {special} special tokens in a block: no text fits."
            )
        if self.join and self.separator is None:
            raise CorpusError("join needs a separator, and this tokenizer has neither a sep nor an eos token.")
        self.minimum = min(self.minimum, self._room)
        self._stream: list[int] = []
        self._joined = False  # Whether a unit has entered the stream, so that the next one needs a separator.
        self.counts = PackingCounts()

    def pack(self, units: Iterable[Sequence[int]]) -> Iterator[list[int]]:
        """Iterate over the blocks that are complete after these units.

        Args:
            units: Token ids of each unit, without special tokens.
        """
        for unit in units:
            if not self.join:
                for start in range(0, len(unit), self._room):
                    yield from self._block(unit[start : start + self._room])
            elif unit:
                if self._joined:
                    assert self.separator is not None
                    self._stream.append(self.separator)
                self._joined = True
                self._stream.extend(unit)
                full = len(self._stream) - len(self._stream) % self._room
                for start in range(0, full, self._room):
                    yield from self._block(self._stream[start : start + self._room])
                del self._stream[:full]

    def finish(self) -> None:
        """Drop and count the tokens that have not filled a block; call it once, after the last unit."""
        if self._stream:
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(self._stream)
            self._stream = []

    def state(self) -> list[Any]:
        """Return the tokens that have not filled a block, as plain JSON values."""
        return [self._joined, list(self._stream)]

    def restore(self, state: list[Any]) -> None:
        """Restore the tokens that `state` returned."""
        self._joined, self._stream = state[0], list(state[1])

    def _block(self, content: Sequence[int]) -> Iterator[list[int]]:
        if len(content) < self.minimum:
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(content)
            return
        block = [*self.prefix, *content, *self.suffix]
        self.counts.blocks += 1
        self.counts.tokens += len(block)
        yield block
