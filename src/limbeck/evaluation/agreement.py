"""Agreement: does the student order the similarities of held-out sentence pairs as its teacher does?

The figure is Spearman's correlation between the teacher's and the student's cosine similarity over sentence
pairs that no model chose: neighbouring sentences of a document, sentences of one document further apart, and
sentences of two different documents. It says how faithful the student is, not how good either model is.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.core.records import Agreement, Disagreement
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation.similarities import spearman_agreement

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
    check_enough(len(pairs), min(FEWEST_PAIRS, count), "sentence", len(documents))
    return pairs


def check_enough(made: int, needed: int, kind: str, documents: int) -> None:
    """Refuse held-out text that gives too few pairs for a figure.

    Args:
        made: Pairs that were made.
        needed: Fewest pairs.
        kind: The pairs in words, for the message.
        documents: Held-out documents.

    Raises:
        CorpusError: for fewer pairs than needed.
    """
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
    from scipy.stats import rankdata  # As in `similarities`.

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
