"""`choose_pieces`: the pieces of a vocabulary that a text uses most, by their counts in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from limbeck.errors import ModelError
from limbeck.models.tokenizers import plain_tokenizer
from limbeck.models.vocabulary_cut import Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

_TEXTS_AT_ONCE = 256
"""Texts that a tokenizer reads in one call."""


@dataclass(frozen=True)
class PieceAim:
    """How many pieces stay; one of the first two is given.

    Attributes:
        pieces: Number of pieces, those among them that always stay.
        coverage: Share of a text's tokens whose pieces stay, above 0 up to 1.
        words: Words whose pieces always stay.
    """

    pieces: int | None = None
    coverage: float | None = None
    words: Sequence[str] = field(default=())


class PieceCounts:
    """Counts how often texts use each piece of a tokenizer.

    Args:
        tokenizer: Left as it is.

    Attributes:
        counts: How often each id was used so far.
        texts: Number of texts that were read.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._backend = plain_tokenizer(tokenizer).backend_tokenizer
        highest_id = max(self._backend.get_vocab(with_added_tokens=True).values())
        self.counts: NDArray[np.int64] = np.zeros(highest_id + 1, dtype=np.int64)
        self.texts = 0

    def add(self, texts: Iterable[str]) -> None:
        """Count the pieces of some texts, without the special tokens around them."""
        waiting: list[str] = []
        for text in texts:
            waiting.append(text)
            if len(waiting) == _TEXTS_AT_ONCE:
                self._count(waiting)
                waiting.clear()
        self._count(waiting)

    def _count(self, texts: Sequence[str]) -> None:
        """Count the pieces of a few texts in one call of the tokenizer."""
        self.texts += len(texts)
        ids: list[int] = []
        for encoding in self._backend.encode_batch_fast(list(texts), add_special_tokens=False):
            ids += encoding.ids
        self.counts += np.bincount(np.asarray(ids, dtype=np.int64), minlength=len(self.counts))


def choose_pieces(
    pieces: Pieces, tokenizer: PreTrainedTokenizerBase, counts: NDArray[np.int64], aim: PieceAim
) -> frozenset[int]:
    """Choose the tokens (*pieces*) that a smaller vocabulary keeps.

    Some pieces always stay. Of the others, those stay that the text uses most.

    A piece is used where it stands in the text, and where it is a part of another piece, which a BPE makes of it (see
    `Pieces.parts`). A part is used at least as often as the piece, so it stays wherever the piece does. Of pieces that
    are used equally often the shorter one comes first.

    Args:
        pieces: All pieces of the tokenizer.
        tokenizer: The tokenizer.
        counts: How often the text has each piece, by id.
        aim: How many pieces stay.

    Returns:
        The ids of the pieces.

    Raises:
        ModelError: for fewer pieces than always stay, and for more than these and those of the text.
    """
    # The pieces that stay whatever the text.
    staying = set(pieces.staying)
    for piece_id in _ids_of_words(tokenizer, aim.words):
        staying.add(piece_id)
        staying |= pieces.parts(piece_id)

    # All others that are used, those that are used most first.
    uses = counts.copy()
    ids_in_text = [int(piece_id) for piece_id in np.flatnonzero(counts)]
    for piece_id in ids_in_text:
        for part in pieces.parts(piece_id):
            uses[part] += counts[piece_id]
    used_ids = [int(piece_id) for piece_id in np.flatnonzero(uses)]
    candidates = [piece_id for piece_id in used_ids if piece_id not in staying]
    candidates.sort(key=lambda piece_id: (-uses[piece_id], pieces.symbol_count(piece_id), piece_id))

    if aim.pieces is not None:
        _check_number(aim.pieces, least=len(staying), most=len(staying) + len(candidates))
        missing = aim.pieces - len(staying)
        return frozenset(staying.union(candidates[:missing]))

    # Candidates join until the pieces that stay are a large enough share of the text's tokens.
    assert aim.coverage is not None
    covered_tokens = sum(int(counts[piece_id]) for piece_id in staying)
    needed_tokens = aim.coverage * int(counts.sum())
    for piece_id in candidates:
        if covered_tokens >= needed_tokens:
            break
        staying.add(piece_id)
        covered_tokens += int(counts[piece_id])
    return frozenset(staying)


def _ids_of_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> set[int]:
    """The ids of the pieces of words, at the beginning of a text and behind a space."""
    if not words:
        return set()
    words_behind_space = [f" {word}" for word in words]
    backend = plain_tokenizer(tokenizer).backend_tokenizer
    ids: set[int] = set()
    for encoding in backend.encode_batch_fast([*words, *words_behind_space], add_special_tokens=False):
        ids.update(encoding.ids)
    return ids


def _check_number(number: int, *, least: int, most: int) -> None:
    """Refuse a number of pieces that is too small or too large.

    Args:
        number: The number.
        least: Number of pieces that always stay.
        most: Number of these and of the pieces that the text uses.
    """
    if number < least:
        raise ModelError(
            f"{number:,} pieces are too few: {least:,} always stay (special and added tokens, bytes, single "
            f"characters and the words given as 'always'); give {least} or more."
        )
    if number > most:
        raise ModelError(
            f"{number:,} pieces are too many: the text uses only {most:,}, with the pieces that always stay; give "
            f"{most} or fewer, or more text."
        )
