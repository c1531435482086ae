"""Vectors of spans of words: the tokens at which a span begins and ends, and the vectors of every layer there.

A *span* is a phrase of a chunked text, or the words between two phrases. To *place* a span is to find its tokens.

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
        first: Place of the first token of its first word among the sentence's tokens, special tokens included.
        last: Place of the last token of its last word.
    """

    span: Span
    first: int
    last: int


def place_spans(subject: Subject, text: ChunkedText) -> dict[Span, PlacedSpan]:
    """Find the first token of each span's first word, and the last token of its last word.

    A sentence is given to the tokenizer as its words with a space between them, so that it is split like any other
    text. The tokens of a word are then found by the word's characters.

    Returns:
        The spans with their places. Those whose sentence is too long for the model, and those whose first or last word
        has no token, are left out.

    Raises:
        ModelError: if the tokenizer does not know which characters its tokens are of.
    """
    if not subject.tokenizer.is_fast:
        raise ModelError(
            f"The tokenizer of '{subject.name}' does not say which characters its tokens cover, which spans need; "
            "use a fast tokenizer (one with a tokenizer.json)."
        )
    encoded = tokenizers.encode_texts(subject.tokenizer, [" ".join(words) for words in text.sentences])
    # For each sentence the characters at which its words start, and where a further word would start: `a red fox` has
    # the starts 0, 2, 6 and 10.
    starts_by_sentence = []
    for words in text.sentences:
        lengths_with_space = [len(word) + 1 for word in words]
        starts_by_sentence.append(np.cumsum([0, *lengths_with_space]))

    longest = subject.longest
    placed = {}
    for span in text.spans:
        sentence_is_too_long = longest is not None and len(encoded["input_ids"][span.sentence]) > longest
        if sentence_is_too_long:
            continue
        starts = starts_by_sentence[span.sentence]
        first_character = int(starts[span.first])
        # Before the start of the next word is a space, and before the space is the last character of the span.
        start_of_next_word = int(starts[span.last + 1])
        last_character = start_of_next_word - 2
        first_token = encoded.char_to_token(span.sentence, first_character)
        last_token = encoded.char_to_token(span.sentence, last_character)
        # A tokenizer may drop characters, such as control characters: they have no token.
        if first_token is not None and last_token is not None:
            placed[span] = PlacedSpan(span, first_token, last_token)
    return placed


@torch.no_grad()
def read_ends(
    subject: Subject, text: ChunkedText, placed: Sequence[PlacedSpan], *, report: Report = no_progress
) -> list[tuple[Tensor, Tensor]]:
    """Read the vectors of the first and of the last token of every span, of all layers in one forward pass.

    Args:
        subject: The model.
        text: The text of the spans; only sentences with a span are read.
        placed: The spans, see `place_spans`.
        report: Receives progress.

    Returns:
        For each layer from 0 to N the vectors of the first tokens and those of the last tokens, `[spans, H]` each,
        float32, on the CPU, in the order of `placed`.
    """
    # A span's number is its index in `placed`. Each sentence is read once for all its spans.
    numbers_by_sentence: dict[int, list[int]] = {}
    for number, placed_span in enumerate(placed):
        numbers_by_sentence.setdefault(placed_span.span.sentence, []).append(number)
    sentences = sorted(numbers_by_sentence)
    texts = [" ".join(text.sentences[sentence]) for sentence in sentences]
    rows = tokenizers.encode_texts(subject.tokenizer, texts)["input_ids"]

    keys = layer_keys(subject.model)
    # For each layer, a tensor [2, spans, H] of every batch: first tokens, then last tokens.
    ends_by_layer: list[list[Tensor]] = [[] for _ in keys]
    # The numbers of the spans, in the order in which the batches give their vectors.
    numbers_in_reading_order: list[int] = []
    title = f"Reading with {subject.name}"
    with evaluation_mode(subject.model), taps.StreamTap(subject.model, keys) as tap:
        for batch in batches(rows, subject.tokenizer, device=subject.device, report=report, what=title):
            streams = tap(**batch.inputs)
            # For each span of this batch: the row of the batch that holds it, and its first and last token there.
            rows_in_batch: list[int] = []
            first_tokens: list[int] = []
            last_tokens: list[int] = []
            for row_in_batch, row in enumerate(batch.rows):
                for number in numbers_by_sentence[sentences[row]]:
                    rows_in_batch.append(row_in_batch)
                    first_tokens.append(placed[number].first)
                    last_tokens.append(placed[number].last)
                    numbers_in_reading_order.append(number)

            # Each stream is [B, L, H]; indexing by (row, token) of each span gives [spans, H].
            for key, layer_ends in zip(keys, ends_by_layer, strict=True):
                stream = streams[key]
                both_ends = torch.stack([stream[rows_in_batch, first_tokens], stream[rows_in_batch, last_tokens]])
                layer_ends.append(both_ends.float().cpu())

    # Batches are formed by length, so the vectors are put back into the order of `placed`. Sorting the numbers gives
    # for each span the place of its vectors.
    places_of_spans = torch.tensor(numbers_in_reading_order).argsort()
    vectors = []
    for layer_ends in ends_by_layer:
        first, last = torch.cat(layer_ends, dim=1)[:, places_of_spans]
        vectors.append((first, last))
    return vectors
