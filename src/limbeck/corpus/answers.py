"""`AnswerEncoder`: questions and contexts to windows of tokens, and where in each the answer stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import NO_ANSWER, TOKEN_TYPES, EncodedRows, Example
from limbeck.errors import CorpusError

_PROBES = ("a", "the", "0", ".", "一")


@dataclass(frozen=True)
class PairFrame:
    """The special tokens around a pair of texts, and the segments of all.

    Args:
        prefix: Ids before the first text.
        middle: Ids between the two.
        suffix: Ids after the second.
        types: Segment of each token of the prefix, of every token of the first text, of each of the middle, of every
            token of the second, of each of the suffix.
    """

    prefix: list[int]
    middle: list[int]
    suffix: list[int]
    types: tuple[list[int], int, list[int], int, list[int]]

    @property
    def special(self) -> int:
        """Number of special tokens."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def join(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return ids and segments of a whole pair."""
        before, of_first, between, of_second, after = self.types
        types = [*before, *[of_first] * len(first), *between, *[of_second] * len(second), *after]
        return [*self.prefix, *first, *self.middle, *second, *self.suffix], types


def find_frame(backend: Tokenizer) -> PairFrame:
    """Find the special tokens around a pair by encoding a short one.

    Raises:
        CorpusError: if the tokenizer gives no token for any plain text.
    """
    for probe in _PROBES:
        encoding = backend.encode(probe, probe)
        ids, types, texts = encoding.ids, encoding.type_ids, encoding.sequence_ids
        if 0 not in texts or 1 not in texts:
            continue
        first, second = texts.index(0), texts.index(1)
        bounds = ((0, first), (first + texts.count(0), second), (second + texts.count(1), len(ids)))
        before, between, after = (types[start:end] for start, end in bounds)
        prefix, middle, suffix = (ids[start:end] for start, end in bounds)
        return PairFrame(prefix, middle, suffix, (before, types[first], between, types[second], after))
    raise CorpusError("The tokenizer gives no token for any plain text: it is empty or broken.")


def window_starts(tokens: int, room: int, stride: int) -> range:
    """Return where the windows of a context start, in tokens; the last ends where the context ends.

    Args:
        tokens: Tokens of the context.
        room: Tokens of a window, above `stride`.
        stride: Tokens that neighbouring windows share.
    """
    return range(0, max(tokens - stride, 1), room - stride)


def answer_tokens(offsets: NDArray[np.int64], start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token of an answer; `None` if it has no token of its own.

    Args:
        offsets: First character and character after the last of every token, `[tokens, 2]`.
        start: First character of the answer.
        end: Character after its last.
    """
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


class AnswerEncoder:
    """Encodes questions with windows of their contexts, each labelled with the first and last token of the answer.

    The question comes first, or second where the tokenizer pads on the left, as `transformers` has it. Windows that do
    not hold the whole answer, and questions without one, point to the first token, both ends.

    A question may take half of the tokens that windows do not share; a longer one is cut.

    Source: BERT's SQuAD windows (arXiv 1810.04805, section 4.2); the first token for no answer is its section 4.3.

    Args:
        tokenizer: A fast `transformers` tokenizer; it is not changed.
        length: Most tokens in a window, question and special tokens included.
        stride: Tokens of the context that neighbouring windows share.

    Raises:
        CorpusError: if the tokenizer is slow, or the windows have no room.
    """

    def __init__(self, tokenizer: Any, length: int, stride: int) -> None:
        if not tokenizer.is_fast:
            raise CorpusError(
                f"Question answering needs the place of every token in the text, which the slow tokenizer "
                f"{type(tokenizer).__name__} does not give: use a fast one (a tokenizer.json)."
            )
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_padding()
        self._backend.no_truncation()
        self._frame = find_frame(self._backend)
        self._room = length - self._frame.special
        if self._room - stride < 2:
            raise CorpusError(
                f"length {length} and stride {stride} leave no room for a question and new text beside "
                f"{self._frame.special} special tokens: give a smaller stride, or a greater length."
            )
        self._stride = stride
        self._question_room = (self._room - stride) // 2
        self._question_first = tokenizer.padding_side == "right"
        self._typed = TOKEN_TYPES in tokenizer.model_input_names

    def encode(self, examples: Sequence[Example], report: SourceReport) -> EncodedRows:
        """Return the windows of each example, in order; `labels` are `[first token, last token]`.

        Args:
            examples: Contexts, questions, and answers in characters.
            report: Receives questions that were cut, and answers without a token, which are left out.
        """
        questions = self._encode_once([example.pair or "" for example in examples])
        contexts = self._encode_once([example.text for example in examples])
        offsets = {text: np.array(encoding.offsets).reshape(-1, 2) for text, encoding in contexts.items()}
        rows = EncodedRows([], [], [] if self._typed else None)
        for example in examples:
            question = questions[example.pair or ""].ids
            if len(question) > self._question_room:
                report.note(f"question cut to {self._question_room} tokens", repr((example.pair or "")[:40]))
                question = question[: self._question_room]
            answer = None
            if tuple(example.label) != NO_ANSWER:  # type: ignore[arg-type]
                answer = answer_tokens(offsets[example.text], *example.label)  # type: ignore[misc]
                if answer is None:
                    report.note("answer without a token, dropped", repr((example.pair or "")[:40]))
                    continue
            self._add_windows(question, contexts[example.text].ids, answer, rows)
        return rows

    def _add_windows(
        self, question: list[int], context: list[int], answer: tuple[int, int] | None, rows: EncodedRows
    ) -> None:
        room = self._room - len(question)
        before = len(self._frame.prefix)
        if self._question_first:
            before += len(question) + len(self._frame.middle)
        for start in window_starts(len(context), room, self._stride):
            window = context[start : start + room]
            pair = (question, window) if self._question_first else (window, question)
            ids, types = self._frame.join(*pair)
            rows.input_ids.append(ids)
            if rows.token_type_ids is not None:
                rows.token_type_ids.append(types)
            held = answer is not None and start <= answer[0] and answer[1] < start + len(window)
            rows.labels.append([before + token - start for token in answer] if answer and held else [0, 0])

    def _encode_once(self, texts: list[str]) -> dict[str, Encoding]:
        """Encode every distinct text, without special tokens: a context has many questions."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self._backend.encode_batch(distinct, add_special_tokens=False), strict=True))
