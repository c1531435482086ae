"""`nearest_words`: the words with the most similar vectors for each of some words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from limbeck.corpus.augmentation.word_vectors import WordVectors
from limbeck.corpus.augmentation.words import WORD

_QUERIES_AT_ONCE = 1024


def nearest_words(vectors: WordVectors, words: Sequence[str], count: int) -> dict[str, list[str]]:
    """Return the `count` words with the most similar vectors for each word, the nearest first.

    Similarity is the cosine. It is computed in float64, so that the words that are computed together do not change the
    order. A word is not its own neighbour, in upper or lower case. A word without a vector has no neighbours.

    Args:
        vectors: All words that have vectors: the candidates.
        words: The words whose neighbours are wanted.
        count: Number of neighbours of a word, K.
    """
    vector_of_word = vectors.find(words)
    neighbours: dict[str, list[str]] = {word: [] for word in words}
    if not vector_of_word:
        return neighbours

    # A *query* is a word whose neighbours are wanted. The candidates come block by block, and each query keeps the
    # nearest of all blocks so far.
    queries = list(vector_of_word)
    query_rows = _unit_rows(list(vector_of_word.values()))
    nearest_so_far: list[list[_Neighbour]] = [[] for _ in queries]
    for block_words, block in vectors.blocks():
        candidates = _Candidates(block_words, block)
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            part = slice(first, first + _QUERIES_AT_ONCE)
            nearest_in_block = candidates.nearest(queries[part], query_rows[part], count)
            for query, neighbours_in_block in enumerate(nearest_in_block, start=first):
                nearest_first = sorted(nearest_so_far[query] + neighbours_in_block, key=_cosine_of, reverse=True)
                nearest_so_far[query] = nearest_first[:count]

    for query_word, nearest in zip(queries, nearest_so_far, strict=True):
        neighbours[query_word] = [neighbour.word for neighbour in nearest]
    return neighbours


class _Neighbour(NamedTuple):
    """A word that is near a query.

    Args:
        cosine: Of the two vectors.
        word: The word.
    """

    cosine: float
    word: str


class _Candidates:
    """A block of the words that have vectors, from which neighbours are chosen.

    Args:
        words: The words.
        rows: Their vectors, `[words, width]`.
    """

    def __init__(self, words: list[str], rows: NDArray[np.float64]) -> None:
        self._words = words
        self._rows = _unit_rows(rows)
        self._is_word = torch.tensor([word.isprintable() and WORD.search(word) is not None for word in words])
        # The indices of a word, whether it is spelt in upper, lower or mixed case.
        self._places_of_word: dict[str, list[int]] = {}
        for place, word in enumerate(words):
            self._places_of_word.setdefault(word.casefold(), []).append(place)

    def nearest(self, queries: list[str], query_rows: torch.Tensor, count: int) -> list[list[_Neighbour]]:
        """Return the nearest candidates of each query, the nearest first.

        Args:
            queries: The words.
            query_rows: Their vectors of length one, `[queries, width]`.
            count: Most candidates of each.
        """
        cosines = query_rows @ self._rows.T  # [queries, words]
        # Punctuation and parts of words are no neighbours, and neither is the query itself, in upper or lower case.
        cosines[:, ~self._is_word] = -torch.inf
        for number, query in enumerate(queries):
            places_of_query = self._places_of_word.get(query.casefold(), [])
            cosines[number, places_of_query] = -torch.inf

        highest_cosines, places = cosines.topk(min(count, len(self._words)))
        nearest: list[list[_Neighbour]] = []
        for cosines_of_query, places_of_nearest in zip(highest_cosines.tolist(), places.tolist(), strict=True):
            neighbours: list[_Neighbour] = []
            for cosine, place in zip(cosines_of_query, places_of_nearest, strict=True):
                # Where there are too few candidates, those that are no neighbours come last.
                if cosine > -torch.inf:
                    neighbours.append(_Neighbour(cosine, self._words[place]))
            nearest.append(neighbours)
        return nearest


def _cosine_of(neighbour: _Neighbour) -> float:
    return neighbour.cosine


def _unit_rows(rows: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> torch.Tensor:
    """Return vectors scaled to length one, `[rows, width]`."""
    return torch.nn.functional.normalize(torch.from_numpy(np.asarray(rows, np.float64)), dim=-1)
