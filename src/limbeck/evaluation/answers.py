"""Answers of questions: the windows of their contexts, and the best answer by the scores of its start and end."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.answers import AnswerWindow, AnswerWindows, Question
from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import NO_ANSWER
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.tasks import TaskRow


def cut_rows(
    windows: AnswerWindows, rows: Sequence[TaskRow], report: SourceReport, *, training: bool = False
) -> list[AnswerWindow]:
    """Return the windows of every row, in order.

    Args:
        windows: Cuts them.
        rows: Questions and contexts.
        report: Receives questions that were cut, and rows that were left out.
        training: Label the windows with the first answer, and leave out a row whose answer its context does not hold or
            that has no token. Else every row keeps its windows, and no label is looked for.
    """
    questions = []
    for row in rows:
        answer = None
        if training and row.answers:
            start = row.answer_starts[0]
            answer = (start, start + len(row.answers[0])) if start >= 0 else NO_ANSWER
        questions.append(Question(row.id, row.pair or "", row.text, answer))
    return windows.cut(questions, report, "answer without a place in its context's tokens, row left out")


Scores: TypeAlias = NDArray[np.float64]


class Span(NamedTuple):
    """The best answer of a window.

    Attributes:
        score: Of its start and its end, added.
        start: Its first character in the context.
        end: The character after its last.
    """

    score: float
    start: int
    end: int


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
        windows: As `AnswerWindows` cuts them.
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
    best: dict[str, Span | None] = {}
    null: dict[str, float] = {}
    for window, starts, ends in zip(windows, start_scores, end_scores, strict=True):
        of_starts, of_ends = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
        span = best_span(window, of_starts, of_ends, n_best=n_best, max_answer_tokens=max_answer_tokens)
        before = best.setdefault(window.row, span)
        if span is not None and (before is None or span.score > before.score):
            best[window.row] = span
        null[window.row] = min(null.get(window.row, math.inf), float(of_starts[0] + of_ends[0]))
    found: dict[str, AnswerPrediction] = {}
    for row, span in best.items():
        text = "" if span is None else contexts[row][span.start : span.end].strip()
        odds = math.inf if span is None else null[row] - span.score
        found[row] = AnswerPrediction(text, 0.0 if answerable_only else odds)
    return found


def best_span(
    window: AnswerWindow, start_scores: Scores, end_scores: Scores, *, n_best: int, max_answer_tokens: int
) -> Span | None:
    """Return the best answer of a window; None if no token of the context can be one.

    Args:
        window: The window.
        start_scores: Score of each token, `[tokens]`.
        end_scores: Likewise.
        n_best: Starts and ends that are paired; where no pair of theirs counts, all are.
        max_answer_tokens: Most tokens of an answer.
    """
    tokens = slice(window.first, window.first + len(window.offsets))
    starts, ends = start_scores[tokens], end_scores[tokens]
    for count in (n_best, len(starts)):
        first, last = _best(starts, count), _best(ends, count)
        if not len(first):
            return None
        counts = (first[:, None] <= last) & (last - first[:, None] < max_answer_tokens)
        # Some tokenizers have tokens of no characters.
        counts &= window.offsets[first, 0][:, None] < window.offsets[last, 1]
        scores: Any = np.where(counts, starts[first][:, None] + ends[last], -np.inf)
        row, column = np.unravel_index(scores.argmax(), scores.shape)
        if counts[row, column]:
            start, end = window.offsets[first[row], 0], window.offsets[last[column], 1]
            return Span(float(scores[row, column]), int(start), int(end))
    return None


def _best(scores: Scores, count: int) -> NDArray[np.intp]:
    """Places of the `count` highest scores, the highest first; of equals the earlier."""
    return np.argsort(-scores, kind="stable")[:count]
