"""Agreement: does the student order the similarities of held-out sentence pairs as its teacher does?

The figure is Spearman's correlation between the teacher's and the student's cosine similarity over sentence
pairs that no model chose: neighbouring sentences of a document, sentences of one document further apart, and
sentences of two different documents. It says how faithful the student is, not how good either model is.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core.records import Agreement, Disagreement, Number, Retrieval
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation.inference import spearman_agreement
from limbeck.models.inference import Encoding, encode_both

PAIR_KINDS = ("neighbouring", "same_document", "different_documents")
SENTENCE_CHARACTERS = (20, 400)
"""Shortest and longest sentence used: shorter ones are headings and fragments, longer ones are lists."""
FEWEST_PAIRS = 50
FEWEST_DOCUMENTS = 5
"""Fewest documents whose agreement has an interval."""
_RESAMPLES = 500
_APART: dict[str, tuple[int, int | None]] = {"neighbouring": (1, 1), "same_document": (2, None)}
"""Nearest and furthest second sentence of a pair of one document."""


@dataclass(frozen=True)
class SentencePair:
    """Two held-out sentences.

    Attributes:
        first: A sentence.
        second: Another sentence.
        kind: One of `PAIR_KINDS`.
        document: Index of the document that `first` is from.
    """

    first: str
    second: str
    kind: str
    document: int


def build_pairs(documents: Sequence[str], count: int = 1500, *, seed: int = 0) -> list[SentencePair]:
    """Choose sentence pairs from held-out documents: equally many of each kind, over as many documents as can be.

    Args:
        documents: Plain text documents that neither model was trained on in this run.
        count: Most pairs; fewer where the text has no more.
        seed: Same seed and documents, same pairs.

    Returns:
        Pairs of distinct sentences, without repetition.

    Raises:
        CorpusError: if fewer than `FEWEST_PAIRS` (or `count`, where that is smaller) can be made.
    """
    rng = random.Random(seed)
    texts = _distinct_sentences(documents)
    order = [index for index, sentences in enumerate(texts) if sentences]
    rng.shuffle(order)
    kinds = len(PAIR_KINDS if len(order) > 1 else _APART)
    quota = -(-count // kinds)
    neighbouring, apart = (_pairs_within(texts, order, quota, rng, kind) for kind in _APART)
    between = _pairs_between(texts, order, count - min(count, len(neighbouring) + len(apart)), rng)
    pairs = [*neighbouring, *apart, *between][:count]
    _check_enough(len(pairs), min(FEWEST_PAIRS, count), "sentence", len(documents))
    return pairs


def _check_enough(made: int, needed: int, kind: str, documents: int) -> None:
    if made < needed:
        read = f"{documents} held-out document{'s' * (documents != 1)}"
        pairs = f"{kind} pair{'s' * (made != 1)}"
        raise CorpusError(
            f"Only {made} {pairs} can be made from {read}; {needed} are needed: hold out more text (corpus.held_out)."
        )


def measure_agreement(
    pairs: Sequence[SentencePair], student_similarities: ArrayLike, teacher_similarities: ArrayLike, *, seed: int = 0
) -> Agreement:
    """Return the Spearman agreement over `pairs` with its interval and its parts.

    The interval is a percentile bootstrap that resamples documents, not pairs: the pairs of one document are
    alike. Fewer than `FEWEST_DOCUMENTS` documents give none: resampling one document always gives the same pairs.

    Args:
        pairs: As `build_pairs` gives them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
        seed: Of the resampling.
    """
    student = np.asarray(student_similarities, np.float64)
    teacher = np.asarray(teacher_similarities, np.float64)
    kinds = np.array([pair.kind for pair in pairs])
    members = {kind: kinds == kind for kind in PAIR_KINDS}
    groups: dict[int, list[int]] = {}
    for row, pair in enumerate(pairs):
        groups.setdefault(pair.document, []).append(row)
    return Agreement(
        spearman=spearman_agreement(student, teacher),
        interval=_interval(student, teacher, [np.array(rows) for rows in groups.values()], seed),
        by_kind={kind: spearman_agreement(student[rows], teacher[rows]) for kind, rows in members.items()},
        pairs=len(pairs),
        documents=len(groups),
        seed=seed,
    )


_EXAMPLES, _MOST_LETTERS = 10, 300
_KINDS = {
    "neighbouring": "neighbours",
    "same_document": "one document",
    "different_documents": "two documents",
}


def furthest_pairs(
    pairs: Sequence[SentencePair], student_similarities: ArrayLike, teacher_similarities: ArrayLike
) -> list[Disagreement]:
    """Return the pairs whose places in the orders of student and teacher are furthest apart, ten at most.

    Args:
        pairs: As `build_pairs` gives them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
    """
    from scipy.stats import rankdata  # As in `inference`.

    both = [np.asarray(values, np.float64) for values in (student_similarities, teacher_similarities)]
    student, teacher = ((rankdata(values) - 1) / max(len(pairs) - 1, 1) for values in both)
    apart = np.abs(student - teacher)

    def said(model: int, index: int, place: float) -> str:
        return f"{both[model][index]:.2f}, more than {place:.0%} of pairs"

    return [
        Disagreement(
            text=pairs[index].first[:_MOST_LETTERS],
            pair=pairs[index].second[:_MOST_LETTERS],
            label=_KINDS[pairs[index].kind],
            student=said(0, index, student[index]),
            teacher=said(1, index, teacher[index]),
            distance=round(float(apart[index]), 6),
        )
        for index in np.argsort(-apart, kind="stable")[:_EXAMPLES].tolist()
        if apart[index] > 0
    ]


def normalised(text: str) -> str:
    """Return `text` as it is compared for duplicates: case-folded, only letters and digits, single spaces."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


