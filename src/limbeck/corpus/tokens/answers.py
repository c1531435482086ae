"""Tokens of questions and their contexts, in windows, with the place of the answer in each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from limbeck.corpus.rows.labelled_rows import NO_ANSWER, TOKEN_TYPES, EncodedRows, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.token_encoder import PROBES, plain_backend
from limbeck.errors import CorpusError

NO_SPAN = (0, 0)
"""The label of a window that does not hold the whole answer: the first token, both ends."""
_SHOWN_CHARACTERS = 40


class PairFrame(NamedTuple):
    """The special tokens around a pair of texts, and the segments of all.

    Args:
        ids: Ids before the first text, between the two, and after the second.
        types: Segments of these.
        texts: Segment of every token of the first text, and of the second.
    """

    ids: list[list[int]]
    types: list[list[int]]
    texts: tuple[int, int]

    def join(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return ids and segments of a whole pair."""
        before, between, after = self.ids
        ids = [*before, *first, *between, *second, *after]
        before, between, after = self.types
        first_types = [self.texts[0]] * len(first)
        second_types = [self.texts[1]] * len(second)
        return ids, [*before, *first_types, *between, *second_types, *after]


def find_frame(backend: Tokenizer) -> PairFrame:
    """Find the special tokens around a pair by encoding a short one.

    Raises:
        CorpusError: if the tokenizer gives no token for any plain text.
    """
    for probe in PROBES:
        encoding = backend.encode(probe, probe)
        texts = encoding.sequence_ids  # 0 and 1 for the two texts, None for special tokens.
        if 0 not in texts or 1 not in texts:
            continue
        first = texts.index(0)
        second = texts.index(1)
        parts = (
            slice(0, first),
            slice(first + texts.count(0), second),
            slice(second + texts.count(1), None),
        )
        ids = [encoding.ids[part] for part in parts]
        types = [encoding.type_ids[part] for part in parts]
        return PairFrame(ids, types, (encoding.type_ids[first], encoding.type_ids[second]))
    raise CorpusError("The tokenizer turns plain text into no tokens: it is empty or broken.")


class Question(NamedTuple):
    """A question on a context.

    Args:
        name: As reports and windows name it.
        text: The question.
        context: The text that may hold the answer.
        answer: First character of the answer in the context and the one after its last; None where no window is to
            be labelled.
    """

    name: str
    text: str
    context: str
    answer: tuple[int, int] | None = None


@dataclass(frozen=True)
class AnswerWindow:
    """A question with a part of its context.

    Attributes:
        row: Name of the question.
        input_ids: Special tokens, question and part of the context.
        token_type_ids: Segment of each token; None where the model has no segments.
        first: Place of the context's first token in `input_ids`.
        offsets: First character and character after the last of each of the context's tokens, `[tokens, 2]`.
        label: First and last token of the answer in `input_ids`; see `NO_SPAN`.
    """

    row: str
    input_ids: list[int]
    token_type_ids: list[int] | None
    first: int
    offsets: NDArray[np.int64]
    label: tuple[int, int]


