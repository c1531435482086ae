"""`AnswerWindows`: questions on contexts as token rows, labelled with the place of the answer.

A context may be longer than a row. Then a question becomes several *windows*: rows with the question and a part of the
context each. The *frame* of a pair are the special tokens around and between its two texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES, EncodedRows
from limbeck.corpus.tokens.token_encoder import PROBES, plain_backend
from limbeck.errors import CorpusError

NO_SPAN = (0, 0)
"""The label of a window that does not hold the whole answer: the first token, both ends."""
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""


class SpecialTokens(NamedTuple):
    """Special tokens that stand together.

    Args:
        ids: Their ids.
        types: Segment of each.
    """

    ids: list[int]
    types: list[int]


class PairFrame(NamedTuple):
    """The special tokens around a pair of texts, and the segments of the texts.

    Args:
        before: Special tokens before the first text.
        between: Special tokens between the two.
        after: Special tokens after the second text.
        first_type: Segment of every token of the first text.
        second_type: Segment of every token of the second text.
    """

    before: SpecialTokens
    between: SpecialTokens
    after: SpecialTokens
    first_type: int
    second_type: int

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return len(self.before.ids) + len(self.between.ids) + len(self.after.ids)

    def join_ids(self, first: Sequence[int], second: Sequence[int]) -> list[int]:
        """Return the ids of a pair of texts, special tokens included."""
        return [*self.before.ids, *first, *self.between.ids, *second, *self.after.ids]

    def join_types(self, first_length: int, second_length: int) -> list[int]:
        """Return the segment of each token of a pair, from the numbers of tokens of its texts."""
        first_types = [self.first_type] * first_length
        second_types = [self.second_type] * second_length
        return [*self.before.types, *first_types, *self.between.types, *second_types, *self.after.types]


def find_frame(backend: Tokenizer) -> PairFrame:
    """Find the special tokens around a pair by encoding a short one.

    Raises:
        CorpusError: if the tokenizer gives no token for any plain text.
    """
    for probe in PROBES:
        encoding = backend.encode(probe, probe)
        text_of_token = encoding.sequence_ids  # 0 and 1 for the two texts, None for special tokens.
        if 0 not in text_of_token or 1 not in text_of_token:
            continue
        first_start = text_of_token.index(0)
        first_end = first_start + text_of_token.count(0)
        second_start = text_of_token.index(1)
        second_end = second_start + text_of_token.count(1)
        ids = encoding.ids
        types = encoding.type_ids
        return PairFrame(
            before=SpecialTokens(ids[:first_start], types[:first_start]),
            between=SpecialTokens(ids[first_end:second_start], types[first_end:second_start]),
            after=SpecialTokens(ids[second_end:], types[second_end:]),
            first_type=types[first_start],
            second_type=types[second_start],
        )
    raise CorpusError(
        "The tokenizer turns plain text into no tokens, so it is empty or damaged: copy or download the model again."
    )


class Question(NamedTuple):
    """A question on a context.

    Args:
        name: Name of the question in reports and windows.
        text: The question.
        context: The text that may hold the answer.
        answer: First character of the answer in the context, and the one after its last. None for a question without
            an answer, or where labels are not needed.
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

    The question comes first, or second where the tokenizer pads on the left, as in `transformers`. A window that does
    not hold the whole answer has the label `NO_SPAN`, and so has every window of a question without an answer.
    Neighbouring windows share `stride` tokens of the context. The question may take at most half of the tokens that
    remain beside these; a longer one is cut.

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
                "Question answering needs the position of every token in the text, which the slow tokenizer "
                f"{type(tokenizer).__name__} does not provide: use a fast tokenizer (one with a tokenizer.json)."
            )
        self._backend = plain_backend(tokenizer)
        self._frame = find_frame(self._backend)
        self._room = length - self._frame.size  # Tokens of a window for question and context.
        if self._room - stride < 2:
            raise CorpusError(
                f"length {length} and stride {stride} leave no room for a question and new text beside "
                f"{self._frame.size} special tokens: give a smaller 'stride' or a larger 'length'."
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
            text = row.pair or ""
            name = repr(text[:_SHOWN_CHARACTERS])
            questions.append(Question(name, text, context=row.text, answer=_answer_of(row)))

        windows = self.cut(questions, report)
        types = None
        if self._has_types:
            types = [window.token_type_ids or [] for window in windows]
        return EncodedRows(
            input_ids=[window.input_ids for window in windows],
            labels=[list(window.label) for window in windows],
            token_type_ids=types,
        )

    def cut(self, questions: Sequence[Question], report: SourceReport) -> list[AnswerWindow]:
        """Return the windows of every question, in order.

        Args:
            questions: The questions.
            report: Receives questions that were cut, and questions without a token in their answer, which are left
                out.
        """
        encoded = self._encode_distinct_texts(questions)
        windows: list[AnswerWindow] = []
        for question in questions:
            ids = encoded[question.text].ids
            if len(ids) > self._question_room:
                report.note(f"question cut to {self._question_room} tokens", question.name)
                ids = ids[: self._question_room]

            context = encoded[question.context]
            span = None
            if question.answer is not None:
                span = _covered_tokens(question.answer, context.offsets)
                if span is None:
                    report.note("answer whose characters are in no token of its context, row left out", question.name)
                    continue
            windows += self._windows(question.name, ids, context, span)
        return windows

    def _encode_distinct_texts(self, questions: Sequence[Question]) -> dict[str, _EncodedText]:
        """Encode every distinct text once: a context has many questions."""
        texts: dict[str, None] = {}
        for question in questions:
            texts[question.text] = None
            texts[question.context] = None
        encoded: dict[str, _EncodedText] = {}
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            encoded[text] = _EncodedText(encoding.ids, np.array(encoding.offsets).reshape(-1, 2))
        return encoded

    def _windows(
        self, name: str, question_ids: list[int], context: _EncodedText, span: tuple[int, int] | None
    ) -> Iterator[AnswerWindow]:
        """Yield the windows of one question.

        Args:
            name: Name of the question.
            question_ids: Token ids of the question.
            context: Tokens of the context.
            span: First and last token of the context that the answer covers; None where no window is labelled.
        """
        room = self._room - len(question_ids)  # Tokens of a window for the context.
        first = len(self._frame.before.ids)
        if self._question_first:
            first += len(question_ids) + len(self._frame.between.ids)

        # Each window begins `room - stride` tokens behind the one before, so that they share `stride` tokens. No window
        # begins in the last `stride` tokens of the context, since the window before holds these.
        end_of_starts = max(len(context.ids) - self._stride, 1)
        for start in range(0, end_of_starts, room - self._stride):
            part = context.ids[start : start + room]
            if self._question_first:
                ids = self._frame.join_ids(question_ids, part)
                types = self._frame.join_types(len(question_ids), len(part))
            else:
                ids = self._frame.join_ids(part, question_ids)
                types = self._frame.join_types(len(part), len(question_ids))
            # The label counts tokens of the window. A window with only a part of the answer counts as one without.
            label = NO_SPAN
            if span is not None:
                first_of_answer, last_of_answer = span
                holds_whole_answer = start <= first_of_answer and last_of_answer < start + len(part)
                if holds_whole_answer:
                    label = (first + first_of_answer - start, first + last_of_answer - start)
            yield AnswerWindow(
                row=name,
                input_ids=ids,
                token_type_ids=types if self._has_types else None,
                first=first,
                offsets=context.offsets[start : start + len(part)],
                label=label,
            )


class _EncodedText(NamedTuple):
    """The tokens of a text, without special ones.

    Args:
        ids: Their ids.
        offsets: First character and character after the last of each, `[tokens, 2]`.
    """

    ids: list[int]
    offsets: NDArray[np.int64]


def _answer_of(row: LabelledRow) -> tuple[int, int] | None:
    """Return the characters of a row's answer; None where its question has no answer, or no answer is known."""
    if row.label == NO_ANSWER:
        return None
    if row.label is not None:
        return cast(tuple[int, int], row.label)
    if row.answers:
        # The context does not hold the answer. No token covers the place `NO_ANSWER`, so that the row is left out.
        return NO_ANSWER
    # The row has no labels.
    return None


def _covered_tokens(answer: tuple[int, int], offsets: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the first and the last token that an answer covers; None where it covers none.

    Args:
        answer: Its first character, and the one after its last.
        offsets: First character and character after the last of each token, `[tokens, 2]`.
    """
    starts, ends = offsets.T
    first_character, end_character = answer
    covered = np.flatnonzero((starts < end_character) & (ends > first_character))
    if len(covered) == 0:
        return None
    return int(covered[0]), int(covered[-1])
