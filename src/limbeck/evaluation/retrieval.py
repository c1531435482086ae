"""Retrieval: given a held-out document's summary, does a model find its body among all the bodies?

The pairs come from the text itself (a title or summary line and the text behind it; else a paragraph's first sentence
and its rest), so the figure measures each model by itself, teacher and student alike, without any label. Tasks of
retrieval, which have labels, are scored by `limbeck.evaluation.evaluators.document_search`.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core import intervals
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


def build_retrieval_pairs(
    documents: Sequence[str | tuple[str, str]], count: int = 700, *, seed: int = 0
) -> list[tuple[str, str]]:
    """Choose (summary, body) pairs from held-out documents.

    If a document begins with a paragraph of one sentence of a usable length, this is the summary, and the text after it
    is the body. Otherwise each paragraph of two or more sentences gives a pair: its first sentence and the rest. Every
    document gives its first pair before any gives a second one. A pair is dropped if the body contains the summary, or
    if either text was in an earlier pair.

    Args:
        documents: Plain texts, or (title, body) pairs where the corpus knows its titles.
        count: Largest number of pairs.
        seed: Decides the order of the documents: the same seed and documents give the same pairs.

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
    for pairs_of_turn in zip_longest(*candidates):
        for pair in pairs_of_turn:
            # A document that has no further pair has None in its place.
            if pair is not None:
                yield pair


def _candidates(document: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Return the usable (summary, body) pairs of one document: one of the whole document, else those of paragraphs."""
    if not isinstance(document, str):
        # A title and its body.
        return list(usable_pairs([document]))
    paragraphs = split_paragraphs(document)
    sentences_of_paragraphs = [split_sentences(paragraph) for paragraph in paragraphs]
    begins_with_summary = len(paragraphs) > 1 and len(sentences_of_paragraphs[0]) == 1
    if begins_with_summary:
        summary, *body = paragraphs
        pair_of_document = list(usable_pairs([(summary, " ".join(body))]))
        if pair_of_document:
            # The paragraphs are in the body of the whole document already.
            return pair_of_document

    pairs = []
    for sentences in sentences_of_paragraphs:
        if len(sentences) > 1:
            first, *rest = sentences
            pairs.append((first, " ".join(rest)))
    return list(usable_pairs(pairs))


def usable_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of usable lengths whose body does not give its summary away."""
    shortest, longest = SUMMARY_CHARACTERS
    for summary, body in pairs:
        has_usable_summary = shortest <= len(summary) <= longest
        has_usable_body = len(body) >= FEWEST_BODY_CHARACTERS
        if not has_usable_summary or not has_usable_body:
            continue
        # The spaces around both texts make sure that only whole words match.
        words = normalised(summary)
        is_given_away = f" {words} " in f" {normalised(body)} "
        if words and not is_given_away:
            yield summary, body


def measure_retrieval(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], **encoding: Unpack[Encoding]
) -> Retrieval:
    """Return how well a model's summaries find their bodies among all bodies of `pairs`.

    Args:
        model: A loaded encoder.
        tokenizer: The tokenizer of the model.
        pairs: (summary, body), as `build_retrieval_pairs` gives them.
        encoding: Arguments of `encode`; text beyond `max_length` tokens is not read.
    """
    summaries = [summary for summary, _ in pairs]
    bodies = [body for _, body in pairs]
    summary_vectors, body_vectors = encode_both(model, tokenizer, summaries, bodies, ROLES, **encoding)
    return score_matches(summary_vectors, body_vectors)


def score_matches(queries: Tensor, documents: Tensor) -> Retrieval:
    """Return how well queries find their documents among all of them.

    Args:
        queries: Vectors of length one, `[N, width]`.
        documents: Vectors of length one of their documents, in the same order; another model may have made them.
    """
    return retrieval_scores(ranks_of_matches(queries @ documents.T))


def ranks_of_matches(scores: Tensor) -> Tensor:
    """Return the rank of each query's match, 1 for the best, `[queries]`.

    Ties are counted against the model: a body with the same score as the match ranks before it, so a model that gives
    every text the same vector gets the last rank rather than the first. If a score is NaN, the body ranks before the
    match too.

    Args:
        scores: The score of query i with body j at `[i, j]`; the match of query i is body i.
    """
    matches = scores.diagonal().unsqueeze(1)  # [queries, 1]
    # `scores >= matches` would be false for NaN. The match counts itself, so that ranks begin with 1.
    is_before_or_match = ~(scores < matches)
    return is_before_or_match.sum(1)


def retrieval_scores(ranks: Tensor) -> Retrieval:
    """Return the figures of a list of ranks, one for each query, each among `len(ranks)` candidates.

    They are the scores of `score_places` with one relevant document for each query. Documents with the same score count
    as above it, which its rank says already.
    """
    rank_of_query = ranks.numpy().astype(np.int64)
    # The relevant document alone has its score, and its relevance is 1.
    equal = np.ones(1, np.int64)
    gains = np.ones(1)
    scores = [score_places(above=np.array([rank - 1]), equal=equal, gains=gains) for rank in rank_of_query]
    reciprocal_ranks = np.array([score.mrr_at_10 for score in scores])
    ndcgs = np.array([score.ndcg_at_10 for score in scores])
    recalls = np.array([score.recall_at_10 for score in scores])
    return Retrieval(
        mrr_at_10=float(reciprocal_ranks.mean()),
        recall_at_1=float((rank_of_query == 1).mean()),
        interval=_interval(reciprocal_ranks),
        pool=len(rank_of_query),
        ndcg_at_10=float(ndcgs.mean()),
        recall_at_10=float(recalls.mean()),
        intervals={"ndcg_at_10": _interval(ndcgs), "recall_at_10": _interval(recalls)},
    )


def _interval(values: NDArray[np.float64]) -> list[Number | None]:
    """Return the 95 % interval of the mean of values from 0 to 1 over queries; see `intervals.of_mean_share`."""
    ends = intervals.of_mean_share(values.tolist())
    if ends is None:
        return [None, None]
    return list(ends)
