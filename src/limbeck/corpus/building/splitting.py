"""The parts of a corpus: documents and rows that are trained on, held out, or left out."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.building.near_duplicates import Groups, near_duplicates
from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored import store
from limbeck.corpus.text.words import comparable

TRAINED, HELD_OUT, LEFT_OUT = 0, 1, 2
"""Roles of a row."""

Roles: TypeAlias = NDArray[np.uint8]
"""The role of each row of a file, `[rows]`."""

MOST_HELD_OUT = 500
"""Rows that are held out by default; of fewer than ten times as many, a tenth."""
NEAR = "held-out row that may resemble a training row"
REPEATED = "training row that is also in the development set, left out"
LEAKED = "development row that resembles a training row (it shares at least half of its three-word sequences)"

_KEYS = 2**64
"""Number of keys that a text may have."""
_MOST_OVER = 2
"""Rows that may be held out, as a multiple of the rows wanted, so that a large group can be held out as a whole."""


def held_out_threshold(keys: Any, share: float, most: int) -> int:
    """Return the key below which documents are held out.

    A share of a hash's range is that share of the documents whatever else is in the corpus. When that is none
    of a small corpus, its lowest key is held out; when it is too many, the lowest `most` are.

    Args:
        keys: Key of every document, uint64; no two are equal.
        share: Share to hold out, below 1.
        most: Most documents to hold out.
    """
    if share == 0 or most == 0 or len(keys) < 2:
        return 0
    threshold = int(share * _KEYS)
    below = int(np.count_nonzero(keys < np.uint64(threshold)))
    # At least one document is held out, and one is trained on.
    wanted = min(max(below, 1), most, len(keys) - 1)
    # Between two neighbours any threshold gives the same documents; that of the share is the clearest.
    lowest = np.sort(keys)
    last_held_out = int(lowest[wanted - 1])
    first_trained = int(lowest[wanted])
    return min(max(threshold, last_held_out + 1), first_trained)


def hold_out(files: Sequence[Path], share: float | None, report: SourceReport) -> dict[Path, Roles]:
    """Hold out some labelled rows.

    A share is of the distinct texts, by a hash of each. Without one as many rows are held out as make a score of them
    mean something, by whole groups of texts that are near duplicates, such as the phrases of one sentence.

    Args:
        files: The stored rows.
        share: Share of the texts, 0 up to, not including, 1; None takes 500 rows, or a tenth of fewer than 5,000.
        report: Receives rows that are held out although others like them are trained on, for want of better ones.
    """
    examples, keys = _read(files)
    if share is not None:
        texts = np.unique(keys)
        threshold = held_out_threshold(texts, share, len(texts))
        return _split_by_file(files, np.where(keys < np.uint64(threshold), HELD_OUT, TRAINED))
    is_held_out, doubtful = draw_groups([(row.text, row.pair) for row in examples], keys)
    report.note(NEAR, "short or common texts", doubtful)
    return _split_by_file(files, np.where(is_held_out, HELD_OUT, TRAINED))


def draw_groups(rows: Sequence[Sequence[str | None]], keys: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], int]:
    """Return the rows that are held out by default, see `hold_out`, and how many of them may be like a trained one.

    Args:
        rows: Their texts, the first and maybe a second.
        keys: Of the first text of each, `[rows]`.
    """
    # Distinct texts are numbered in the order in which they come.
    texts, first_row, sorted_of_row = np.unique(keys, return_index=True, return_inverse=True)
    in_order = np.argsort(first_row)
    number_of_sorted = np.empty_like(in_order)
    number_of_sorted[in_order] = np.arange(len(in_order))
    text_of_row = number_of_sorted[sorted_of_row]
    rows_of_text = np.bincount(text_of_row)

    # The parts of a text are its own and all second texts that it comes with.
    parts_of_text: list[list[str]] = [[] for _ in texts]
    for parts, text in zip(rows, text_of_row.tolist(), strict=True):
        first = parts_of_text[text][:1]
        parts_of_text[text] += [part for part in parts if part is not None and part not in first]

    groups = near_duplicates(parts_of_text)
    wanted = min(MOST_HELD_OUT, math.ceil(len(rows) / 10))
    is_chosen = _choose_texts(groups, rows_of_text, texts[in_order], wanted)
    doubtful = int(rows_of_text[is_chosen & groups.common].sum())
    return is_chosen[text_of_row], doubtful


def all_trained(files: Sequence[Path]) -> dict[Path, Roles]:
    """Return roles for files whose rows are all trained on."""
    roles: dict[Path, Roles] = {}
    for path in files:
        rows = sum(len(batch) for batch in store.read_batches(path))
        roles[path] = np.full(rows, TRAINED, np.uint8)
    return roles


def keep_apart(files: Sequence[Path], development: Sequence[Path], report: SourceReport) -> dict[Path, Roles]:
    """Hold out the development rows, and leave out the rows to train on that they repeat.

    Args:
        files: The stored rows to train on.
        development: The stored development rows.
        report: Receives the rows that are left out, and development rows like one to train on.
    """
    train, _ = _read(files)
    scored, _ = _read(development)

    # Rows to train on that differ from a development row in case, punctuation and white space alone are left out.
    scored_texts = {_comparable_texts(example) for example in scored}
    is_repeated = np.array([_comparable_texts(example) in scored_texts for example in train])
    for row in np.flatnonzero(is_repeated):
        report.note(REPEATED, _beginning(train[row]))

    # Development rows that are near duplicates of one to train on stay, and are counted.
    groups = near_duplicates([_texts_of(example) for example in (*train, *scored)])
    trained_groups = np.unique(groups.of_text[: len(train)])
    is_near = np.isin(groups.of_text[len(train) :], trained_groups)
    for row in np.flatnonzero(is_near):
        report.note(LEAKED, _beginning(scored[row]))

    roles = _split_by_file(files, np.where(is_repeated, LEFT_OUT, TRAINED))
    return roles | _split_by_file(development, np.full(len(scored), HELD_OUT))


def _choose_texts(
    groups: Groups, rows_of_text: NDArray[np.int64], keys: NDArray[np.uint64], wanted: int
) -> NDArray[np.bool_]:
    """Choose the texts that are held out: whole groups, drawn by a hash, and common texts only where these are too few.

    Args:
        groups: The groups of the texts.
        rows_of_text: Number of rows of each text, `[texts]`.
        keys: Key of each text, `[texts]`.
        wanted: Rows to hold out.
    """
    texts_of_group: dict[int, list[int]] = {}
    for text in np.flatnonzero(~groups.common).tolist():
        texts_of_group.setdefault(int(groups.of_text[text]), []).append(text)
    common_texts = [[text] for text in np.flatnonzero(groups.common).tolist()]

    # A group is drawn by the hash of its first text: by its lowest, large groups would be drawn more often.
    def draw(texts: list[int]) -> int:
        return int(keys[texts[0]])

    candidates = sorted(texts_of_group.values(), key=draw) + sorted(common_texts, key=draw)
    most = min(_MOST_OVER * wanted, int(rows_of_text.sum()) // 2)
    is_chosen = np.zeros(len(rows_of_text), bool)
    held_out = 0
    for texts in candidates:
        rows = int(rows_of_text[texts].sum())
        if held_out < wanted and held_out + rows <= most:
            is_chosen[texts] = True
            held_out += rows
    return is_chosen


def _read(files: Sequence[Path]) -> tuple[list[LabelledRow], NDArray[np.uint64]]:
    """Return all rows of some files, and the keys of their texts."""
    examples: list[LabelledRow] = []
    keys: list[NDArray[np.uint64]] = []
    for path in files:
        for batch, batch_keys in store.read_labelled(path):
            examples += batch
            keys.append(batch_keys)
    return examples, np.concatenate(keys)


def _split_by_file(files: Sequence[Path], roles: NDArray[Any]) -> dict[Path, Roles]:
    """Divide the roles of all rows among their files."""
    counts = [sum(len(batch) for batch, _ in store.read_labelled(path)) for path in files]
    ends = np.cumsum(counts)[:-1]
    return dict(zip(files, np.split(roles.astype(np.uint8), ends), strict=True))


def _texts_of(row: LabelledRow) -> list[str]:
    """Return the texts of a row, one or two."""
    return [row.text] if row.pair is None else [row.text, row.pair]


def _comparable_texts(row: LabelledRow) -> tuple[str, ...]:
    return tuple(comparable(text) for text in _texts_of(row))


def _beginning(example: LabelledRow) -> str:
    """Return the beginning of a row's text, for a message."""
    return repr(example.text[:40].replace(WORD_GAP, " "))
