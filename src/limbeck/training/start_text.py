"""The text that a student's start reads: rows that are spread over a corpus, in batches of similar length."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

from limbeck.corpus import PadCollator, StreamedCorpus, Tokenizers
from limbeck.corpus.batches.batch import Inputs, read_batch
from limbeck.inspection.layer_cosines import spread_batches
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus
from limbeck.training.stage_rows import pad_collator

_BATCH = 64
"""Rows of a batch."""
_HELD_OUT_EVERY = 10
"""One row in so many is held out."""
_GOLDEN_RATIO = 0.6180339887
"""Steps of this share of a corpus reach all parts of it about equally often, however many steps there are."""


class ReadBatches(Protocol):
    """Reads text in batches of a source's inputs, `[B, L]` each; the arguments are those of `ReadText`."""

    def __call__(self, *, tokens: int | None = None, held_out: bool = False) -> Iterable[Mapping[str, Tensor]]:
        """Read the text from its beginning."""


def reader_of(stage: StagePlan, corpus: AnyCorpus, tokenizers: Tokenizers, source: TeacherInfo) -> ReadBatches | None:
    """Return a function that reads a stage's text as inputs of the model that the student starts from.

    Some starts run that model on text, for example to find which of its neurons matter.

    Args:
        stage: The stage.
        corpus: Its text.
        tokenizers: Those of its student and its teacher.
        source: The model that the student starts from.

    Returns:
        The function. None for a stream, and for a model whose tokens the text does not have.
    """
    if isinstance(corpus, StreamedCorpus):
        return None
    if source.tokenizer not in (stage.tokenizer, stage.teacher_tokenizer):
        return None
    reads_as_student = source.tokenizer == stage.tokenizer
    collate = pad_collator(tokenizers)

    def read_inputs(*, tokens: int | None = None, held_out: bool = False) -> Iterator[Inputs]:
        for columns in read_spread_rows(corpus, collate, tokens=tokens, held_out=held_out):
            batch = read_batch(columns)
            yield batch.student if reads_as_student else batch.teacher

    return read_inputs


def read_spread_rows(
    corpus: AnyCorpus, collate: PadCollator, *, tokens: int | None = None, held_out: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Read batches of rows that are spread over a corpus; see `ReadText`.

    Args:
        corpus: The text.
        collate: Makes batches of its rows.
        tokens: About how many tokens to read; None reads up to 1,024 rows.
        held_out: Read a tenth as many tokens, of rows that are never read otherwise.
    """
    if tokens is None:
        yield from spread_batches(corpus, collate, torch.device("cpu"))
        return
    indices = _choose_rows(corpus, tokens, held_out=held_out)
    for start in range(0, len(indices), _BATCH):
        yield collate([corpus.train[index] for index in indices[start : start + _BATCH]])


def _choose_rows(corpus: AnyCorpus, tokens: int, *, held_out: bool) -> list[int]:
    """Choose rows from all parts of a corpus, few or many, by steps of equal length that go around it.

    Args:
        corpus: The corpus.
        tokens: About how many tokens the rows have together.
        held_out: Choose among every tenth row of this order, which are chosen only so, and a tenth as many tokens.

    Returns:
        The indices of the rows, the shortest row first.
    """
    # A stride without a common divisor with the number of rows comes to each row once before it comes to one again.
    count = len(corpus.train)
    stride = max(1, round(count * _GOLDEN_RATIO))
    while math.gcd(stride, count) > 1:
        stride += 1

    wanted_tokens = _wanted_tokens(tokens, held_out=held_out)
    chosen_tokens = 0
    lengths: dict[int, int] = {}
    for number in range(count):
        is_held_out = number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
        if is_held_out != held_out:
            continue
        if chosen_tokens >= wanted_tokens:
            break
        index = number * stride % count
        lengths[index] = len(corpus.train[index]["input_ids"])
        chosen_tokens += lengths[index]
    # Rows of similar length come together, so that little is padded. Sorting is stable.
    return sorted(lengths, key=lambda index: lengths[index])


def _wanted_tokens(tokens: int, *, held_out: bool) -> int:
    """Return about how many tokens are read: of held-out rows a tenth."""
    return math.ceil(tokens / _HELD_OUT_EVERY) if held_out else tokens
