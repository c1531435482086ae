"""Agreement: does the student order the similarities of held-out sentence pairs as its teacher does?

The figure is Spearman's correlation between the teacher's and the student's cosine similarity over sentence
pairs that no model chose: neighbouring sentences of a document, sentences of one document further apart, and
sentences of two different documents. It says how faithful the student is, not how good either model is.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limbeck.core.records import Agreement, Disagreement, Number
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.corpus.text.words import words_of
from limbeck.errors import CorpusError
from limbeck.evaluation.similarities import Similarities, spearman_agreement

NEIGHBOURING = "neighbouring"
SAME_DOCUMENT = "same_document"
DIFFERENT_DOCUMENTS = "different_documents"
PAIR_KINDS = (NEIGHBOURING, SAME_DOCUMENT, DIFFERENT_DOCUMENTS)
_WORDS_OF_KIND = {
    NEIGHBOURING: "neighbours",
    SAME_DOCUMENT: "one document",
    DIFFERENT_DOCUMENTS: "two documents",
}
SENTENCE_CHARACTERS = (20, 400)
"""Shortest and longest sentence used: shorter ones are headings and fragments, longer ones are lists."""
FEWEST_PAIRS = 50
FEWEST_DOCUMENTS = 5
"""Fewest documents whose agreement has an interval."""
_RESAMPLES = 500
_TRIES_PER_PAIR = 4
"""Draws of two documents for each pair that is wanted: small corpora run out of new pairs."""
_EXAMPLES = 10
_MOST_LETTERS = 300


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

    # Each kind gets an equal part, rounded up. One document alone has no pairs of different documents.
    kinds = 3 if len(order) > 1 else 2
    part = math.ceil(count / kinds)
    neighbouring = _pairs_within(texts, order, part, rng, NEIGHBOURING)
    same_document = _pairs_within(texts, order, part, rng, SAME_DOCUMENT)

    # Pairs of different documents fill the places that the other two kinds left.
    missing = max(0, count - len(neighbouring) - len(same_document))
    different_documents = _pairs_between(texts, order, missing, rng)
    pairs = (neighbouring + same_document + different_documents)[:count]
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
        source = f"{documents} held-out document{'s' * (documents != 1)}"
        pairs = f"{kind} pair{'s' * (made != 1)}"
        raise CorpusError(
            f"Only {made} {pairs} can be made from {source}; {needed} are needed: hold out more text (corpus.held_out)."
        )


def measure_agreement(
    pairs: Sequence[SentencePair],
    student_similarities: Similarities,
    teacher_similarities: Similarities,
    *,
    seed: int = 0,
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
    by_kind: dict[str, Number | None] = {}
    for kind in PAIR_KINDS:
        is_kind = kinds == kind
        by_kind[kind] = spearman_agreement(student[is_kind], teacher[is_kind])
    rows_of_document: dict[int, list[int]] = {}
    for row, pair in enumerate(pairs):
        rows_of_document.setdefault(pair.document, []).append(row)
    groups = [np.array(rows) for rows in rows_of_document.values()]
    return Agreement(
        spearman=spearman_agreement(student, teacher),
        interval=_interval(student, teacher, groups, seed),
        by_kind=by_kind,
        pairs=len(pairs),
        documents=len(groups),
        seed=seed,
    )


def furthest_pairs(
    pairs: Sequence[SentencePair], student_similarities: Similarities, teacher_similarities: Similarities
) -> list[Disagreement]:
    """Return the pairs whose places in the orders of student and teacher are furthest apart, ten at most.

    Args:
        pairs: As `build_pairs` gives them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
    """
    student = np.asarray(student_similarities, np.float64)
    teacher = np.asarray(teacher_similarities, np.float64)
    student_places = _places(student)
    teacher_places = _places(teacher)
    distances = np.abs(student_places - teacher_places)
    furthest = []
    for index in np.argsort(-distances, kind="stable")[:_EXAMPLES].tolist():
        if distances[index] > 0:
            pair = pairs[index]
            furthest.append(
                Disagreement(
                    text=pair.first[:_MOST_LETTERS],
                    pair=pair.second[:_MOST_LETTERS],
                    label=_WORDS_OF_KIND[pair.kind],
                    student=f"{student[index]:.2f}, more than {student_places[index]:.0%} of pairs",
                    teacher=f"{teacher[index]:.2f}, more than {teacher_places[index]:.0%} of pairs",
                    distance=round(float(distances[index]), 6),
                )
            )
    return furthest


def _places(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of pairs below each, 0 to 1; of equals all have the mean."""
    from scipy.stats import rankdata  # As in `similarities`.

    return np.asarray((rankdata(similarities) - 1) / max(len(similarities) - 1, 1))


