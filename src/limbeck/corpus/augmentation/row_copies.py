"""`augment_rows`, TinyBERT's algorithm: copies of rows in which words are replaced by likely or near ones.

A copy depends on its row's texts, the seed and the settings alone, and not on other rows, their order or the number of
processes. A word that is one token of the masked language model is replaced by a word that the model predicts in its
place; any other word is replaced by one of its *neighbours*, words with similar word vectors. `masked_words` has the
predictions, and `stored_copies` makes and stores the copies of all rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from limbeck.corpus.augmentation.words import WORD
from limbeck.corpus.digests import digest_of
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings import Augmentation


class MaskedWord(NamedTuple):
    """A word of a row to be predicted from all others.

    Args:
        text: First text of the row, with the word in it.
        pair: Second text, if there is one.
        part: 0 if the word is in the first text, 1 if in the second.
        start: Its first character there.
        end: The character after its last.
    """

    text: str
    pair: str | None
    part: int
    start: int
    end: int


Propose: TypeAlias = Callable[[Sequence[MaskedWord]], list[list[str]]]
"""Returns the likeliest words in the place of each masked word; none where the model's input ends before the place."""

Neighbours: TypeAlias = Mapping[str, Sequence[str]]
"""Word → its neighbours, for every word that the model does not predict; the nearest first."""


def propose_nothing(words: Sequence[MaskedWord]) -> list[list[str]]:
    """Propose no words, as `Propose` of an augmentation without a model."""
    return [[] for _ in words]


def augment_rows(
    rows: Sequence[LabelledRow],
    settings: Augmentation,
    neighbours: Neighbours,
    propose: Propose,
    *,
    answers: bool = False,
) -> list[list[LabelledRow]]:
    """Return the copies of each row, with the row's label.

    From left to right, each word of a copy is replaced with the probability p_t. Where `neighbours` has the word, one
    of its neighbours takes its place, and otherwise one of the K likeliest words there, given the copy so far or the
    unchanged row (`settings.context`). All candidates are equally likely. One forward pass predicts the next word of
    all copies.

    Args:
        rows: The rows, all with one text or all with two. Both texts are changed.
        settings: The number of copies N_a, p_t, K, the context and the seed.
        neighbours: The neighbours of words that `propose` does not predict.
        propose: Predicts all other words.
        answers: Whether the rows are questions on contexts. The context then stays as it is, since the label is a place
            in it.

    Source:
        TinyBERT (arXiv 1909.10351), algorithm 1. As printed it leaves the mask where a word is masked and not replaced
        (lines 6 and 12); here the word comes back. It looks for candidates of every word, here only of those that are
        replaced. Nearest alternative: `ReplacedTokens`, random words drawn while training.
    """
    copies_of_rows = [_begin_copies(row, settings, answers) for row in rows]
    unfinished = [copy for copies in copies_of_rows for copy in copies]
    predictions = _Predictions(propose)

    # If words are predicted from the unchanged row, they do not depend on each other and are predicted all at once.
    if settings.context == "row":
        words = [word for copy in unfinished for word in copy.masked_words(neighbours)]
        predictions.predict(words)

    while unfinished:
        # Each copy goes on to its next word that has to be predicted; a copy without one is finished.
        masked: list[tuple[_Copy, MaskedWord]] = []
        for copy in unfinished:
            word = copy.advance(neighbours)
            if word is not None:
                masked.append((copy, word))
        predictions.predict([word for _, word in masked])
        for copy, word in masked:
            copy.replace_next(predictions.of[word])
        unfinished = [copy for copy, _ in masked]

    copied_rows: list[list[LabelledRow]] = []
    for row, copies in zip(rows, copies_of_rows, strict=True):
        copied_rows.append([copy.as_row(row) for copy in copies])
    return copied_rows


class _Replacement(NamedTuple):
    """A word of a copy that is to be replaced.

    Args:
        part: Number of its text.
        place: Its index among the gaps and words of the text.
        draw: A random number, at least 0 and below 1, that chooses one of the candidates.
    """

    part: int
    place: int
    draw: float