def _distinct_sentences(documents: Sequence[str]) -> list[list[str]]:
    """Return the usable sentences of each document; a sentence seen before, in any document, is dropped."""
    seen: set[str] = set()
    texts: list[list[str]] = []
    shortest, longest = SENTENCE_CHARACTERS
    for document in documents:
        kept: list[str] = []
        for sentence in (s for paragraph in split_paragraphs(document) for s in split_sentences(paragraph)):
            key = normalised(sentence)
            if shortest <= len(sentence) <= longest and key and key not in seen:
                seen.add(key)
                kept.append(sentence)
        texts.append(kept)
    return texts


def _pairs_within(
    texts: Sequence[Sequence[str]], order: Sequence[int], quota: int, rng: random.Random, kind: str
) -> list[SentencePair]:
    """Choose up to `quota` pairs of sentences of one document, as far apart as their kind says.

    Goes round the documents, one pair each time, so that a long document does not crowd out the others.
    """
    nearest, furthest = _APART[kind]
    free: dict[int, list[int]] = {}  # document -> first sentences not used yet, shuffled
    for document in order:
        starts = list(range(len(texts[document]) - nearest))
        if starts:
            rng.shuffle(starts)
            free[document] = starts
    chosen: list[SentencePair] = []
    while free and len(chosen) < quota:
        for document in list(free)[: quota - len(chosen)]:
            first = free[document].pop()
            if not free[document]:
                del free[document]
            last = len(texts[document]) - 1 if furthest is None else first + furthest
            second = rng.randint(first + nearest, last)
            chosen.append(SentencePair(texts[document][first], texts[document][second], kind, document))
    return chosen


def _pairs_between(
    texts: Sequence[Sequence[str]], order: Sequence[int], quota: int, rng: random.Random
) -> list[SentencePair]:
    """Choose up to `quota` different pairs of sentences of two different documents."""
    chosen: dict[tuple[str, str], SentencePair] = {}
    if len(order) < 2:
        return []
    for _ in range(4 * quota):  # an upper bound: small corpora run out of new pairs
        if len(chosen) == quota:
            break
        left, right = rng.sample(order, 2)
        first, second = rng.choice(texts[left]), rng.choice(texts[right])
        key = (first, second) if first <= second else (second, first)
        chosen.setdefault(key, SentencePair(first, second, "different_documents", left))
    return list(chosen.values())


def _interval(
    student: NDArray[np.float64], teacher: NDArray[np.float64], groups: Sequence[NDArray[np.int64]], seed: int
) -> list[float | None] | None:
    """Return Spearman's 2.5th and 97.5th percentile over resampled groups of rows; NaN where undefined.

    None for fewer than `FEWEST_DOCUMENTS` groups.
    """
    if len(groups) < FEWEST_DOCUMENTS:
        return None
    rng = np.random.default_rng(seed)
    values: list[float] = []
    for _ in range(_RESAMPLES):
        rows = np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])
        values.append(spearman_agreement(student[rows], teacher[rows]))
    defined = [value for value in values if not np.isnan(value)] or [float("nan")]
    return [float(value) for value in np.percentile(defined, [2.5, 97.5])]


# Retrieval: given a held-out document's summary, does a model find its body among all the bodies?
#
# The pairs come from the text itself (a title or summary line and what follows; else a paragraph's first sentence and
# its rest), so the figure measures each model on its own, teacher and student alike, without any label.


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
    _check_enough(len(chosen), min(FEWEST_RETRIEVAL_PAIRS, count), "(summary, body)", len(documents))
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
