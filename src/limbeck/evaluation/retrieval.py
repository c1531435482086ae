"""Retrieval: given a held-out document's summary, does a model find its body among all the bodies?

The pairs come from the text itself (a title or summary line and the text behind it; else a paragraph's first sentence
and its rest), so the figure measures each model by itself, teacher and student alike, without any label.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core.records import Number, Retrieval
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.evaluation.sentence_pairs import check_enough, normalised
from limbeck.kinds.ranking_scores import score_places
from limbeck.models.inference import Encoding, encode_both

SUMMARY_CHARACTERS = (20, 300)
"""Shortest and longest summary that is used."""
FEWEST_BODY_CHARACTERS = 60
FEWEST_RETRIEVAL_PAIRS = 20
ROLES = ("query", "document")
"""Of summaries and bodies, and of all that is searched: the prompts that they get."""
_Z = 1.96
"""Standard errors within which 95 % of a normal distribution lie."""


def build_retrieval_pairs(
    documents: Sequence[str | tuple[str, str]], count: int = 700, *, seed: int = 0
) -> list[tuple[str, str]]:
    """Choose (summary, body) pairs from held-out documents.

    A document's first paragraph is its summary when it is one sentence of a usable length; the text behind it is
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
        CorpusError: if fewer than `FEWEST_RETRIEVAL_PAIRS` (or `count`, where that is smaller) can be made.
    """
    rng = random.Random(seed)
    order = list(range(len(documents)))
    rng.shuffle(order)
    candidates = [_candidates(documents[index]) for index in order]
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    for summary, body in _in_turns(candidates):
        if len(pairs) == count:
            break
        keys = {normalised(summary), normalised(body)}
        if keys.isdisjoint(seen):
            seen.update(keys)
            pairs.append((summary, body))
    check_enough(
        len(pairs), needed=min(FEWEST_RETRIEVAL_PAIRS, count), noun="(summary, body) pair", documents=len(documents)
    )
    return pairs


def _in_turns(candidates: Sequence[Sequence[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the first pair of every document, then the second of every one, and so on."""
    for turn in zip_longest(*candidates):
        for pair in turn:
            if pair is not None:
                yield pair


def _candidates(document: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Return the usable (summary, body) pairs of one document, its title's first."""
    if not isinstance(document, str):
        return list(_usable([document]))
    paragraphs = split_paragraphs(document)
    sentences_of_paragraphs = [split_sentences(paragraph) for paragraph in paragraphs]
    if len(paragraphs) > 1 and len(sentences_of_paragraphs[0]) == 1:
        whole_document = list(_usable([(paragraphs[0], " ".join(paragraphs[1:]))]))
        if whole_document:
            # The paragraphs are in the body of the whole document already.
            return whole_document
    pairs = [(sentences[0], " ".join(sentences[1:])) for sentences in sentences_of_paragraphs if len(sentences) > 1]
    return list(_usable(pairs))


def _usable(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of usable lengths whose body does not give its summary away."""
    shortest, longest = SUMMARY_CHARACTERS
    for summary, body in pairs:
        if not shortest <= len(summary) <= longest or len(body) < FEWEST_BODY_CHARACTERS:
            continue
        # With spaces around, only whole words are found.
        words = normalised(summary)
        if words and f" {words} " not in f" {normalised(body)} ":
            yield summary, body


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
    summaries = [summary for summary, _ in pairs]
    bodies = [body for _, body in pairs]
    summary_vectors, body_vectors = encode_both(model, tokenizer, summaries, bodies, ROLES, **encoding)
    return score_matches(summary_vectors, body_vectors)


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
    matches = scores.diagonal().unsqueeze(1)
    # Not `>=`, which a NaN is neither.
    ranks_before_or_equal = ~(scores < matches)
    return ranks_before_or_equal.sum(1)


def retrieval_scores(ranks: Tensor) -> Retrieval:
    """Return the figures of a list of ranks, one a query, each out of `len(ranks)` candidates.

    They are those of `score_places`, with one relevant document a query.
    """
    places = ranks.numpy().astype(np.int64)
    alone = np.ones(1, np.int64)
    gain = np.ones(1)
    scores = [score_places(above=np.array([rank - 1]), equal=alone, gains=gain) for rank in places]
    reciprocal_ranks = np.array([score.mrr_at_10 for score in scores])
    ndcgs = np.array([score.ndcg_at_10 for score in scores])
    recalls = np.array([score.recall_at_10 for score in scores])
    return Retrieval(
        mrr_at_10=float(reciprocal_ranks.mean()),
        recall_at_1=float((places == 1).mean()),
        interval=_interval(reciprocal_ranks),
        pool=len(places),
        ndcg_at_10=float(ndcgs.mean()),
        recall_at_10=float(recalls.mean()),
        intervals={"ndcg_at_10": _interval(ndcgs), "recall_at_10": _interval(recalls)},
    )


def _interval(values: NDArray[np.float64]) -> list[Number | None]:
    """Return the 95 % interval of the mean of shares over queries, by the normal approximation; NaN of one query."""
    mean = float(values.mean())
    half = float("nan")
    if len(values) > 1:
        half = _Z * float(values.std(ddof=1)) / len(values) ** 0.5
    return [max(0.0, mean - half), min(1.0, mean + half)]
