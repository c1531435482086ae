"""Near duplicates: groups of texts that share at least half of their sequences of three words."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.text.words import words_of

_SEQUENCE_WORDS = 3
"""Words of a sequence; `_MIXERS` has a constant for each."""
# Odd constants, one for each word of a sequence. The hash of a sequence is the sum of its words' numbers, each times
# the constant of its place, modulo 2**64.
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_END_OF_PART = 0  # In place of a word's number.


class Groups(NamedTuple):
    """Texts in groups of near duplicates.

    Args:
        of_text: Number of the group of each text, `[texts]`.
        common: Whether a text is common, `[texts]`: at least half of its sequences of words are in other groups too, or
            it has no sequence.
    """

    of_text: NDArray[np.int64]
    common: NDArray[np.bool_]


def near_duplicates(texts: Iterable[Sequence[str]]) -> Groups:
    """Group texts that share at least half of their sequences of three words.

    Each sequence belongs to the longest text that has it, its owner. A text joins an owner of at least half of its
    sequences, as a phrase joins its sentence. Sequences that are common in a language therefore do not chain
    everything together, as they would if one were enough. Time and memory are linear in the words (a sort apart), and
    the groups depend on the texts alone.

    Args:
        texts: The parts of each text, such as the two texts of a pair. A sequence lies within one part.
    """
    occurrences = _find_occurrences(texts)
    rank_of_text = _ranks(occurrences.lengths)
    pairs = _distinct_pairs(occurrences, rank_of_text)
    group_of_rank = _join_owners(pairs, len(rank_of_text))
    is_common_rank = _find_common(pairs, group_of_rank)
    return Groups(group_of_rank[rank_of_text], is_common_rank[rank_of_text])


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


class _Pairs(NamedTuple):
    """The distinct pairs of a sequence and a text that has it. A text is identified by its rank, see `_ranks`.

    The pairs of a sequence stand together, that with its owner first.

    Args:
        sequences: Number of the sequence, `[pairs]`.
        ranks: Rank of the text, `[pairs]`.
        owners: Rank of the sequence's owner, `[pairs]`.
    """

    sequences: NDArray[np.int64]
    ranks: NDArray[np.int64]
    owners: NDArray[np.int64]


def _find_occurrences(texts: Iterable[Sequence[str]]) -> _Occurrences:
    """Return all sequences of words in some texts, each time that they occur."""
    # The words of all texts in one array, as numbers from 1. A 0 stands at the end of each part, by which sequences
    # that cross it are found and left out.
    number_of_word: dict[str, int] = {}
    words_in_order: list[int] = []
    ends_of_texts: list[int] = []
    for parts in texts:
        for part in parts:
            for word in words_of(part):
                # A new word gets the next number.
                number = number_of_word.setdefault(word, len(number_of_word) + 1)
                words_in_order.append(number)
            words_in_order.append(_END_OF_PART)
        ends_of_texts.append(len(words_in_order))

    words = np.array(words_in_order, np.uint64)
    text_count = len(ends_of_texts)
    text_of_word = np.repeat(np.arange(text_count), np.diff([0, *ends_of_texts]))
    lengths = np.bincount(text_of_word[words != _END_OF_PART], minlength=text_count)
    if len(words) < _SEQUENCE_WORDS:
        return _Occurrences(np.empty(0, np.uint64), np.empty(0, np.int64), lengths)

    # Every sequence of words, `[windows, words of a sequence]`. Those that cross the end of a part are left out.
    windows = np.lib.stride_tricks.sliding_window_view(words, _SEQUENCE_WORDS)
    is_within_part = np.all(windows != _END_OF_PART, axis=-1)
    hashes = (windows[is_within_part] * _MIXERS).sum(-1, dtype=np.uint64)
    # A window is in the text of its first word; the last words of all begin no window.
    text_of_window = text_of_word[: len(windows)]
    return _Occurrences(hashes, text_of_window[is_within_part], lengths)


def _ranks(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each text, `[texts]`: 0 for the longest; of texts of equal length the earlier comes first."""
    count = len(lengths)
    longest_first = np.lexsort((np.arange(count), -lengths))
    ranks = np.empty(count, np.int64)
    ranks[longest_first] = np.arange(count)
    return ranks


