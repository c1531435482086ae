"""Vectors of spans of words: where a span's tokens are, and what every layer holds there.

Axis letters: H width of a model, N its layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from limbeck.core.progress import Report, quietly
from limbeck.errors import ModelError
from limbeck.evaluation.inference import evaluation_mode
from limbeck.inspection.batches import batches, encode
from limbeck.inspection.conll import ChunkedText, Span
from limbeck.inspection.subject import Subject
from limbeck.models.taps import StreamTap


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


def place_spans(subject: Subject, text: ChunkedText) -> dict[Span, tuple[int, int]]:
    """Find the first token of each span's first word, and the last token of its last word.

    A sentence is given to the tokenizer as its words with a space between them, so that it is split as any other text
    is; words are found again by their characters. Spans are left out whose sentence is too long for the model, or whose
    first or last word has no token.

    Raises:
        ModelError: if the tokenizer does not know which characters its tokens are of.
    """
    if not subject.tokenizer.is_fast:
        raise ModelError(
            f"The tokenizer of '{subject.name}' does not say which characters its tokens are of; use a fast tokenizer "
            "(one with a tokenizer.json)."
        )
    encoded = encode(subject.tokenizer, [" ".join(words) for words in text.sentences])
    starts = [np.cumsum([0, *(len(word) + 1 for word in words)]) for words in text.sentences]
    longest = subject.longest
    placed: dict[Span, tuple[int, int]] = {}
    for span in text.spans:
        if longest is not None and len(encoded["input_ids"][span.sentence]) > longest:
            continue
        begin, end = int(starts[span.sentence][span.first]), int(starts[span.sentence][span.last + 1]) - 2
        first, last = encoded.char_to_token(span.sentence, begin), encoded.char_to_token(span.sentence, end)
        if first is not None and last is not None:
            placed[span] = (first, last)
    return placed


@torch.no_grad()
def read_ends(
    subject: Subject, text: ChunkedText, placed: Mapping[Span, tuple[int, int]], *, report: Report = quietly
) -> list[tuple[Tensor, Tensor]]:
    """Read the vectors of the first and of the last token of every span, all layers in one forward.

    Args:
        subject: The model.
        text: The text that the spans are of; only their sentences are read.
        placed: Each span's first and last token, see `place_spans`.
        report: Is told how far it is.

    Returns:
        For layers 0 to N the two, `[spans, H]` each, float32, on the CPU, in the order of `placed`.
    """
    chosen = sorted({span.sentence for span in placed})
    rows = encode(subject.tokenizer, [" ".join(text.sentences[sentence]) for sentence in chosen])["input_ids"]
    in_row: dict[int, list[tuple[int, int, int]]] = {row: [] for row in range(len(chosen))}
    row_of = {sentence: row for row, sentence in enumerate(chosen)}
    for number, (span, (first, last)) in enumerate(placed.items()):
        in_row[row_of[span.sentence]].append((number, first, last))
    keys = subject.layer_keys
    ends: list[list[Tensor]] = [[] for _ in keys]
    order: list[int] = []
    what = f"Reading with {subject.name}"
    with evaluation_mode(subject.model), StreamTap(subject.model, keys) as tap:
        for batch in batches(rows, subject.tokenizer, device=subject.device, report=report, what=what):
            streams = tap(**batch.inputs)
            found = [(place, *span) for place, row in enumerate(batch.rows) for span in in_row[row]]
            places, numbers, firsts, lasts = (list(column) for column in zip(*found, strict=True))
            order += numbers
            for key, kept in zip(keys, ends, strict=True):
                stream = streams[key]
                kept.append(torch.stack([stream[places, firsts], stream[places, lasts]]).float().cpu())
    back = torch.tensor(order).argsort()
    joined = [torch.cat(kept, dim=1)[:, back] for kept in ends]
    return [(both[0], both[1]) for both in joined]