class AnswerWindows:
    """Cuts questions and contexts into windows, each labelled with the first and last token of the answer.

    The question comes first, or second where the tokenizer pads on the left, as `transformers` has it. Windows that do
    not hold the whole answer, and questions without one, point to the first token, both ends. Neighbouring windows
    share `stride` tokens. A question may take half of the tokens that windows do not share; a longer one is cut.

    Source: BERT's SQuAD windows (arXiv 1810.04805, section 4.2); the first token for no answer is its section 4.3.

    Args:
        tokenizer: A fast `transformers` tokenizer; it is not changed.
        length: Most tokens in a window, question and special tokens included.
        stride: Tokens of the context that neighbouring windows share.

    Raises:
        CorpusError: if the tokenizer is slow, or the windows have no room.
    """

    def __init__(self, tokenizer: Any, length: int = 384, stride: int = 128) -> None:
        if not tokenizer.is_fast:
            raise CorpusError(
                f"Question answering needs the position of every token in the text, which the slow tokenizer "
                f"{type(tokenizer).__name__} does not provide: use a fast one (a tokenizer.json)."
            )
        self._backend = plain_backend(tokenizer)
        self._frame = find_frame(self._backend)
        special = sum(map(len, self._frame.ids))
        self._room = length - special
        if self._room - stride < 2:
            raise CorpusError(
                f"length {length} and stride {stride} leave no room for a question and new text beside "
                f"{special} special tokens: give a smaller stride or a larger length."
            )
        self._stride = stride
        self._question_room = (self._room - stride) // 2
        self._question_first = tokenizer.padding_side == "right"
        self._has_types = TOKEN_TYPES in tokenizer.model_input_names

    def encode(self, rows: Sequence[LabelledRow], report: SourceReport) -> EncodedRows:
        """Return the windows of labelled rows, in order; `labels` are `[first token, last token]`.

        Args:
            rows: Contexts, questions, and answers in characters.
            report: Receives questions that were cut, and rows whose answer has no token, which are left out.
        """
        questions = []
        for row in rows:
            question = row.pair or ""
            # An answer without a place in its context is left out as one that no token covers.
            answer = NO_ANSWER if row.label is None else cast(tuple[int, int], row.label)
            is_answered = row.label != NO_ANSWER
            name = repr(question[:_SHOWN_CHARACTERS])
            questions.append(Question(name, question, row.text, answer if is_answered else None))

        windows = self.cut(questions, report)
        types = [window.token_type_ids or [] for window in windows] if self._has_types else None
        return EncodedRows([window.input_ids for window in windows], [list(window.label) for window in windows], types)

    def cut(self, questions: Sequence[Question], report: SourceReport) -> list[AnswerWindow]:
        """Return the windows of every question, in order.

        Args:
            questions: The questions.
            report: Receives questions that were cut, and questions without a token in their answer, which are left
                out.
        """
        # Every distinct text is encoded once: a context has many questions.
        texts: dict[str, None] = {}
        for question in questions:
            texts[question.text] = None
            texts[question.context] = None
        encoded = dict(zip(texts, self._backend.encode_batch(list(texts), add_special_tokens=False), strict=True))
        offsets = {}
        for question in questions:
            offsets[question.context] = np.array(encoded[question.context].offsets).reshape(-1, 2)

        windows: list[AnswerWindow] = []
        for name, text, context, answer in questions:
            ids = encoded[text].ids
            if len(ids) > self._question_room:
                report.note(f"question cut to {self._question_room} tokens", name)
                ids = ids[: self._question_room]
            span: list[int] = []
            if answer is not None:
                starts, ends = offsets[context].T
                span = np.flatnonzero((starts < answer[1]) & (ends > answer[0])).tolist()
                if not span:
                    report.note("answer that none of its context's tokens cover, row left out", name)
                    continue
            windows += self._windows(name, ids, encoded[context].ids, offsets[context], span)
        return windows

    def _windows(
        self, name: str, question: list[int], context: list[int], offsets: NDArray[np.int64], span: list[int]
    ) -> Iterator[AnswerWindow]:
        """Yield the windows of one question.

        Args:
            name: Of the question.
            question: Its ids.
            context: Ids of the context.
            offsets: Characters of the context's tokens, `[tokens, 2]`.
            span: Tokens of the context that the answer covers; empty where no window is labelled.
        """
        room = self._room - len(question)
        first = len(self._frame.ids[0])
        if self._question_first:
            first += len(question) + len(self._frame.ids[1])
        # Neighbours share `stride` tokens, and the last window ends where the context ends.
        for start in range(0, max(len(context) - self._stride, 1), room - self._stride):
            part = context[start : start + room]
            if self._question_first:
                ids, types = self._frame.join(question, part)
            else:
                ids, types = self._frame.join(part, question)
            label = NO_SPAN
            if span and start <= span[0] and span[-1] < start + len(part):
                label = (first + span[0] - start, first + span[-1] - start)
            part_offsets = offsets[start : start + len(part)]
            yield AnswerWindow(name, ids, types if self._has_types else None, first, part_offsets, label)
