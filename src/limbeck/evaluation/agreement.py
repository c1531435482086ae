"""Agreement: does the student order the similarities of held-out sentence pairs as its teacher does?

The figure is Spearman's correlation between the teacher's and the student's cosine similarity over sentence
pairs that no model chose: neighbouring sentences of a document, sentences of one document further apart, and
sentences of two different documents. It says how faithful the student is, not how good either model is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation.normalising import normalised
from limbeck.evaluation.sentence_vectors import spearman_agreement

PAIR_KINDS = ("neighbouring", "same_document", "different_documents")
SENTENCE_CHARACTERS = (20, 400)
"""Shortest and longest sentence used: shorter ones are headings and fragments, longer ones are lists."""
FEWEST_PAIRS = 50


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


@dataclass(frozen=True)
class Agreement:
    """Spearman agreement of a student with its teacher.

    Attributes:
        spearman: Over all pairs; depends on the mixture of kinds, so compare it only between equal pair sets.
        interval: Its 95 % interval, by resampling documents.
        by_kind: The same within each kind of pair, NaN where undefined.
        pairs: How many pairs.
        documents: How many documents they are from.
        seed: Of the choice of pairs and of the resampling.
    """

    spearman: float
    interval: tuple[float, float]
    by_kind: dict[str, float]
    pairs: int
    documents: int
    seed: int


def build_pairs(documents: Sequence[str], count: int = 1500, *, seed: int = 0) -> list[SentencePair]:
    """Choose sentence pairs from held-out documents: a third of each kind, over as many documents as can be.

    Args:
        documents: Plain text documents that neither model was trained on in this run.
        count: How many pairs at most; fewer where the text has no more.
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
    quota = -(-count // len(PAIR_KINDS))
    neighbouring = _pairs_within(texts, order, quota, rng, kind="neighbouring", nearest=1, furthest=1)
    apart = _pairs_within(texts, order, quota, rng, kind="same_document", nearest=2, furthest=None)
    between = _pairs_between(texts, order, count - min(count, len(neighbouring) + len(apart)), rng)
    pairs = [*neighbouring, *apart, *between][:count]
    if len(pairs) < min(FEWEST_PAIRS, count):
        raise CorpusError(
            f"Only {len(pairs)} sentence pairs can be made from {len(documents)} held-out documents; "
            f"{min(FEWEST_PAIRS, count)} are needed: hold out more text."
        )
    return pairs


def measure_agreement(
    pairs: Sequence[SentencePair],
    student_similarities: ArrayLike,
    teacher_similarities: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = 500,
) -> Agreement:
    """Return the Spearman agreement over `pairs` with its interval and its parts.

    The interval is a percentile bootstrap that resamples documents, not pairs: the pairs of one document are
    alike.

    Args:
        pairs: As `build_pairs` gives them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
        seed: Of the resampling.
        resamples: How many.
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
        interval=_interval(student, teacher, [np.array(rows) for rows in groups.values()], seed, resamples),
        by_kind={kind: spearman_agreement(student[rows], teacher[rows]) for kind, rows in members.items()},
        pairs=len(pairs),
        documents=len(groups),
        seed=seed,
    )


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
    texts: Sequence[Sequence[str]],
    order: Sequence[int],
    quota: int,
    rng: random.Random,
    *,
    kind: str,
    nearest: int,
    furthest: int | None,
) -> list[SentencePair]:
    """Choose up to `quota` pairs of sentences of one document that are `nearest`..`furthest` sentences apart.

    Goes round the documents, one pair each time, so that a long document does not crowd out the others.
    """
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
    student: NDArray[np.float64],
    teacher: NDArray[np.float64],
    groups: Sequence[NDArray[np.int64]],
    seed: int,
    resamples: int,
) -> tuple[float, float]:
    """Return Spearman's 2.5th and 97.5th percentile over resampled groups of rows; NaN where undefined."""
    rng = np.random.default_rng(seed)
    values: list[float] = []
    for _ in range(resamples):
        rows = np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])
        values.append(spearman_agreement(student[rows], teacher[rows]))
    defined = np.array([value for value in values if not np.isnan(value)])
    if len(defined) == 0:
        return (float("nan"), float("nan"))
    low, high = np.percentile(defined, [2.5, 97.5])
    return (float(low), float(high))