def _distinct_pairs(occurrences: _Occurrences, rank_of_text: NDArray[np.int64]) -> _Pairs:
    """Return the distinct pairs of sequence and text; the owner of a sequence is its text with the lowest rank."""
    # Sorted by sequence, and then by rank, so that repeated pairs are neighbours.
    ranks = rank_of_text[occurrences.texts]
    order = np.lexsort((ranks, occurrences.hashes))
    hashes = occurrences.hashes[order]
    ranks = ranks[order]

    is_first_of_pair = _differs_from_previous(hashes) | _differs_from_previous(ranks)
    hashes = hashes[is_first_of_pair]
    ranks = ranks[is_first_of_pair]

    is_first_of_sequence = _differs_from_previous(hashes)
    sequences = np.cumsum(is_first_of_sequence) - 1
    owner_of_sequence = ranks[is_first_of_sequence]
    return _Pairs(sequences, ranks, owner_of_sequence[sequences])


def _differs_from_previous(values: NDArray[np.uint64] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each value differs from the value before it; the first counts as different."""
    differs = np.ones(len(values), bool)
    differs[1:] = values[1:] != values[:-1]
    return differs


def _join_owners(pairs: _Pairs, count: int) -> NDArray[np.int64]:
    """Return the number of the group of each text, by its rank, `[texts]`.

    Args:
        pairs: Sequences and the texts that have them.
        count: Number of texts.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # For each text and owner: the number of the text's sequences that belong to the owner. Both ranks are joined into
    # one number, so that `np.unique` counts the pairs.
    text_and_owner_of_pair = pairs.ranks * count + pairs.owners
    texts_and_owners, owned_sequences = np.unique(text_and_owner_of_pair, return_counts=True)
    texts, owners = np.divmod(texts_and_owners, max(count, 1))

    # A text is linked to each other text that owns at least half of its sequences.
    sequences_of_text = np.bincount(pairs.ranks, minlength=count)
    is_link = (texts != owners) & (2 * owned_sequences >= sequences_of_text[texts])
    linked_texts = texts[is_link]
    linked_owners = owners[is_link]

    # Texts that links connect, directly or through others, are a group. SciPy finds them in a sparse matrix with a 1
    # for each link.
    ones = np.ones(len(linked_texts), np.int8)
    links = coo_array((ones, (linked_texts, linked_owners)), shape=(count, count))
    _, group_of_rank = connected_components(links, directed=False)
    return np.asarray(group_of_rank, np.int64)


def _find_common(pairs: _Pairs, group_of_rank: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each text, by its rank, whether at least half of its sequences are in other groups too, `[texts]`."""
    text_count = len(group_of_rank)
    # Sequences are numbered from 0, and the pairs are in the order of these numbers.
    sequence_count = 0
    if len(pairs.sequences):
        sequence_count = int(pairs.sequences[-1]) + 1

    # A sequence is in several groups if the lowest and the highest of them differ. Groups are numbered from 0, and
    # there are at most as many as texts.
    group_of_pair = group_of_rank[pairs.ranks]
    lowest_group = np.full(sequence_count, text_count)
    highest_group = np.full(sequence_count, -1)
    np.minimum.at(lowest_group, pairs.sequences, group_of_pair)
    np.maximum.at(highest_group, pairs.sequences, group_of_pair)
    is_common_sequence = lowest_group != highest_group

    sequences_of_text = np.bincount(pairs.ranks, minlength=text_count)
    common_of_text = np.bincount(pairs.ranks, weights=is_common_sequence[pairs.sequences], minlength=text_count)
    # A text without a sequence counts as common too.
    return 2 * common_of_text >= sequences_of_text
