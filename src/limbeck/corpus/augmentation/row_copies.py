"""`augment_rows`, TinyBERT's algorithm in two forms: copies of rows in which words are replaced by likely or near ones.

A copy depends on its row's texts, the seed and the settings alone, and not on other rows, their order or the number of
processes. A word that is one token of the masked language model is replaced by a word that the model predicts in its
place; any other word is replaced by one of its *neighbours*, words with similar word vectors. `masked_words` has the
predictions, and `stored_copies` makes and stores the copies of all rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from limbeck.corpus.augmentation.words import find_words
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
    of its neighbours takes its place, and otherwise one of the likeliest words there. All candidates are equally
    likely. `settings.algorithm` chooses between two forms of this:

    | step | `released`, the authors' code | `printed`, algorithm 1 |
    |---|---|---|
    | words that may be replaced | words of letters alone that are no stop words | all words |
    | a word is predicted from | its text with a mask, then the whole text as a second segment | the copy with a mask |
    | words replaced before it | are not seen: each word is predicted from the row | are seen |
    | candidates | of the K likeliest tokens those that begin a word | the K likeliest words |
    | word vectors | of the first 100,000 words of a file | of all words |
    | a pair | N_a copies for each text; only this text changes, and the other is not read | both texts change |
    | equal copies | are left out, as are copies that equal the row | stay |

    In a pair of the released form the first text of the second text's copies is that of the last copy before them, as
    in the authors' code, which goes on with the changed row.

    Args:
        rows: The rows, all with one text or all with two.
        settings: The algorithm, the number of copies N_a, p_t, K, the context and the seed.
        neighbours: The neighbours of words that `propose` does not predict.
        propose: Predicts all other words.
        answers: Whether the rows are questions on contexts. The context then stays as it is, since the label is a place
            in it.

    Source:
        TinyBERT (arXiv 1909.10351), algorithm 1. As printed it leaves the mask where a word is masked and not replaced
        (lines 6 and 12); here the word comes back. It looks for candidates of every word, here only of those that are
        replaced, which gives the same copies. The released form is that of the authors' code, which differs from this
        function in five ways. It makes 10 to 30 copies, by task. It writes texts in lower case, with spaces around
        punctuation, and reads their letters without accents, so that words in other scripts than a to z stay. It reads
        512 tokens of a text and its repetition, where this cuts both to equal lengths. Special tokens may take the
        place of a word. So may punctuation among its neighbours, but no neighbour is found of a word whose vector is
        spelt in lower case alone. Nearest alternative: `ReplacedTokens`, random words drawn while training.
    """
    copied_rows = [_begin_copies(row, settings, answers) for row in rows]
    unfinished_copies = [copy for copied in copied_rows for copy in copied.copies]
    predictions = _Predictions(propose)

    # If words are predicted from the unchanged row, they do not depend on each other and are predicted all at once.
    if settings.context_of_words == "row":
        words = [word for copy in unfinished_copies for word in copy.masked_words(neighbours)]
        predictions.predict(words)

    while unfinished_copies:
        # Each copy goes on to its next word that has to be predicted; a copy without one is finished.
        next_words: list[tuple[_Copy, MaskedWord]] = []
        for copy in unfinished_copies:
            word = copy.advance(neighbours)
            if word is not None:
                next_words.append((copy, word))
        predictions.predict([word for _, word in next_words])
        for copy, word in next_words:
            copy.replace_next(predictions.of[word])
        unfinished_copies = [copy for copy, _ in next_words]

    if settings.algorithm == "released":
        return [_distinct_rows(copied) for copied in copied_rows]
    return [_changed_rows(copied) for copied in copied_rows]


class _Replacement(NamedTuple):
    """A word of a copy that is to be replaced.

    Args:
        text: Index of its text among the texts of the copy.
        place: Its index among the gaps and words of the text.
        draw: A random number, at least 0 and below 1, that chooses one of the candidates.
    """

    text: int
    place: int
    draw: float


