"""Answers of questions, from the scores of starts and ends of tokens."""

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
        start_scores: Per window a score of each of its tokens, `[tokens]`; what stands after them (padding) is passed
            over.
        end_scores: Likewise.
        contexts: Row id to context.
        n_best: Starts and ends that are paired. Where no pair of theirs counts, all are.
        max_answer_tokens: Most tokens of an answer.
        answerable_only: Every question has an answer: the null odds are then 0, which no threshold is below.

    Returns:
        Row id to answer, in the order of the windows; empty with infinite null odds if the context has no token.

    Source: BERT (arXiv 1810.04805, sections 4.2 and 4.3).
    """
    # Each by row id: the best answer of the windows so far, its score, and the lowest score of no answer.
    texts: dict[str, str] = {}
    scores: dict[str, float] = {}
    null_scores: dict[str, float] = {}
    for window, window_starts, window_ends in zip(windows, start_scores, end_scores, strict=True):
        starts = np.asarray(window_starts, dtype=np.float64)
        ends = np.asarray(window_ends, dtype=np.float64)
        score, place = best_span(window, starts, ends, n_best=n_best, max_answer_tokens=max_answer_tokens)
        # A NaN of an earlier window stays, since nothing is greater: damaged outputs show in the result.
        if window.row not in scores or score > scores[window.row]:
            scores[window.row] = score
            texts[window.row] = contexts[window.row][place].strip()
        null_score = float(starts[0] + ends[0])
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
    """Return the score of a window's best answer, and its characters; minus infinity if no token can be one.

    Args:
        window: The window.
        start_scores: Score of each token, `[tokens]`.
        end_scores: Likewise.
        n_best: Starts and ends that are paired; where no pair of theirs counts, all are.
        max_answer_tokens: Most tokens of an answer.
    """
    tokens_of_context = slice(window.first, window.first + len(window.offsets))
    starts = start_scores[tokens_of_context]
    ends = end_scores[tokens_of_context]
    first_characters = window.offsets[:, 0]
    end_characters = window.offsets[:, 1]
    # The best starts and ends first; all of them where no pair of the best ones counts.
    for count in (n_best, len(starts)):
        # Every pair of a start (rows) and an end (columns), as places of tokens.
        first = _best_places(starts, count)[:, None]
        last = _best_places(ends, count)[None, :]
        is_pair = (first <= last) & (last - first < max_answer_tokens)
        is_pair &= first_characters[first] < end_characters[last]  # Some tokenizers have tokens of no characters.
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
