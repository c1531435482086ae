"""Groups of texts that share at least half of their sequences of three words."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Groups(NamedTuple):
    """Texts in groups of near duplicates.

    Args:
        of_text: Number of the group of each text, `[texts]`.
        common: Whether at least half of a text's sequences of words are in other groups too, or it has none, `[texts]`.
    """

    of_text: NDArray[np.int64]
    common: NDArray[np.bool_]


_GRAM = 3
"""Words of a sequence."""

# Scripts without spaces are compared by the character.
_WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|\w+")

_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.casefold())


def near_duplicates(texts: Iterable[Sequence[str]]) -> Groups:
    """Group texts that share at least half of their sequences of three words.

    Each sequence belongs to the longest text that has it. A text joins the text to which at least half of its sequences
    belong, as a phrase joins its sentence. Sequences that are common in a language therefore do not chain everything
    together, as they would if one were enough. Time and memory are linear in the words (a sort
    apart), and the groups depend on the texts alone.

    Args:
        texts: The parts of each text, such as those of a pair; sequences do not cross them.
    """
    grams, owners, count, lengths = _sequences(texts)
    longest = np.lexsort((np.arange(count), -lengths))
    rank = np.empty(count, np.int64)
    rank[longest] = np.arange(count)
    owners = rank[owners]
    order = np.lexsort((owners, grams))
    grams, owners = grams[order], owners[order]
    new = np.ones(len(grams), bool)
    new[1:] = (grams[1:] != grams[:-1]) | (owners[1:] != owners[:-1])
    grams, owners = grams[new], owners[new]
    begins = np.ones(len(grams), bool)
    begins[1:] = grams[1:] != grams[:-1]
    sequence = np.cumsum(begins) - 1  # Number of each sequence; its first text is the longest.
    belongs = owners[np.flatnonzero(begins)][sequence] if len(grams) else owners
    sizes = np.bincount(owners, minlength=count)
    pairs, shared = np.unique(owners * count + belongs, return_counts=True)
    text, other = pairs // max(count, 1), pairs % max(count, 1)
    joined = (text != other) & (2 * shared >= sizes[text])
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(joined.sum(), np.int8), (text[joined], other[joined])), shape=(count, count))
    _, group = connected_components(links, directed=False)
    # A sequence is common if texts of two groups have it.
    of_pair = group[owners]
    lowest, highest = (np.full(begins.sum(), start) for start in (count, -1))
    np.minimum.at(lowest, sequence, of_pair)
    np.maximum.at(highest, sequence, of_pair)
    common = np.bincount(owners, weights=(lowest != highest)[sequence], minlength=count)
    return Groups(group[rank].astype(np.int64), (2 * common >= sizes)[rank])


def _sequences(
    texts: Iterable[Sequence[str]],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], int, NDArray[np.int64]]:
    """Return the hash of every sequence and the text that it is from, the number of texts, and their words."""
    known: dict[str, int] = {}
    ids: list[int] = []
    ends: list[int] = []
    for parts in texts:
        for part in parts:
            ids += [known.setdefault(word, len(known) + 1) for word in words_of(part)]
            ids.append(0)  # No sequence goes over the end of a part.
        ends.append(len(ids))
    words, count = np.array(ids, np.uint64), len(ends)
    text = np.repeat(np.arange(count), np.diff([0, *ends]))
    lengths = np.bincount(text[words > 0], minlength=count)
    if len(words) < _GRAM:
        return np.empty(0, np.uint64), np.empty(0, np.int64), count, lengths
    windows = np.lib.stride_tricks.sliding_window_view(words, _GRAM)
    whole: NDArray[np.bool_] = np.asarray((windows > 0).all(-1))
    hashes = (windows[whole] * _MIXERS).sum(-1, dtype=np.uint64)
    return hashes, text[: len(whole)][whole], count, lengths