_Field: TypeAlias = Literal["text", "pair"]
"""Names of a row's texts."""


class _Copy:
    """A copy of which some words are still to be replaced. Its texts are cut into *pieces*, which change in place.

    The pieces of a text are its gaps and words in turn. Words have odd indices.

    Args:
        fields: The texts of the row that the copy changes, one or both.
        pieces_of_texts: The pieces of each of these texts.
        replacements: The words to be replaced, from left to right.
        context: The pieces of the texts that words are predicted from; None predicts from the copy so far.
        second_segment: A text that words are predicted from as well, behind the only text of the copy.
    """

    def __init__(
        self,
        fields: Sequence[_Field],
        pieces_of_texts: list[list[str]],
        replacements: Iterable[_Replacement],
        *,
        context: list[list[str]] | None,
        second_segment: str | None,
    ) -> None:
        self._fields = fields
        self._pieces_of_texts = pieces_of_texts
        self._remaining_replacements = deque(replacements)
        self._context = pieces_of_texts if context is None else context
        self._second_segment = second_segment

    def advance(self, neighbours: Neighbours) -> MaskedWord | None:
        """Replace words that have neighbours, up to the first word that has to be predicted; `None` if none is left."""
        while self._remaining_replacements:
            replacement = self._remaining_replacements[0]
            word = self._word_at(replacement)
            if word not in neighbours:
                return self._mask(replacement)
            self.replace_next(neighbours[word])
        return None

    def masked_words(self, neighbours: Neighbours) -> list[MaskedWord]:
        """Return all words that are left to be predicted, from the context as it is now."""
        replacements = self._remaining_replacements
        return [self._mask(replacement) for replacement in replacements if self._word_at(replacement) not in neighbours]

    def replace_next(self, candidates: Sequence[str]) -> None:
        """Replace the next word by a candidate; without one it stays."""
        text, place, draw = self._remaining_replacements.popleft()
        if candidates:
            self._pieces_of_texts[text][place] = candidates[int(draw * len(candidates))]

    def texts(self) -> dict[_Field, str]:
        """Return the texts of the copy, by their names in a row."""
        return {field: "".join(pieces) for field, pieces in zip(self._fields, self._pieces_of_texts, strict=True)}

    def _word_at(self, replacement: _Replacement) -> str:
        return self._pieces_of_texts[replacement.text][replacement.place]

    def _mask(self, replacement: _Replacement) -> MaskedWord:
        """Return the texts that the masked language model reads to propose words for a place, and that place."""
        pieces = self._context[replacement.text]
        start = sum(map(len, pieces[: replacement.place]))
        end = start + len(pieces[replacement.place])

        # The masked language model reads one text or two.
        texts = ["".join(pieces_of_text) for pieces_of_text in self._context]
        if self._second_segment is not None:
            texts.append(self._second_segment)
        text, *second_texts = texts
        pair = second_texts[0] if second_texts else None
        return MaskedWord(text, pair, replacement.text, start, end)


def _with_texts(row: LabelledRow, texts: Mapping[_Field, str]) -> LabelledRow:
    """Return a row with other texts."""
    return replace(row, text=texts.get("text", row.text), pair=texts.get("pair", row.pair))


class _CopiedRow(NamedTuple):
    """A row and its copies.

    Args:
        row: The row.
        copies: Its copies, those of the first text before those of the second where each changes one text.
    """

    row: LabelledRow
    copies: list[_Copy]


def _distinct_rows(copied: _CopiedRow) -> list[LabelledRow]:
    """Return the copies of a row that change one text each, without equal ones and those that equal the row."""
    rows: list[LabelledRow] = []
    texts_so_far: set[tuple[str, str | None]] = {("text", copied.row.text), ("pair", copied.row.pair)}
    # The authors' code changes one row again and again: a copy of the second text has the last copy of the first text.
    changed_row = copied.row
    for copy in copied.copies:
        [(field, text)] = copy.texts().items()
        if (field, text) not in texts_so_far:
            texts_so_far.add((field, text))
            changed_row = _with_texts(changed_row, {field: text})
            rows.append(changed_row)
    return rows


