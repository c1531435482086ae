"""Sentences that search the passages they were taken from: the retrieval of a teacher and its student.

A *passage* is a stretch of a paragraph without one of its sentences, and that sentence is its query. Passages of one
document stand beside each other, since they are the hardest to tell apart. The pool *grows* until the search is hard
enough for the teacher: a search that the teacher always wins does not tell students apart.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.core.records import Retrieval
from limbeck.core.records.run_evaluation import SATURATED, SENTENCE_IN_PASSAGES, SUMMARY_IN_BODIES
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation.retrieval import (
    FEWEST_RETRIEVAL_PAIRS,
    build_retrieval_pairs,
    score_matches,
    usable_pairs,
)
from limbeck.evaluation.sentence_pairs import check_enough, normalised

FIRST_POOL = 500
"""Passages that the first search is among; a pool that is too easy is doubled."""
_SENTENCES_OF_PASSAGE = 5
"""Most sentences of a passage, its query among them: about as many as 128 tokens hold."""
_PASSAGES_IN_TURN = 10
"""Passages that a document gives in its turn, which stand beside each other in the pool."""

Pair = tuple[str, str]
"""A query and its passage."""


class SearchPairs(NamedTuple):
    """Queries with the texts that they look for, and the name of the measure that they are for.

    Attributes:
        pairs: The queries and their texts.
        measure: `SENTENCE_IN_PASSAGES` or `SUMMARY_IN_BODIES`.
    """

    pairs: Sequence[Pair]
    measure: str


def build_search_pairs(documents: Sequence[str | Pair], count: int = 2000, *, seed: int = 0) -> SearchPairs:
    """Choose (sentence, passage) pairs, or (summary, body) pairs of text whose paragraphs have a sentence each.

    The arguments are those of `build_passage_pairs`.

    Raises:
        CorpusError: if there are too few of both.
    """
    try:
        return SearchPairs(build_passage_pairs(documents, count, seed=seed), SENTENCE_IN_PASSAGES)
    except CorpusError:
        with suppress(CorpusError):
            return SearchPairs(build_retrieval_pairs(documents, count, seed=seed), SUMMARY_IN_BODIES)
        # There are too few summaries and bodies as well. The error is on passages, which were looked for first.
        raise


def build_passage_pairs(documents: Sequence[str | Pair], count: int = 2000, *, seed: int = 0) -> list[Pair]:
    """Choose (sentence, passage) pairs from held-out documents.

    A passage is up to five sentences of a paragraph, one of which, drawn at random, is taken out as the query.
    Documents take turns with up to ten passages each. A pair is dropped if the passage contains its query, or if either
    text was in an earlier pair.

    Args:
        documents: Plain texts, or (title, body) pairs where the corpus knows its titles.
        count: Largest number of pairs.
        seed: Decides the order of the documents and the queries.

    Returns:
        The pairs, with distinct queries and distinct passages. The first ones are those of a smaller `count`.

    Raises:
        CorpusError: if fewer than `FEWEST_RETRIEVAL_PAIRS` (or `count`, where that is smaller) can be made.
    """
    rng = random.Random(seed)
    order = list(range(len(documents)))
    rng.shuffle(order)
    candidates = [_pairs_of(documents[index], rng) for index in order]
    pairs: list[Pair] = []
    chosen_texts: set[str] = set()
    for query, passage in _in_turns(candidates):
        if len(pairs) == count:
            break
        texts = {normalised(query), normalised(passage)}
        if texts.isdisjoint(chosen_texts):
            chosen_texts.update(texts)
            pairs.append((query, passage))

    needed = min(FEWEST_RETRIEVAL_PAIRS, count)
    check_enough(
        len(pairs),
        needed=needed,
        noun="(sentence, passage) pair",
        documents=len(documents),
        way_out="give text whose paragraphs have several sentences, or raise corpus.held_out",
    )
    return pairs


def _pairs_of(document: str | Pair, rng: random.Random) -> list[Pair]:
    """Return the usable pairs of a document, in the order of its text."""
    if isinstance(document, str):
        text = document
    else:
        _, text = document
    pairs: list[Pair] = []
    for paragraph in split_paragraphs(text):
        sentences = split_sentences(paragraph)
        for start in range(0, len(sentences), _SENTENCES_OF_PASSAGE):
            passage = sentences[start : start + _SENTENCES_OF_PASSAGE]
            # One of the sentences becomes the query, so a passage of a single sentence would be empty.
            if len(passage) < 2:
                continue
            query = passage.pop(rng.randrange(len(passage)))
            pairs.append((query, " ".join(passage)))
    return list(usable_pairs(pairs))


def _in_turns(candidates: Sequence[Sequence[Pair]]) -> Iterator[Pair]:
    """Yield the first pairs of every document, then its next ones, and so on."""
    longest = max((len(pairs) for pairs in candidates), default=0)
    for start in range(0, longest, _PASSAGES_IN_TURN):
        for pairs in candidates:
            yield from pairs[start : start + _PASSAGES_IN_TURN]


@dataclass(frozen=True)
class Pool:
    """The pairs of a search, and the teacher's vectors of them.

    Args:
        pairs: Queries and their passages.
        queries: Vectors of the queries, `[pairs, width]`.
        passages: Vectors of the passages, `[pairs, width]`.
        figures: The teacher's figures.
    """

    pairs: Sequence[Pair]
    queries: Tensor
    passages: Tensor
    figures: Retrieval


def grow_pool(search: SearchPairs, encode: Callable[[Sequence[Pair]], tuple[Tensor, Tensor]]) -> Pool:
    """Search in the first pairs, and double them until the teacher's MRR@10 is at most `SATURATED` or none are left.

    Args:
        search: All pairs, as `build_search_pairs` gives them.
        encode: Returns the teacher's vectors of queries and passages, of length one; it gets each pair once.
    """
    pairs = search.pairs
    size = min(FIRST_POOL, len(pairs))
    queries, passages = encode(pairs[:size])
    while True:
        figures = score_passages(queries, passages, search.measure)
        mrr = figures.mrr_at_10
        is_hard_enough = mrr is not None and mrr <= SATURATED
        if is_hard_enough or size == len(pairs):
            return Pool(pairs[:size], queries, passages, figures)
        larger = min(2 * size, len(pairs))
        new_queries, new_passages = encode(pairs[size:larger])
        queries = torch.cat([queries, new_queries])
        passages = torch.cat([passages, new_passages])
        size = larger


def score_passages(queries: Tensor, passages: Tensor, measure: str) -> Retrieval:
    """Return how well queries find their passages, as `score_matches`, under the name of the measure."""
    figures = score_matches(queries, passages)
    figures.measure = measure
    return figures