def normalised(text: str) -> str:
    """Return a text as it is compared for duplicates: its words in lower case, without punctuation."""
    return " ".join(words_of(text))


def _distinct_sentences(documents: Sequence[str]) -> list[list[str]]:
    """Return the usable sentences of each document; a sentence seen before, in any document, is dropped."""
    shortest, longest = SENTENCE_CHARACTERS
    seen: set[str] = set()
    texts: list[list[str]] = []
    for document in documents:
        usable: list[str] = []
        for paragraph in split_paragraphs(document):
            for sentence in split_sentences(paragraph):
                key = normalised(sentence)
                if shortest <= len(sentence) <= longest and key and key not in seen:
                    seen.add(key)
                    usable.append(sentence)
        texts.append(usable)
    return texts


def _pairs_within(
    texts: Sequence[Sequence[str]], order: Sequence[int], most: int, rng: random.Random, kind: str
) -> list[SentencePair]:
    """Choose pairs of sentences of one document.

    Goes round the documents, one pair each time, so that a long document does not crowd out the others.

    Args:
        texts: The sentences of each document.
        order: Of the documents.
        most: Most pairs.
        rng: Draws sentences.
        kind: `NEIGHBOURING`, or `SAME_DOCUMENT` for sentences further apart.
    """
    nearest = 1 if kind == NEIGHBOURING else 2
    free: dict[int, list[int]] = {}  # Document to its first sentences that are not used yet, shuffled.
    for document in order:
        starts = list(range(len(texts[document]) - nearest))
        if starts:
            rng.shuffle(starts)
            free[document] = starts

    pairs: list[SentencePair] = []
    while free and len(pairs) < most:
        for document in list(free)[: most - len(pairs)]:
            sentences = texts[document]
            first = free[document].pop()
            if not free[document]:
                del free[document]
            last = first + 1 if kind == NEIGHBOURING else len(sentences) - 1
            second = rng.randint(first + nearest, last)
            pairs.append(SentencePair(sentences[first], sentences[second], kind, document))
    return pairs


def _pairs_between(
    texts: Sequence[Sequence[str]], order: Sequence[int], most: int, rng: random.Random
) -> list[SentencePair]:
    """Choose different pairs of sentences of two different documents.

    Args:
        texts: The sentences of each document.
        order: The documents that have sentences.
        most: Most pairs.
        rng: Draws documents and sentences.
    """
    if len(order) < 2:
        return []
    pairs: dict[tuple[str, str], SentencePair] = {}
    for _ in range(_TRIES_PER_PAIR * most):
        if len(pairs) == most:
            break
        left, right = rng.sample(order, 2)
        first = rng.choice(texts[left])
        second = rng.choice(texts[right])
        key = (first, second) if first <= second else (second, first)
        pairs.setdefault(key, SentencePair(first, second, DIFFERENT_DOCUMENTS, left))
    return list(pairs.values())


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
        rows = np.concatenate([groups[index] for index in rng.integers(len(groups), size=len(groups))])
        values.append(spearman_agreement(student[rows], teacher[rows]))
    defined = [value for value in values if not np.isnan(value)] or [float("nan")]
    return [float(value) for value in np.percentile(defined, [2.5, 97.5])]
