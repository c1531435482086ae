"""`AnswerWindows`: questions and contexts to windows of tokens that know where in the context each token stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Encoding, Tokenizer

from limbeck.corpus.answers import AnswerEncoder, answer_tokens, find_frame, window_starts
from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import TOKEN_TYPES
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.task import TaskRow

NO_ANSWER = (0, 0)
"""The label of a window that does not hold the whole answer: the first token, both ends."""


@dataclass(frozen=True)
class AnswerWindow:
    """A question with a part of its context.

    Attributes:
        row: Id of the row.
        input_ids: Special tokens, question and part of the context.
        token_type_ids: Segment of each token; None where the model has no segments.
        first: Place of the context's first token in `input_ids`.
        offsets: First character and character after the last of each of the context's tokens, `[tokens, 2]`.
        label: First and last token of the answer in `input_ids`; see `NO_ANSWER`.
    """

    row: str
    input_ids: list[int]
    token_type_ids: list[int] | None
    first: int
    offsets: NDArray[np.int64]
    label: tuple[int, int]


class AnswerWindows:
    """Cuts rows into windows, the ones that limbeck also distils on (`limbeck.corpus.answers`).

    The question comes first, or second where the tokenizer pads on the left. Neighbouring windows share `stride`
    tokens. A question may take half of the tokens that windows do not share; a longer one is cut.

    Source: BERT's SQuAD windows (arXiv 1810.04805, section 4.2).

    Args:
        tokenizer: A fast `transformers` tokenizer; it is not changed.
        length: Most tokens in a window, question and special tokens included.
        stride: Tokens of the context that neighbouring windows share.

    Raises:
        CorpusError: if the tokenizer is slow, or the windows have no room.
    """

    def __init__(self, tokenizer: Any, length: int = 384, stride: int = 128) -> None:
        AnswerEncoder(tokenizer, length, stride)  # Refuses what cannot be cut.
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_padding()
        self._backend.no_truncation()
        self._frame = find_frame(self._backend)
        self._room = length - self._frame.special
        self._stride = stride
        self._question_room = (self._room - stride) // 2
        self._question_first = tokenizer.padding_side == "right"
        self._typed = TOKEN_TYPES in tokenizer.model_input_names

    def cut(self, rows: Sequence[TaskRow], report: SourceReport, *, training: bool = False) -> list[AnswerWindow]:
        """Return the windows of every row, in order.

        Args:
            rows: Questions and contexts.
            report: Receives questions that were cut, and rows that were left out.
            training: Label the windows with the first answer, and leave out a row whose answer its context does not
                hold or that has no token of its own. Else every row keeps its windows, and no label is looked for.
        """
        questions = self._encode_once([row.pair or "" for row in rows])
        contexts = self._encode_once([row.text for row in rows])
        offsets = {text: np.array(encoding.offsets).reshape(-1, 2) for text, encoding in contexts.items()}
        windows: list[AnswerWindow] = []
        for row in rows:
            question = questions[row.pair or ""].ids
            if len(question) > self._question_room:
                report.note(f"question cut to {self._question_room} tokens", row.id)
                question = question[: self._question_room]
            answer = None
            if training and row.answers:
                start = row.answer_starts[0]
                answer = answer_tokens(offsets[row.text], start, start + len(row.answers[0])) if start >= 0 else None
                if answer is None:
                    report.note("answer without a place in its context's tokens, row left out", row.id)
                    continue
            windows += self._windows(row.id, question, contexts[row.text].ids, offsets[row.text], answer)
        return windows

    def _windows(
        self,
        row: str,
        question: list[int],
        context: list[int],
        offsets: NDArray[np.int64],
        answer: tuple[int, int] | None,
    ) -> Iterator[AnswerWindow]:
        room = self._room - len(question)
        first = len(self._frame.prefix)
        if self._question_first:
            first += len(question) + len(self._frame.middle)
        for start in window_starts(len(context), room, self._stride):
            part = context[start : start + room]
            ids, types = self._frame.join(*((question, part) if self._question_first else (part, question)))
            label = NO_ANSWER
            if answer is not None and start <= answer[0] and answer[1] < start + len(part):
                label = (first + answer[0] - start, first + answer[1] - start)
            yield AnswerWindow(
                row, ids, types if self._typed else None, first, offsets[start : start + len(part)], label
            )

    def _encode_once(self, texts: list[str]) -> dict[str, Encoding]:
        """Encode every distinct text, without special tokens: a context has many questions."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self._backend.encode_batch(distinct, add_special_tokens=False), strict=True))


# `decode_answers`: scores of starts and ends to the best answer of each question.


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
    window: AnswerWindow,
    start_scores: NDArray[np.float64],
    end_scores: NDArray[np.float64],
    *,
    n_best: int,
    max_answer_tokens: int,
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


def _best(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Places of the `count` highest scores, the highest first; of equals the earlier."""
    return np.argsort(-scores, kind="stable")[:count]
