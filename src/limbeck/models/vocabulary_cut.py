"""`Pieces`: the pieces of a fast tokenizer, and the tokenizer that has only some of them.

A *piece* is a token of a vocabulary. A tokenizer is *cut* by leaving out pieces: those that stay get new ids in their
old order, so that a model keeps the rows of its embeddings in that order too. Three kinds of tokenizers can be cut:

- **WordPiece** takes the longest piece that fits, from left to right. Where the longest piece stays, nothing changes.
- **BPE** merges pairs of pieces, in a fixed order. A piece can be made only if all pieces stay that are made on the
  way to it, its *parts*.
- **Unigram** takes the pieces with the highest sum of scores. Without other pieces the best sum stays the best.

So a text is cut into the same pieces as before wherever all of these, and their parts, have stayed. Any other text is
cut into more pieces, and never becomes unknown, since the pieces of single characters and of bytes always stay.

The package `skeletoken` removes pieces too, from a description of all of `tokenizer.json`. It is not used here: it
knows nothing of the parts of a BPE's piece, so that pieces stay which no text gives any more; it drops a Unigram's
piece of the lowest score, from which the score of unknown characters follows; and it removes any piece that it is
asked to remove, also one of a single character.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from limbeck.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A piece that stands for a byte of a character without a piece of its own."""
_SLOT = re.compile(r"(\[unused\d+\]|<unused[_-]?\d+>|madeupword\d+|<\|reserved_special_token_\d+\|>)")
"""A piece without a meaning, which holds a place for tokens that a user may add."""
_WORDPIECE = "WordPiece"
_BPE = "BPE"
_UNIGRAM = "Unigram"
_SETTINGS_OF_PIECES = ("vocab", "merges", "added_tokens_decoder")
"""Settings in which transformers repeats pieces or ids of the backend."""
_KINDS = (_WORDPIECE, _BPE, _UNIGRAM)


@dataclass(frozen=True)
class CutTokenizer:
    """A tokenizer with some of the pieces of another.

    Attributes:
        tokenizer: The tokenizer.
        old_ids: For each of its ids the id of the same piece before, rising.
    """

    tokenizer: PreTrainedTokenizerBase
    old_ids: tuple[int, ...]


