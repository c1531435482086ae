"""Answers of questions, from a model's scores of each token as the start and as the end of the answer.

A context that is longer than the model reads is cut into overlapping *windows*, each with the question before it. The
first token of a window ([CLS]) stands for "no answer". *Null odds* are the score of no answer less that of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.tokens.answer_windows import AnswerWindow
from limbeck.kinds.task import AnswerPrediction


def decode_answers(
    windows: Sequence[AnswerWindow],
    start_scores: Sequence[ArrayLike],
    end_scores: Sequence[ArrayLike],
    contexts: Mapping[str, str],
    *,
    n_best: int = 20,
    max_answer_tokens: int = 30,
    answerable_only: bool = True,
) -> dict[str, AnswerPrediction]:
    """Return the best answer of each question.

    In each window the `n_best` best starts and the `n_best` best ends among the context's tokens are paired; a pair
    counts if it does not end before it starts and is not too long. The best pair of all windows is the answer. The
    score of no answer is the lowest, over the windows, of the first token's start and end scores added.

    Args:
        windows: The windows that `AnswerWindows` has cut.
        start_scores: For each window, the score of each token as the start, `[tokens]`. Scores of padding at the end
            are ignored.
        end_scores: The same for ends.
        contexts: Row id to context.
        n_best: Number of starts, and of ends, that are paired. If none of their pairs counts, all tokens are paired.
        max_answer_tokens: Largest number of tokens of an answer.
        answerable_only: Whether every question has an answer; then all null odds are 0, and no answer is emptied.

    Returns:
        Row id to answer, in the order of the windows; empty with infinite null odds if the context has no token.

    Source: BERT (arXiv 1810.04805, sections 4.2 and 4.3).
    """
    # By row id: the best answer in the windows so far, its score, and the lowest score of "no answer".
    texts: dict[str, str] = {}
    scores: dict[str, float] = {}
    null_scores: dict[str, float] = {}
    for window, window_starts, window_ends in zip(windows, start_scores, end_scores, strict=True):
        starts = np.asarray(window_starts, dtype=np.float64)
        ends = np.asarray(window_ends, dtype=np.float64)
        score, characters = best_span(window, starts, ends, n_best=n_best, max_answer_tokens=max_answer_tokens)
        # A NaN of an earlier window stays, since nothing is greater: damaged outputs show in the result.
        if window.row not in scores or score > scores[window.row]:
            scores[window.row] = score
            texts[window.row] = contexts[window.row][characters].strip()
        null_score = float(starts[0] + ends[0])  # Of the window's first token.
        null_scores[window.row] = min(null_scores.get(window.row, math.inf), null_score)

    answers = {}
    for row, text in texts.items():
        null_odds = 0.0 if answerable_only else null_scores[row] - scores[row]
        answers[row] = AnswerPrediction(text, null_odds)
    return answers


def best_span(
    window: AnswerWindow,
    start_scores: NDArray[np.float64],
    end_scores: NDArray[np.float64],
    *,
    n_best: int,
    max_answer_tokens: int,
) -> tuple[float, slice]:
    """Return the score of a window's best answer, and the slice of its characters in the context.

    Args:
        window: The window.
        start_scores: The score of each token as the start, `[tokens]`.
        end_scores: The score of each token as the end, `[tokens]`.
        n_best: Number of starts, and of ends, that are paired. If none of their pairs counts, all tokens are paired.
        max_answer_tokens: Largest number of tokens of an answer.

    Returns:
        The sum of the start's and the end's scores; minus infinity with an empty slice if the window has no answer.
    """
    tokens_of_context = slice(window.first, window.first + len(window.offsets))
    starts = start_scores[tokens_of_context]
    ends = end_scores[tokens_of_context]
    first_characters = window.offsets[:, 0]
    end_characters = window.offsets[:, 1]
    # The best starts and ends first; all of them where no pair of the best ones counts.
    for count in (n_best, len(starts)):
        # Indices of tokens, so that every start meets every end: [starts, 1] and [1, ends] broadcast to [starts, ends].
        first = _best_places(starts, count)[:, None]
        last = _best_places(ends, count)[None, :]
        has_length = (first <= last) & (last - first < max_answer_tokens)
        # Some tokenizers have tokens without characters, which would make an empty answer.
        has_characters = first_characters[first] < end_characters[last]
        is_pair = has_length & has_characters
        if is_pair.any():
            scores = np.where(is_pair, starts[first] + ends[last], -np.inf)
            row, column = np.unravel_index(scores.argmax(), scores.shape)
            begin = int(first_characters[first[row, 0]])
            end = int(end_characters[last[0, column]])
            return float(scores[row, column]), slice(begin, end)
    return -math.inf, slice(0)


def _best_places(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the places of the highest scores, the highest first; of equals the earlier."""
    return np.argsort(-scores, kind="stable")[:count]
