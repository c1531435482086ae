"""`AnswerWindows`: questions and contexts to windows of tokens that know where in the context each token stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from limbeck.corpus.answers import AnswerEncoder, answer_tokens, find_frame, window_starts
from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import TOKEN_TYPES
from limbeck.evaluation.tasks.task import TaskRow

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