class Pieces:
    """The pieces of a fast tokenizer, by their ids.

    Args:
        tokenizer: Left as it is.

    Attributes:
        kind: `"WordPiece"`, `"BPE"` or `"Unigram"`.
        names: The text of each piece by its id; ids may have gaps.

    Raises:
        ModelError: for a tokenizer that is not fast, of another kind, or that cuts a text at random.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"The vocabulary of a {type(tokenizer).__name__} cannot be cut, only that of a fast tokenizer; "
                "save the tokenizer as a fast one (with a tokenizer.json)."
            )
        self._tokenizer = tokenizer
        self._document: dict[str, Any] = json.loads(backend.to_str())
        self._model: dict[str, Any] = self._document["model"]
        self.kind: str = self._model["type"]
        if self.kind not in _KINDS:
            raise ModelError(
                f"The vocabulary of a {self.kind} tokenizer cannot be cut, only that of {', '.join(_KINDS)}; "
                "choose another model."
            )
        if self._model.get("dropout"):
            raise ModelError(
                "The vocabulary of a tokenizer with dropout cannot be cut, because it cuts the same text "
                "differently each time; set model.dropout to null in its tokenizer.json."
            )
        names = {piece_id: name for name, piece_id in backend.get_vocab(with_added_tokens=True).items()}
        self.names: dict[int, str] = dict(sorted(names.items()))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each piece by its text."""
        return {name: piece_id for piece_id, name in self.names.items()}

    @cached_property
    def staying(self) -> frozenset[int]:
        """The ids of pieces that always stay.

        These are special and control tokens, tokens that somebody added, bytes, single characters, and pieces with a
        character that has no piece of its own, which would be unknown without them. Unused slots are not among them.
        """
        staying = {self.ids[name] for name in self._special_names() if name in self.ids}
        for token in self._document["added_tokens"]:
            # Its characters may have no pieces, and a model may have been taught its meaning.
            if not _SLOT.fullmatch(token["content"]):
                staying.add(token["id"])
        for piece_id, name in self.names.items():
            if piece_id in staying or _SLOT.fullmatch(name):
                continue
            symbols = self._symbols(name)
            is_single = len(symbols) <= 1
            is_byte = _BYTE.fullmatch(name) is not None
            has_unknown_character = any(symbol not in self.ids for symbol in symbols)
            if is_single or is_byte or has_unknown_character:
                staying.add(piece_id)
        if self.kind == _UNIGRAM:
            staying.add(self._piece_of_lowest_score())
        return frozenset(staying)

    def symbol_count(self, piece_id: int) -> int:
        """The number of characters, or of bytes in a byte-level vocabulary, that a piece stands for."""
        return len(self._symbols(self.names[piece_id]))

    def parts(self, piece_id: int) -> frozenset[int]:
        """The pieces that a BPE merges on the way to a piece, and without which it cannot make that piece.

        They do not depend on the text around the piece: what is merged inside of a piece is never merged across its
        ends, and so happens in the same order as in a text of this piece alone.

        Returns:
            The ids of the pieces, without the piece itself; none for another kind than BPE, and for a piece that no
            merges make.
        """
        if self.kind != _BPE:
            return frozenset()
        name = self.names[piece_id]
        symbols = self._symbols(name)
        parts = set(symbols)
        rank_of_no_merge = len(self._merge_ranks)
        # Each step merges the pair of lowest rank, as the tokenizer does, until the piece is made.
        while len(symbols) > 1:
            ranks = [self._merge_ranks.get(pair, rank_of_no_merge) for pair in pairwise(symbols)]
            lowest_rank = min(ranks)
            if lowest_rank == rank_of_no_merge:
                # No merges make this piece. It is found only as a whole word, before anything is merged.
                return frozenset()
            index = ranks.index(lowest_rank)
            merged = self._merged(symbols[index], symbols[index + 1])
            symbols[index : index + 2] = [merged]
            parts.add(merged)
        return frozenset(self.ids[part] for part in parts if part != name)

    def cut(self, staying: Collection[int]) -> CutTokenizer:
        """Make a tokenizer with some of the pieces.

        Args:
            staying: The ids of the pieces that it has. They must include the pieces that always stay
                (`Pieces.staying`), and the pieces that each of them is made of (`Pieces.parts`).

        Raises:
            ModelError: for a tokenizer whose file gives pieces other ids than their order.
        """
        old_ids = sorted(staying)
        new_ids = {old_id: new_id for new_id, old_id in enumerate(old_ids)}
        names = {self.names[old_id] for old_id in old_ids}
        document = dict(self._document)
        document["model"] = self._cut_model(names, new_ids)
        staying_tokens = [token for token in self._document["added_tokens"] if token["id"] in new_ids]
        document["added_tokens"] = [{**token, "id": new_ids[token["id"]]} for token in staying_tokens]
        document["post_processor"] = _renumber_processor(self._document["post_processor"], new_ids)
        # The padding piece is special, so it always stays.
        padding = self._document["padding"]
        if padding is not None:
            document["padding"] = {**padding, "pad_id": new_ids[padding["pad_id"]]}

        backend = Tokenizer.from_str(json.dumps(document))
        expected_ids = {self.names[old_id]: new_id for old_id, new_id in new_ids.items()}
        if backend.get_vocab(with_added_tokens=True) != expected_ids:
            raise ModelError(
                "The vocabulary cannot be cut: the tokenizer's added tokens have ids between those of its other "
                "pieces, and would get other ids when the tokenizer is read again; choose another model."
            )
        # Everything that transformers knows of the tokenizer beside its backend stays as it is.
        tokenizer: Any = copy.copy(self._tokenizer)
        tokenizer._tokenizer = backend
        tokenizer.init_kwargs = dict(self._tokenizer.init_kwargs)
        for key in _SETTINGS_OF_PIECES:
            tokenizer.init_kwargs.pop(key, None)
        return CutTokenizer(tokenizer, tuple(old_ids))

    def _special_names(self) -> set[str]:
        """The special tokens: those with a role, and those that are put around a text."""
        names = set(self._tokenizer.all_special_tokens)
        names |= _names_in_processor(self._document["post_processor"])
        # A WordPiece or BPE has the name of the piece for what is unknown. A Unigram has its index in the vocabulary, a
        # list of pairs of a name and a score.
        unknown_name = self._model.get("unk_token")
        if unknown_name is not None:
            names.add(unknown_name)
        unknown_id = self._model.get("unk_id")
        if unknown_id is not None:
            name, _ = self._model["vocab"][unknown_id]
            names.add(name)
        padding = self._document["padding"]
        if padding is not None:
            names.add(padding["pad_token"])
        return names

    def _symbols(self, name: str) -> list[str]:
        """Split a piece into the pieces of its characters, from which it could be put together.

        A tokenizer may mark pieces by where they stand: with the prefix `##`, `##ing` stands inside of a word and
        becomes `##i`, `##n` and `##g`, and `ing` at its beginning becomes `i`, `##n` and `##g`. With a suffix, the last
        piece of a word is marked.
        """
        prefix = self._model.get("continuing_subword_prefix") or ""
        suffix = self._model.get("end_of_word_suffix") or ""
        is_inside_of_word = bool(prefix) and name.startswith(prefix) and name != prefix
        characters = name.removeprefix(prefix) if is_inside_of_word else name
        is_end_of_word = bool(suffix) and characters.endswith(suffix) and characters != suffix
        if is_end_of_word:
            characters = characters.removesuffix(suffix)

        symbols = list(characters)
        # A first character at the beginning of a word has no prefix.
        first_inside_of_word = 0 if is_inside_of_word else 1
        for index in range(first_inside_of_word, len(symbols)):
            symbols[index] = prefix + symbols[index]
        if is_end_of_word:
            symbols[-1] += suffix
        return symbols

    @cached_property
    def _merge_ranks(self) -> Mapping[tuple[str, str], int]:
        """The place of each merge in their order; of a pair that is listed twice the last counts."""
        return {pair: rank for rank, pair in enumerate(self._merges)}

    @cached_property
    def _merges(self) -> list[tuple[str, str]]:
        """The pairs that a BPE merges, the first one first."""
        return [(left, right) for left, right in self._model["merges"]]

    def _merged(self, left: str, right: str) -> str:
        """The piece that a BPE makes of a pair."""
        prefix = self._model.get("continuing_subword_prefix") or ""
        return left + right.removeprefix(prefix)

    def _piece_of_lowest_score(self) -> int:
        """The id of a Unigram's piece with the lowest score: an unknown character scores a fixed amount below it."""
        scores = [score for _, score in self._model["vocab"]]
        return scores.index(min(scores))

    def _cut_model(self, names: Collection[str], new_ids: Mapping[int, int]) -> dict[str, Any]:
        """The model of the cut tokenizer, as its file has it.

        Args:
            names: The pieces that stay.
            new_ids: The new id of each by its old one.
        """
        model = dict(self._model)
        vocabulary = self._model["vocab"]
        if self.kind == _UNIGRAM:
            model["vocab"] = [entry for old_id, entry in enumerate(vocabulary) if old_id in new_ids]
            if model["unk_id"] is not None:
                model["unk_id"] = new_ids[model["unk_id"]]
            return model
        model["vocab"] = {name: new_ids[old_id] for name, old_id in vocabulary.items() if old_id in new_ids}
        if self.kind == _BPE:
            merges = []
            for left, right in self._merges:
                if left in names and right in names and self._merged(left, right) in names:
                    merges.append([left, right])
            model["merges"] = merges
        return model


def _names_in_processor(processor: Mapping[str, Any] | None) -> set[str]:
    """The tokens that a post-processor puts around a text."""
    names: set[str] = set()
    if processor is None:
        return names
    for part in processor.get("processors", ()):
        names |= _names_in_processor(part)
    for entry in processor.get("special_tokens", {}).values():
        names.update(entry["tokens"])
    for key in ("sep", "cls"):
        if key in processor:
            names.add(processor[key][0])
    return names


def _renumber_processor(processor: dict[str, Any] | None, new_ids: Mapping[int, int]) -> dict[str, Any] | None:
    """A post-processor with the new ids of the tokens that it puts around a text."""
    if processor is None:
        return None
    renumbered = dict(processor)
    if "processors" in processor:
        renumbered["processors"] = [_renumber_processor(part, new_ids) for part in processor["processors"]]
    if "special_tokens" in processor:
        entries = {}
        for key, entry in processor["special_tokens"].items():
            entries[key] = {**entry, "ids": [new_ids[old_id] for old_id in entry["ids"]]}
        renumbered["special_tokens"] = entries
    for key in ("sep", "cls"):
        if key in processor:
            name, old_id = processor[key]
            renumbered[key] = [name, new_ids[old_id]]
    return renumbered
