"""Retrieval: given a held-out document's summary, does a model find its body among all the bodies?

The pairs come from the text itself (a title or summary line and what follows; else a paragraph's first
sentence and its rest), so the figure measures each model on its own, teacher and student alike, without any
label.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.core.progress import Report, quietly
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation.normalising import normalised
from limbeck.evaluation.sentence_vectors import encode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SUMMARY_CHARACTERS = (20, 300)
"""Shortest and longest summary that is used."""
FEWEST_BODY_CHARACTERS = 60
FEWEST_PAIRS = 20


@dataclass(frozen=True)
class Retrieval:
    """How well summaries find their bodies.

    Attributes:
        mrr_at_10: Mean over summaries of 1/rank of the right body, 0 where the rank is above 10.
        recall_at_1: Share of summaries whose right body comes first.
        interval: 95 % interval of `mrr_at_10` (normal approximation over summaries).
        pool: How many pairs: each summary searches this many bodies.
    """

    mrr_at_10: float
    recall_at_1: float
    interval: tuple[float, float]
    pool: int


def build_retrieval_pairs(
    documents: Sequence[str | tuple[str, str]], count: int = 700, *, seed: int = 0
) -> list[tuple[str, str]]:
    """Choose (summary, body) pairs from held-out documents.

    A document's first paragraph is its summary when it is one sentence of a usable length; what follows is
    the body. Each other paragraph of two sentences or more gives its first sentence and its rest. One pair a
    document is taken before any second one. Dropped: a body that contains its summary, and any summary or
    body that was there before.

    Args:
        documents: Plain texts, or (title, body) pairs where the corpus knows its titles.
        count: How many pairs at most.
        seed: Same seed and documents, same pairs.

    Returns:
        The pairs, with distinct summaries and distinct bodies.

    Raises:
        CorpusError: if fewer than `FEWEST_PAIRS` (or `count`, where that is smaller) can be made.
    """
    rng = random.Random(seed)
    order = list(range(len(documents)))
    rng.shuffle(order)
    candidates = [_candidates(documents[index]) for index in order]
    chosen: list[tuple[str, str]] = []
    seen: set[str] = set()
    for pair in (p for rank in zip_longest(*candidates) for p in rank if p is not None):
        if len(chosen) == count:
            break
        keys = {normalised(part) for part in pair}
        if not keys & seen:
            seen |= keys
            chosen.append(pair)
    if len(chosen) < min(FEWEST_PAIRS, count):
        raise CorpusError(
            f"Only {len(chosen)} (summary, body) pairs can be made from {len(documents)} held-out documents; "
            f"{min(FEWEST_PAIRS, count)} are needed: hold out more text."
        )
    return chosen


def measure_retrieval(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    *,
    pooling: str = "mean",
    max_length: int = 256,
    batch_size: int = 32,
    dtype: torch.dtype | None = None,
    report: Report = quietly,
) -> Retrieval:
    """Return how well a model's summaries find their bodies among all bodies of `pairs`.

    Args:
        model: A loaded encoder.
        tokenizer: Its tokenizer.
        pairs: (summary, body), as `build_retrieval_pairs` gives them.
        pooling: As in `encode`.
        max_length: As in `encode`; the rest of a longer body is not read.
        batch_size: As in `encode`.
        dtype: As in `encode`.
        report: Is told how far it is.
    """
    texts = [summary for summary, _ in pairs] + [body for _, body in pairs]
    vectors = encode(
        model, tokenizer, texts, pooling=pooling, max_length=max_length, batch_size=batch_size, dtype=dtype,
        report=report,
    )  # fmt: skip
    return retrieval_scores(ranks_of_matches(vectors[: len(pairs)] @ vectors[len(pairs) :].T))


def ranks_of_matches(scores: Tensor) -> Tensor:
    """Return the rank (1 is best) of each query's match: `scores[i, j]` is query i with body j, match i = j.

    Ties are counted against the model: a candidate that scores the same as the match ranks before it, so a
    model that gives every text the same vector gets the last rank, not the first. A NaN gets the last rank
    too.
    """
    own = scores.diagonal().unsqueeze(1)
    return (~(scores < own)).sum(1)


def retrieval_scores(ranks: Tensor) -> Retrieval:
    """Return the figures of a list of ranks, one a query, each out of `len(ranks)` candidates."""
    values = np.where(ranks.numpy() <= 10, 1.0 / ranks.numpy(), 0.0)
    mean = float(values.mean())
    half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return Retrieval(
        mrr_at_10=mean,
        recall_at_1=float((ranks == 1).float().mean()),
        interval=(max(0.0, mean - half), min(1.0, mean + half)),
        pool=len(values),
    )


def _candidates(document: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Return the usable (summary, body) pairs of one document, its title's first."""
    if not isinstance(document, str):
        return list(_usable([document]))
    paragraphs = split_paragraphs(document)
    sentences = [split_sentences(paragraph) for paragraph in paragraphs]
    found: list[tuple[str, str]] = []
    if len(paragraphs) > 1 and len(sentences[0]) == 1:
        found = list(_usable([(paragraphs[0], " ".join(paragraphs[1:]))]))
    if found:  # its paragraphs are in the body already
        return found
    return list(_usable((own[0], " ".join(own[1:])) for own in sentences if len(own) > 1))


def _usable(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Yield the pairs of usable lengths whose body does not give its summary away."""
    shortest, longest = SUMMARY_CHARACTERS
    for summary, body in pairs:
        fits = shortest <= len(summary) <= longest and len(body) >= FEWEST_BODY_CHARACTERS
        if fits and normalised(summary) and f" {normalised(summary)} " not in f" {normalised(body)} ":
            yield summary, body