def _changed_rows(copied: _CopiedRow) -> list[LabelledRow]:
    """Return all copies of a row."""
    return [_with_texts(copied.row, copy.texts()) for copy in copied.copies]


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


def _begin_copies(row: LabelledRow, settings: Augmentation, answers: bool) -> _CopiedRow:
    """Return the copies of a row before any word is replaced; the words to be replaced are already drawn.

    Args:
        row: The row.
        settings: The algorithm, the number of copies, the probability and the context.
        answers: Whether the row is a question on a context: the context is not changed.
    """
    text_of_field: dict[_Field, str] = {"text": row.text}
    if row.pair is not None:
        text_of_field["pair"] = row.pair
    generator = row_generator(settings.seed, list(text_of_field.values()))
    pieces_of_field = {field: _cut(text, settings) for field, text in text_of_field.items()}

    # In the printed algorithm a copy changes all texts of the row.
    if settings.algorithm == "printed":
        if answers:
            # The context becomes a single gap without words, so that the answer keeps its place in it.
            pieces_of_field["text"] = [row.text]
        return _CopiedRow(row, _draw_copies(pieces_of_field, settings, generator))

    # In the released algorithm a copy changes one text, and words are predicted from this text alone, given twice.
    copies: list[_Copy] = []
    for field, pieces in pieces_of_field.items():
        is_context = answers and field == "text"
        if not is_context:
            copies += _draw_copies({field: pieces}, settings, generator, second_segment=text_of_field[field])
    return _CopiedRow(row, copies)


def _draw_copies(
    pieces_of_field: Mapping[_Field, list[str]],
    settings: Augmentation,
    generator: np.random.Generator,
    *,
    second_segment: str | None = None,
) -> list[_Copy]:
    """Return copies of some texts of a row, with the words that are to be replaced.

    Args:
        pieces_of_field: For each text its gaps and words in turn; words have odd indices.
        settings: The number of copies, the probability and the context.
        generator: Draws the words.
        second_segment: A text that words are predicted from as well.
    """
    fields = list(pieces_of_field)
    pieces_of_texts = list(pieces_of_field.values())
    # The words of all texts: the index of its text, and its place among the pieces.
    word_places: list[tuple[int, int]] = []
    for text, pieces in enumerate(pieces_of_texts):
        odd_places = range(1, len(pieces), 2)
        word_places += [(text, place) for place in odd_places]

    # Two random numbers for each copy and word, [copies, words, 2]: the first decides whether the word is replaced, the
    # second by which candidate.
    draws = generator.random((settings.copies, len(word_places), 2))
    context = pieces_of_texts if settings.context_of_words == "row" else None
    copies: list[_Copy] = []
    for draws_of_words in draws:
        replacements: list[_Replacement] = []
        for (text, place), (draw, draw_of_candidate) in zip(word_places, draws_of_words.tolist(), strict=True):
            if draw <= settings.probability:
                replacements.append(_Replacement(text, place, draw_of_candidate))
        pieces_of_copy = [list(pieces) for pieces in pieces_of_texts]
        copies.append(_Copy(fields, pieces_of_copy, replacements, context=context, second_segment=second_segment))
    return copies


def _cut(text: str, settings: Augmentation) -> list[str]:
    """Return the gaps and words of a text in turn; first and last are gaps, and gaps may be empty.

    A word that is never replaced is part of a gap.
    """
    pieces: list[str] = []
    end = 0
    for match in find_words(text, settings):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [*pieces, text[end:]]


def row_generator(seed: int, texts: Sequence[str]) -> np.random.Generator:
    """Return the random generator of a row, which depends on its texts and the seed alone."""
    key = digest_of(texts)
    return np.random.default_rng([seed, int(key, 16)])
