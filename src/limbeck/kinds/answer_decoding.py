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

_TOKENS_BEHIND = 1
"""Tokens of a window behind its context: the special one that closes it. Padding may follow."""


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

    In each window the `n_best` best starts and the `n_best` best ends among all tokens are paired. A pair counts if
    both lie in the context, it does not end before it starts and is not too long. The best pair of all windows is the
    answer. The score of no answer is the lowest, over the windows, of the first token's start and end scores added. The
    *null odds* of an answer are the score of no answer less its own score.

    Args:
        windows: The windows that `AnswerWindows` has cut.
        start_scores: For each window, the score of each token as the start, `[tokens]`. Scores of padding at the end
            are ignored.
        end_scores: The same for ends.
        contexts: Row id to context.
        n_best: Number of starts, and of ends, that are paired.
        max_answer_tokens: Largest number of tokens of an answer.
        answerable_only: Whether every question has an answer; then all null odds are 0, and no answer is emptied.

    Returns:
        Row id to answer, in the order of the windows; empty with infinite null odds if no pair of any window counts, or
        the context has no token.

    Source: BERT (arXiv 1810.04805, sections 4.2 and 4.3), and its authors' script `run_squad.py`.
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
        n_best: Number of starts, and of ends, that are paired.
        max_answer_tokens: Largest number of tokens of an answer.

    Returns:
        The sum of the start's and the end's scores; minus infinity with an empty slice if the window has no answer.
    """
    first_characters = window.offsets[:, 0]
    end_characters = window.offsets[:, 1]
    # Every start meets every end: [starts, 1] and [1, ends] broadcast to [starts, ends].
    first_tokens = _best_places(window, start_scores, n_best)[:, None]
    last_tokens = _best_places(window, end_scores, n_best)[None, :]
    has_length = (first_tokens <= last_tokens) & (last_tokens - first_tokens < max_answer_tokens)
    # Some tokenizers have tokens without characters, which would make an empty answer.
    has_characters = first_characters[first_tokens] < end_characters[last_tokens]
    is_pair = has_length & has_characters
    if not is_pair.any():
        return -math.inf, slice(0)

    # Places count the tokens of the context, and scores those of the window.
    context_start_scores = start_scores[window.first :]
    context_end_scores = end_scores[window.first :]
    pair_scores = context_start_scores[first_tokens] + context_end_scores[last_tokens]
    scores = np.where(is_pair, pair_scores, -np.inf)
    best_start, best_end = np.unravel_index(scores.argmax(), scores.shape)
    begin = int(first_characters[first_tokens[best_start, 0]])
    end = int(end_characters[last_tokens[0, best_end]])
    return float(scores[best_start, best_end]), slice(begin, end)


def _best_places(window: AnswerWindow, scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the places in the context of the highest scores of a window, the highest first; of equals the earlier.

    Tokens before and behind the context are among the highest scores, but are no places: the more of them score high,
    the fewer places there are.

    Args:
        window: The window.
        scores: The score of each of its tokens, `[tokens]`.
        count: Number of highest scores.
    """
    context_tokens = len(window.offsets)
    tokens = window.first + context_tokens + _TOKENS_BEHIND
    places = np.argsort(-scores[:tokens], kind="stable")[:count] - window.first
    return places[(places >= 0) & (places < context_tokens)]
