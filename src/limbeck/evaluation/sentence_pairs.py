"""Pairs of held-out sentences, over which the agreement of student and teacher is measured.

No model chooses them: they are neighbouring sentences of a document, sentences of one document further apart, and
sentences of two different documents.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.core.blocks import counted
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.corpus.text.words import words_of
from limbeck.errors import CorpusError

NEIGHBOURING = "neighbouring"
SAME_DOCUMENT = "same_document"
DIFFERENT_DOCUMENTS = "different_documents"
PAIR_KINDS = (NEIGHBOURING, SAME_DOCUMENT, DIFFERENT_DOCUMENTS)
SENTENCE_CHARACTERS = (20, 400)
"""Shortest and longest sentence used: shorter ones are headings and fragments, longer ones are lists."""
FEWEST_PAIRS = 50
_TRIES_PER_PAIR = 4
"""Draws of two documents for each pair that is wanted: small corpora run out of new pairs."""


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
        count: Largest number of pairs; a short text gives fewer.
        seed: Decides the choice: the same seed and documents give the same pairs.

    Returns:
        Pairs of distinct sentences, without repetition.

    Raises:
        CorpusError: if fewer than `FEWEST_PAIRS` (or `count`, where that is smaller) can be made.
    """
    rng = random.Random(seed)
    sentences_of = distinct_sentences(documents)
    # Indices of the documents that have sentences.
    order = [document for document, sentences in enumerate(sentences_of) if sentences]
    rng.shuffle(order)

    # Each kind gets an equal part, rounded up. A single document has no pairs of different documents.
    possible_kinds = 3 if len(order) > 1 else 2
    part = math.ceil(count / possible_kinds)
    neighbouring = _pairs_within(sentences_of, order, part, rng, NEIGHBOURING)
    same_document = _pairs_within(sentences_of, order, part, rng, SAME_DOCUMENT)

    # Short documents may give fewer pairs of the first two kinds than their part: different documents give the rest.
    missing = max(0, count - len(neighbouring) - len(same_document))
    different_documents = _pairs_between(sentences_of, order, missing, rng)
    pairs = (neighbouring + same_document + different_documents)[:count]
    check_enough(len(pairs), needed=min(FEWEST_PAIRS, count), noun="sentence pair", documents=len(documents))
    return pairs


def check_enough(
    pairs: int,
    *,
    needed: int,
    noun: str,
    documents: int,
    way_out: str = "raise corpus.held_out, or give more text",
) -> None:
    """Refuse held-out text that gives too few pairs for a figure.

    Args:
        pairs: Number of pairs that can be made.
        needed: Fewest pairs.
        noun: A pair in words, for the message.
        documents: Number of held-out documents.
        way_out: What the user can do, in words.

    Raises:
        CorpusError: for fewer pairs than needed.
    """
    if pairs < needed:
        raise CorpusError(
            f"Only {counted(pairs, noun)} can be made from {counted(documents, 'held-out document')}; at least "
            f"{needed} are needed: {way_out}."
        )


def text_of(document: str | tuple[str, str]) -> str:
    """Return a held-out document as one text; of title and body the title first."""
    if isinstance(document, str):
        return document
    title, body = document
    return f"{title}\n{body}"


def normalised(text: str) -> str:
    """Return a text as it is compared for duplicates: its words in lower case, without punctuation."""
    return " ".join(words_of(text))


def distinct_sentences(documents: Sequence[str]) -> list[list[str]]:
    """Return the usable sentences of each document; a sentence seen before, in any document, is dropped."""
    shortest, longest = SENTENCE_CHARACTERS
    seen: set[str] = set()
    sentences_of: list[list[str]] = []
    for document in documents:
        usable: list[str] = []
        for paragraph in split_paragraphs(document):
            for sentence in split_sentences(paragraph):
                key = normalised(sentence)
                has_usable_length = shortest <= len(sentence) <= longest
                if has_usable_length and key and key not in seen:
                    seen.add(key)
                    usable.append(sentence)
        sentences_of.append(usable)
    return sentences_of


def _pairs_within(
    sentences_of: Sequence[Sequence[str]], order: Sequence[int], most: int, rng: random.Random, kind: str
) -> list[SentencePair]:
    """Choose pairs of sentences of one document; each sentence is the first of at most one pair.

    The documents take turns with one pair each, so that a long document does not crowd out the others.

    Args:
        sentences_of: The sentences of each document, by the document's index.
        order: Indices of the documents, in the order of their turns.
        most: Largest number of pairs.
        rng: Draws sentences.
        kind: `NEIGHBOURING` for sentences with a distance of 1, or `SAME_DOCUMENT` for those with 2 or more.
    """
    are_neighbours = kind == NEIGHBOURING
    least_distance = 1 if are_neighbours else 2

    # Document to the indices, shuffled, of the sentences that can still be the first of a pair. The last sentences of a
    # document cannot: no sentence follows at the least distance.
    unused_firsts: dict[int, list[int]] = {}
    for document in order:
        first_sentences = list(range(len(sentences_of[document]) - least_distance))
        if first_sentences:
            rng.shuffle(first_sentences)
            unused_firsts[document] = first_sentences

    pairs: list[SentencePair] = []
    while unused_firsts and len(pairs) < most:
        missing_pairs = most - len(pairs)
        documents_of_round = list(unused_firsts)[:missing_pairs]
        for document in documents_of_round:
            sentences = sentences_of[document]
            first = unused_firsts[document].pop()
            if not unused_firsts[document]:
                del unused_firsts[document]
            nearest = first + least_distance
            farthest = nearest if are_neighbours else len(sentences) - 1
            second = rng.randint(nearest, farthest)
            pairs.append(SentencePair(sentences[first], sentences[second], kind=kind, document=document))
    return pairs


def _pairs_between(
    sentences_of: Sequence[Sequence[str]], order: Sequence[int], most: int, rng: random.Random
) -> list[SentencePair]:
    """Choose pairs of sentences of two different documents; no pair comes twice.

    Args:
        sentences_of: The sentences of each document, by the document's index.
        order: Indices of the documents that have sentences.
        most: Largest number of pairs.
        rng: Draws documents and sentences.
    """
    if len(order) < 2:
        return []
    pairs: dict[tuple[str, str], SentencePair] = {}
    for _ in range(_TRIES_PER_PAIR * most):
        if len(pairs) == most:
            break
        first_document, second_document = rng.sample(order, 2)
        first = rng.choice(sentences_of[first_document])
        second = rng.choice(sentences_of[second_document])
        # The same two sentences in the other order are the same pair.
        key = (first, second) if first <= second else (second, first)
        pairs.setdefault(key, SentencePair(first, second, kind=DIFFERENT_DOCUMENTS, document=first_document))
    return list(pairs.values())