class _Copy:
    """A copy of which some words are still to be replaced. Its texts are cut into gaps and words, and change in place.

    Args:
        parts: For each text its gaps and words in turn; words have odd indices.
        replacements: The words to be replaced, from left to right.
        context: The texts that words are predicted from, cut in the same way; None predicts from the copy so far.
    """

    def __init__(
        self, parts: list[list[str]], replacements: Iterable[_Replacement], context: list[list[str]] | None
    ) -> None:
        self._parts = parts
        self._left = deque(replacements)
        self._context = parts if context is None else context

    def advance(self, neighbours: Neighbours) -> MaskedWord | None:
        """Replace words that have neighbours, up to the first word that has to be predicted; `None` if none is left."""
        while self._left:
            word = self._word_at(self._left[0])
            if word not in neighbours:
                return self._mask(self._left[0])
            self.replace_next(neighbours[word])
        return None

    def masked_words(self, neighbours: Neighbours) -> list[MaskedWord]:
        """Return all words that are left to be predicted, from the context as it is now."""
        return [self._mask(item) for item in self._left if self._word_at(item) not in neighbours]

    def replace_next(self, candidates: Sequence[str]) -> None:
        """Replace the next word by a candidate; without one it stays."""
        part, place, draw = self._left.popleft()
        if candidates:
            self._parts[part][place] = candidates[int(draw * len(candidates))]

    def as_row(self, row: LabelledRow) -> LabelledRow:
        """Return a row with the texts of its copy."""
        text, pair = _join(self._parts)
        return replace(row, text=text, pair=pair)

    def _word_at(self, replacement: _Replacement) -> str:
        return self._parts[replacement.part][replacement.place]

    def _mask(self, replacement: _Replacement) -> MaskedWord:
        pieces = self._context[replacement.part]
        start = sum(map(len, pieces[: replacement.place]))
        end = start + len(pieces[replacement.place])
        text, pair = _join(self._context)
        return MaskedWord(text, pair, replacement.part, start, end)


class _Predictions:
    """Candidates for masked words. Copies of a row begin alike, so each distinct word is predicted only once.

    Args:
        propose: Predicts words.

    Attributes:
        of: The candidates of each masked word.
    """

    def __init__(self, propose: Propose) -> None:
        self._propose = propose
        self.of: dict[MaskedWord, list[str]] = {}

    def predict(self, words: Iterable[MaskedWord]) -> None:
        """Propose candidates for the words that have none yet."""
        distinct_words = dict.fromkeys(words)
        new_words = [word for word in distinct_words if word not in self.of]
        if not new_words:
            return
        for word, candidates in zip(new_words, self._propose(new_words), strict=True):
            self.of[word] = candidates


def _begin_copies(row: LabelledRow, settings: Augmentation, answers: bool) -> list[_Copy]:
    """Return the copies of a row before any word is replaced; the words to be replaced are already drawn."""
    texts = [row.text] if row.pair is None else [row.text, row.pair]
    parts = [_cut(text) for text in texts]
    if answers:
        # The context becomes a single gap without words, so that the answer keeps its place in it.
        parts[0] = [row.text]
    word_places: list[tuple[int, int]] = []
    for part, pieces in enumerate(parts):
        odd_places = range(1, len(pieces), 2)
        word_places += [(part, place) for place in odd_places]

    # Two random numbers for each copy and word, [copies, words, 2]: the first decides whether the word is replaced, the
    # second by which candidate.
    draws = row_generator(settings.seed, texts).random((settings.copies, len(word_places), 2))
    context = parts if settings.context == "row" else None
    copies: list[_Copy] = []
    for draws_of_words in draws:
        replacements: list[_Replacement] = []
        for (part, place), (draw, draw_of_candidate) in zip(word_places, draws_of_words.tolist(), strict=True):
            if draw <= settings.probability:
                replacements.append(_Replacement(part, place, draw_of_candidate))
        parts_of_copy = [list(pieces) for pieces in parts]
        copies.append(_Copy(parts_of_copy, replacements, context))
    return copies


def _join(parts: Sequence[Sequence[str]]) -> tuple[str, str | None]:
    """Return the first text and the second, if there is one, from their gaps and words."""
    text = "".join(parts[0])
    if len(parts) == 1:
        return text, None
    return text, "".join(parts[1])


def _cut(text: str) -> list[str]:
    """Return the gaps and words of a text in turn; first and last are gaps, and gaps may be empty."""
    pieces: list[str] = []
    end = 0
    for match in WORD.finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [*pieces, text[end:]]


def row_generator(seed: int, texts: Sequence[str]) -> np.random.Generator:
    """Return the random generator of a row, which depends on its texts and the seed alone."""
    key = digest_of(texts)
    return np.random.default_rng([seed, int(key, 16)])
