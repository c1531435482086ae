"""Retrieval: how well a model finds the body of a held-out document among all bodies, given its summary."""

import random
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core.records import Number, Retrieval
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.evaluation.agreement import check_enough, normalised
from limbeck.models.inference import Encoding, encode_both

SUMMARY_CHARACTERS = (20, 300)
"""Shortest and longest summary that is used."""
FEWEST_BODY_CHARACTERS = 60
FEWEST_RETRIEVAL_PAIRS = 20
ROLES = ("query", "document")
"""Of summaries and bodies, and of all that is searched: the prompts that they get."""


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
        count: Most pairs.
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
    check_enough(len(chosen), min(FEWEST_RETRIEVAL_PAIRS, count), "(summary, body)", len(documents))
    return chosen


def measure_retrieval(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], **encoding: Unpack[Encoding]
) -> Retrieval:
    """Return how well a model's summaries find their bodies among all bodies of `pairs`.

    Args:
        model: A loaded encoder.
        tokenizer: Its tokenizer.
        pairs: (summary, body), as `build_retrieval_pairs` gives them.
        encoding: As in `encode`; text beyond `max_length` is not read.
    """
    summaries, bodies = [summary for summary, _ in pairs], [body for _, body in pairs]
    return score_matches(*encode_both(model, tokenizer, summaries, bodies, ROLES, **encoding))


def score_matches(queries: Tensor, documents: Tensor) -> Retrieval:
    """Return how well queries find their documents among all of them.

    Args:
        queries: Vectors of length one, `[N, width]`.
        documents: Those of their documents, in the same order; they may be another model's of the same space.
    """
    return retrieval_scores(ranks_of_matches(queries @ documents.T))


def ranks_of_matches(scores: Tensor) -> Tensor:
    """Return the rank (1 is best) of each query's match: `scores[i, j]` is query i with body j, match i = j.

    Ties are counted against the model: a candidate that scores the same as the match ranks before it, so a
    model that gives every text the same vector gets the last rank, not the first. A NaN gets the last rank
    too.
    """
    own = scores.diagonal().unsqueeze(1)
    return (~(scores < own)).sum(1)


def retrieval_scores(ranks: Tensor) -> Retrieval:
    """Return the figures of a list of ranks, one a query, each out of `len(ranks)` candidates.

    Of one right body a query, nDCG is 1 / log2(1 + rank), and recall at 10 the share of ranks to 10.
    """
    at = ranks.numpy().astype(np.float64)
    mrr, ndcg, recall = (
        np.where(at <= 10, gain, 0.0) for gain in (1.0 / at, 1.0 / np.log2(1.0 + at), np.ones(len(at)))
    )
    return Retrieval(
        mrr_at_10=float(mrr.mean()),
        recall_at_1=float((at == 1).mean()),
        interval=_of_queries(mrr),
        pool=len(at),
        ndcg_at_10=float(ndcg.mean()),
        recall_at_10=float(recall.mean()),
        intervals={"ndcg_at_10": _of_queries(ndcg), "recall_at_10": _of_queries(recall)},
    )


def _of_queries(values: NDArray[np.float64]) -> list[Number | None]:
    """Return the 95 % interval of the mean of shares over queries, by the normal approximation; NaN of one query."""
    mean = float(values.mean())
    half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return [max(0.0, mean - half), min(1.0, mean + half)]


def _candidates(document: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Return the usable (summary, body) pairs of one document, its title's first."""
    if not isinstance(document, str):
        return list(_usable([document]))
    paragraphs = split_paragraphs(document)
    sentences = [split_sentences(paragraph) for paragraph in paragraphs]
    whole = [(paragraphs[0], " ".join(paragraphs[1:]))] if len(paragraphs) > 1 and len(sentences[0]) == 1 else []
    parts = ((own[0], " ".join(own[1:])) for own in sentences if len(own) > 1)
    return list(_usable(whole)) or list(_usable(parts))  # Of a whole document the parts are in the body already.


def _usable(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Yield the pairs of usable lengths whose body does not give its summary away."""
    shortest, longest = SUMMARY_CHARACTERS
    for summary, body in pairs:
        fits = shortest <= len(summary) <= longest and len(body) >= FEWEST_BODY_CHARACTERS
        if fits and normalised(summary) and f" {normalised(summary)} " not in f" {normalised(body)} ":
            yield summary, body
