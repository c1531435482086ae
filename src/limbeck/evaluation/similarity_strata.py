"""Pairs of held-out sentences that are spread evenly over the teacher's similarities.

Most pairs of sentences have nothing in common, and nearly every model puts these below the others. The order of the
near ones is what a user of sentence vectors sees, so near pairs count as much as far ones here.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.evaluation.sentence_pairs import (
    DIFFERENT_DOCUMENTS,
    FEWEST_PAIRS,
    NEIGHBOURING,
    SAME_DOCUMENT,
    SentencePair,
    check_enough,
    distinct_sentences,
)

STRATIFIED_SIMILARITIES = "stratified_similarities"
"""Name of the measure in records. Records without a name have the older one, over pairs that no model chose."""
MOST_SENTENCES = 1500
"""Most sentences whose pairs are chosen from; they give a million pairs."""
STRATA = 5
"""Ranges of the teacher's similarity, equally wide, that give equally many pairs."""
_SENTENCES_IN_TURN = 10
"""Neighbouring sentences that a document gives in its turn."""


@dataclass(frozen=True)
class HeldOutSentence:
    """A held-out sentence and its place.

    Args:
        text: The sentence.
        document: Index of its document.
        place: Its number among the usable sentences of the document.
    """

    text: str
    document: int
    place: int


def choose_sentences(documents: Sequence[str], pairs: int, *, seed: int = 0) -> list[HeldOutSentence]:
    """Choose distinct sentences from held-out documents, which take turns with ten neighbouring ones each.

    Args:
        documents: Plain texts.
        pairs: Number of pairs that are wanted; there are at most as many sentences.
        seed: Decides the order of the documents.

    Raises:
        CorpusError: if the sentences have fewer than `FEWEST_PAIRS` pairs (or `pairs`, where that is smaller).
    """
    sentences_of = distinct_sentences(documents)
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    most_sentences = max((len(sentences) for sentences in sentences_of), default=0)
    in_turns: list[HeldOutSentence] = []
    for begin in range(0, most_sentences, _SENTENCES_IN_TURN):
        for document in order:
            texts = sentences_of[document][begin : begin + _SENTENCES_IN_TURN]
            for place, text in enumerate(texts, start=begin):
                in_turns.append(HeldOutSentence(text, document, place))
    chosen = in_turns[: min(pairs, MOST_SENTENCES)]
    _check_enough_pairs(chosen, pairs, len(documents))
    return chosen


def choose_texts(documents: Sequence[str], pairs: int, *, seed: int = 0) -> list[HeldOutSentence]:
    """Choose whole texts, each in the place of a sentence, for a teacher that knows the vectors of whole texts alone.

    Args:
        documents: Plain texts.
        pairs: Number of pairs that are wanted; there are at most as many texts.
        seed: Decides the choice.

    Raises:
        CorpusError: as `choose_sentences`.
    """
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    chosen_documents = order[: min(pairs, MOST_SENTENCES)]
    chosen = [HeldOutSentence(documents[index], document=index, place=0) for index in chosen_documents]
    _check_enough_pairs(chosen, pairs, len(documents))
    return chosen


def _check_enough_pairs(chosen: Sequence[HeldOutSentence], pairs: int, documents: int) -> None:
    """Refuse too few sentences.

    Args:
        chosen: The sentences.
        pairs: Number of pairs that are wanted.
        documents: Number of texts that they are from.
    """
    possible_pairs = len(chosen) * (len(chosen) - 1) // 2
    needed = min(FEWEST_PAIRS, pairs)
    check_enough(possible_pairs, needed=needed, noun="sentence pair", documents=documents)


