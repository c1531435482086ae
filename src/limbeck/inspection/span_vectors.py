"""Vectors of spans of words: the places of a span's tokens, and what every layer holds there.

Axis letters: H width of a model, N its layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress
from limbeck.errors import ModelError
from limbeck.inspection.chunked_text import ChunkedText, Span
from limbeck.inspection.subject import Subject, layer_keys
from limbeck.models import taps, tokenizers
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.inference import batches


def span_vectors(first: Tensor, last: Tensor) -> Tensor:
    """Join the vectors of the first and the last token, their element-wise product, and their difference.

    Args:
        first: `[spans, H]`.
        last: `[spans, H]`.

    Returns:
        `[spans, 4 H]`: first, last, first * last, first - last.

    Source:
        Jawahar et al. 2019 (ACL P19-1356) section 3.
    """
    return torch.cat([first, last, first * last, first - last], dim=1)


@dataclass(frozen=True)
class PlacedSpan:
    """A span, and the places of its outer tokens in its sentence.

    Attributes:
        span: The span.
        first: The first token of its first word.
        last: The last token of its last word.
    """

    span: Span
    first: int
    last: int


def place_spans(subject: Subject, text: ChunkedText) -> dict[Span, PlacedSpan]:
    """Find the first token of each span's first word, and the last token of its last word.

    A sentence is given to the tokenizer as its words with a space between them, so that it is split as any other text
    is; words are found again by their characters. Spans are left out whose sentence is too long for the model, or whose
    first or last word has no token.

    Raises:
        ModelError: if the tokenizer does not know which characters its tokens are of.
    """
    if not subject.tokenizer.is_fast:
        raise ModelError(
            f"The tokenizer of '{subject.name}' does not say which characters its tokens cover; use a fast tokenizer "
            "(one with a tokenizer.json)."
        )
    encoded = tokenizers.encode_texts(subject.tokenizer, [" ".join(words) for words in text.sentences])
    # Characters at which the words of each sentence start, and where one more would.
    starts = []
    for words in text.sentences:
        lengths_with_space = [len(word) + 1 for word in words]
        starts.append(np.cumsum([0, *lengths_with_space]))

    longest = subject.longest
    placed = {}
    for span in text.spans:
        if longest is not None and len(encoded["input_ids"][span.sentence]) > longest:
            continue
        first_character = int(starts[span.sentence][span.first])
        last_character = int(starts[span.sentence][span.last + 1]) - 2
        first = encoded.char_to_token(span.sentence, first_character)
        last = encoded.char_to_token(span.sentence, last_character)
        if first is not None and last is not None:
            placed[span] = PlacedSpan(span, first, last)
    return placed


@torch.no_grad()
def read_ends(
    subject: Subject, text: ChunkedText, placed: Sequence[PlacedSpan], *, report: Report = no_progress
) -> list[tuple[Tensor, Tensor]]:
    """Read the vectors of the first and of the last token of every span, all layers in one forward.

    Args:
        subject: The model.
        text: The text that the spans are of; only their sentences are read.
        placed: The spans, see `place_spans`.
        report: Receives progress.

    Returns:
        For layers 0 to N the two, `[spans, H]` each, float32, on the CPU, in the order of `placed`.
    """
    # Spans are known by their number in `placed`; each sentence is read once for all its spans.
    numbers_by_sentence: dict[int, list[int]] = {}
    for number, place in enumerate(placed):
        numbers_by_sentence.setdefault(place.span.sentence, []).append(number)
    sentences = sorted(numbers_by_sentence)
    texts = [" ".join(text.sentences[sentence]) for sentence in sentences]
    rows = tokenizers.encode_texts(subject.tokenizer, texts)["input_ids"]

    keys = layer_keys(subject.model)
    ends: list[list[Tensor]] = [[] for _ in keys]
    order: list[int] = []
    title = f"Reading with {subject.name}"
    with evaluation_mode(subject.model), taps.StreamTap(subject.model, keys) as tap:
        for batch in batches(rows, subject.tokenizer, device=subject.device, report=report, what=title):
            streams = tap(**batch.inputs)
            # The numbers of the spans in this batch, and the row of each.
            rows_of_spans = []
            numbers = []
            for place_in_batch, row in enumerate(batch.rows):
                in_sentence = numbers_by_sentence[sentences[row]]
                numbers += in_sentence
                rows_of_spans += [place_in_batch] * len(in_sentence)
            firsts = [placed[number].first for number in numbers]
            lasts = [placed[number].last for number in numbers]
            order += numbers
            for key, layer_ends in zip(keys, ends, strict=True):
                stream = streams[key]
                both_ends = torch.stack([stream[rows_of_spans, firsts], stream[rows_of_spans, lasts]])
                layer_ends.append(both_ends.float().cpu())

    # Batches are made by length: back to the order of the spans.
    back = torch.tensor(order).argsort()
    vectors = []
    for layer_ends in ends:
        first, last = torch.cat(layer_ends, dim=1)[:, back]
        vectors.append((first, last))
    return vectors
