"""Groups of texts that share at least half of their sequences of three words."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.text.words import words_of

_GRAM = 3
"""Words of a sequence."""
# Odd constants, one for each word of a sequence: the hash of a sequence is the sum of its words by these.
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class Groups(NamedTuple):
    """Texts in groups of near duplicates.

    Args:
        of_text: Number of the group of each text, `[texts]`.
        common: Whether at least half of a text's sequences of words are in other groups too, or it has none, `[texts]`.
    """

    of_text: NDArray[np.int64]
    common: NDArray[np.bool_]


def near_duplicates(texts: Iterable[Sequence[str]]) -> Groups:
    """Group texts that share at least half of their sequences of three words.

    Each sequence belongs to the longest text that has it. A text joins the text to which at least half of its sequences
    belong, as a phrase joins its sentence. Sequences that are common in a language therefore do not chain everything
    together, as they would if one were enough. Time and memory are linear in the words (a sort
    apart), and the groups depend on the texts alone.

    Args:
        texts: The parts of each text, such as those of a pair; sequences do not cross them.
    """
    occurrences = _find_sequences(texts)
    count = len(occurrences.lengths)

    # From here on a text is its rank: 0 is the longest text, and of two of equal length the earlier.
    longest_first = np.lexsort((np.arange(count), -occurrences.lengths))
    rank_of_text = np.empty(count, np.int64)
    rank_of_text[longest_first] = np.arange(count)

    # Each sequence of each text once, the texts of a sequence together, its longest text first.
    hashes, ranks = _distinct_pairs(occurrences.hashes, rank_of_text[occurrences.texts])
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = hashes[1:] != hashes[:-1]
    sequence = np.cumsum(is_first) - 1
    owner = ranks[is_first][sequence]

    # A text joins another one that owns at least half of its sequences.
    sizes = np.bincount(ranks, minlength=count)
    pairs, shared = np.unique(ranks * count + owner, return_counts=True)
    joining, joined = np.divmod(pairs, max(count, 1))
    is_link = (joining != joined) & (2 * shared >= sizes[joining])
    group = _connect(count, joining[is_link], joined[is_link])

    # A sequence is common if texts of two groups have it.
    lowest_group = np.full(is_first.sum(), count)
    highest_group = np.full(is_first.sum(), -1)
    np.minimum.at(lowest_group, sequence, group[ranks])
    np.maximum.at(highest_group, sequence, group[ranks])
    is_common = (lowest_group != highest_group)[sequence]
    common_sequences = np.bincount(ranks, weights=is_common, minlength=count)
    is_common_text = 2 * common_sequences >= sizes

    return Groups(group[rank_of_text].astype(np.int64), is_common_text[rank_of_text])


class _Occurrences(NamedTuple):
    """All sequences of words in some texts.

    Args:
        hashes: Hash of each sequence, `[occurrences]`.
        texts: Number of the text that it is in, `[occurrences]`.
        lengths: Words of each text, `[texts]`.
    """

    hashes: NDArray[np.uint64]
    texts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def _find_sequences(texts: Iterable[Sequence[str]]) -> _Occurrences:
    # All words in a row, as numbers from 1; a 0 ends each part, so that no sequence crosses it.
    number_of_word: dict[str, int] = {}
    numbers: list[int] = []
    ends: list[int] = []
    for parts in texts:
        for part in parts:
            numbers += [number_of_word.setdefault(word, len(number_of_word) + 1) for word in words_of(part)]
            numbers.append(0)
        ends.append(len(numbers))

    words = np.array(numbers, np.uint64)
    text_of_word = np.repeat(np.arange(len(ends)), np.diff([0, *ends]))
    lengths = np.bincount(text_of_word[words > 0], minlength=len(ends))
    if len(words) < _GRAM:
        return _Occurrences(np.empty(0, np.uint64), np.empty(0, np.int64), lengths)

    windows = np.lib.stride_tricks.sliding_window_view(words, _GRAM)
    is_whole: NDArray[np.bool_] = np.asarray((windows > 0).all(-1))
    hashes = (windows[is_whole] * _MIXERS).sum(-1, dtype=np.uint64)
    return _Occurrences(hashes, text_of_word[: len(is_whole)][is_whole], lengths)


def _distinct_pairs(
    hashes: NDArray[np.uint64], ranks: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the distinct pairs of two arrays, sorted by the first and then by the second."""
    order = np.lexsort((ranks, hashes))
    hashes = hashes[order]
    ranks = ranks[order]
    is_new = np.ones(len(hashes), bool)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (ranks[1:] != ranks[:-1])
    return hashes[is_new], ranks[is_new]


def _connect(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the number of the connected component of each text, `[texts]`.

    Args:
        count: Number of texts.
        first: One text of each link.
        second: The other text of each link.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(count, count))
    _, components = connected_components(links, directed=False)
    return np.asarray(components)