@dataclass(frozen=True)
class StratifiedPairs:
    """Pairs of sentences, spread evenly over the teacher's similarities.

    Args:
        pairs: The pairs in words.
        first: Index of the first sentence of each pair, `[pairs]`.
        second: Index of the second sentence of each pair, `[pairs]`.
        strata: The pair's range of the teacher's similarity, 0 for the lowest, `[pairs]`.
    """

    pairs: list[SentencePair]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    strata: NDArray[np.int64]

    def cosines(self, vectors: Tensor) -> NDArray[np.float32]:
        """Return the similarity of each pair, `[pairs]`, by vectors of the sentences, which have length one."""
        first = vectors[torch.from_numpy(self.first)]
        second = vectors[torch.from_numpy(self.second)]
        return np.asarray((first * second).sum(-1).numpy())


def stratify_pairs(
    sentences: Sequence[HeldOutSentence], teacher_vectors: Tensor, count: int, *, seed: int = 0
) -> StratifiedPairs:
    """Choose pairs of sentences so that each range of the teacher's similarity has equally many.

    The ranges divide the distance from the lowest to the highest similarity evenly. A range with fewer pairs than its
    part gives all of them, and the others share what it lacks.

    Args:
        sentences: The sentences.
        teacher_vectors: The teacher's vectors of them, of length one, `[sentences, width]`.
        count: Number of pairs.
        seed: Decides which pairs of a range are chosen.
    """
    # All pairs of two sentences, by the indices of both.
    first, second = np.triu_indices(len(sentences), k=1)
    vectors = teacher_vectors.double()
    similarities = (vectors @ vectors.T).numpy()[first, second]
    strata = _strata_of(similarities)

    # Pairs are known by their number among all pairs. Of each range some are drawn.
    rng = np.random.default_rng(seed)
    pairs_by_stratum = [np.flatnonzero(strata == stratum) for stratum in range(STRATA)]
    sizes = _even_sizes([len(numbers) for numbers in pairs_by_stratum], count)
    drawn = []
    for numbers, size in zip(pairs_by_stratum, sizes, strict=True):
        drawn.append(rng.choice(numbers, size, replace=False))
    chosen = np.sort(np.concatenate(drawn))

    pairs = []
    for left, right in zip(first[chosen].tolist(), second[chosen].tolist(), strict=True):
        pairs.append(_pair_of(sentences[left], sentences[right]))
    return StratifiedPairs(pairs, first[chosen], second[chosen], strata[chosen])


def _strata_of(similarities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the range of each similarity, 0 for the lowest; if all are equal, or one is NaN, all are in the first."""
    lowest = float(similarities.min())
    spread = float(similarities.max()) - lowest
    if spread == 0 or np.isnan(spread):
        return np.zeros(len(similarities), np.int64)
    strata = np.floor((similarities - lowest) / spread * STRATA).astype(np.int64)
    # The highest similarity is the end of the last range, and belongs to it.
    return np.minimum(strata, STRATA - 1)


def _even_sizes(available: Sequence[int], count: int) -> list[int]:
    """Share a number of pairs among ranges as evenly as their sizes allow.

    Args:
        available: Number of pairs that each range has.
        count: The number of pairs to share.

    Returns:
        Number of pairs that each range gives.
    """
    sizes = [0] * len(available)
    pairs_left = count
    ranges_left = len(available)
    # Small ranges come first, so that the larger ones share what these lack.
    smallest_first = sorted(range(len(available)), key=lambda stratum: available[stratum])
    for stratum in smallest_first:
        part = pairs_left // ranges_left
        sizes[stratum] = min(available[stratum], part)
        pairs_left -= sizes[stratum]
        ranges_left -= 1
    return sizes


def _pair_of(first: HeldOutSentence, second: HeldOutSentence) -> SentencePair:
    """Return two sentences as a pair of its kind."""
    if first.document != second.document:
        kind = DIFFERENT_DOCUMENTS
    elif abs(first.place - second.place) == 1:
        kind = NEIGHBOURING
    else:
        kind = SAME_DOCUMENT
    return SentencePair(first.text, second.text, kind=kind, document=first.document)
