"""The split of a corpus: which documents and labelled rows are trained on, held out, or left out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.building.near_duplicates import Groups, near_duplicates
from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import RowBatch, lowest_keys, read_batches, read_rows
from limbeck.corpus.text.documents import above_translations
from limbeck.corpus.text.words import comparable

# Roles of a row.
TRAINED = 0
HELD_OUT = 1
LEFT_OUT = 2

Roles: TypeAlias = NDArray[np.uint8]
"""The role of each row of a file, `[rows]`."""

MOST_HELD_OUT = 500
"""Rows that are held out by default; of fewer than ten times as many, a tenth.

With it, or `_MOST_OVER`, raise the formats of what is cached of rows: `LABELLED_FORMAT` in `build_labelled`, and
`VOCABULARY_FORMAT` and `PIECES_FORMAT` in `build_vocabulary`."""
NEAR = "held-out row that may resemble a training row"
REPEATED = "training row that is also in the development set, left out"
# This reason stands in records of runs, so it stays as it is. Strictly the row is in a group of near duplicates with a
# training row, and shares its sequences with that row or with others of the group.
LEAKED = "development row that resembles a training row (it shares at least half of its three-word sequences)"

_KEYS = 2**64
"""Number of keys that a text may have."""
_MOST_OVER = 2
"""Rows that may be held out, as a multiple of the rows wanted, so that a large group can be held out as a whole."""
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""


def held_out_threshold(keys: NDArray[np.uint64], share: float, most: int) -> int:
    """Return the key below which documents are held out.

    Keys are hashes, so a share of their range is about that share of the documents, and whether a document is held out
    does not depend on other documents. If that would hold out no document of a small corpus, the one with the lowest
    key is held out. If it would be more than `most` documents, the `most` lowest are held out.

    Args:
        keys: Key of every document, all different.
        share: Share to hold out, below 1.
        most: Most documents to hold out.
    """
    if share == 0 or most == 0 or len(keys) < 2:
        return 0
    threshold = int(share * _KEYS)
    below = int(np.count_nonzero(keys < np.uint64(threshold)))
    # At least one document is held out, and one is trained on.
    wanted = min(max(below, 1), most, len(keys) - 1)
    # Any threshold between the last key that is held out and the next key gives the same documents. That of the share
    # is taken if it lies there, and the nearest one otherwise.
    lowest = np.sort(keys)
    last_held_out = int(lowest[wanted - 1])
    first_trained = int(lowest[wanted])
    return min(max(threshold, last_held_out + 1), first_trained)


def held_out_bound(folder: Path, settings: CorpusSettings) -> int:
    """Return the key below which the stored documents of a corpus are held out, see `held_out_threshold`.

    Args:
        folder: The folder of all documents.
        settings: The settings of the corpus.
    """
    # Of as many documents as may be held out the lowest keys are needed, and of one more, which bounds the threshold.
    lowest = lowest_keys(folder, settings.held_out_documents + 1)
    threshold = held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
    return above_translations(threshold) if settings.teaches_translations else threshold


def split_rows(
    files: Sequence[Path], share: float | None, development: Sequence[Path], report: SourceReport
) -> dict[Path, Roles]:
    """Return the role of each labelled row: trained on, held out, or left out because a development row repeats it.

    Args:
        files: The stored rows.
        share: The share of their texts to hold out, see `hold_out`; it counts where there are no development rows.
        development: The stored development rows. If there are any, they are the held-out rows.
        report: Receives the rows that are left out, and held-out rows that may resemble a row to train on.
    """
    if development:
        return keep_apart(files, development, report)
    return hold_out(files, share, report)


def hold_out(files: Sequence[Path], share: float | None, report: SourceReport) -> dict[Path, Roles]:
    """Hold out some labelled rows.

    With a share, distinct texts are drawn by their hashes. Without one, whole groups of texts that are near duplicates
    are drawn, such as the phrases of one sentence, until there are enough rows for a meaningful score.

    Args:
        files: The stored rows.
        share: Share of the texts to hold out, at least 0 and below 1. None holds out 500 rows, or a tenth of fewer than
            5,000.
        report: Receives rows that are held out although similar rows are trained on, since there were too few others.
    """
    rows, keys = _read_all(files)
    if share is None:
        drawn = draw_groups([(row.text, row.pair) for row in rows], keys)
        report.note(NEAR, "short or common texts", drawn.doubtful)
        is_held_out = drawn.is_held_out
    else:
        distinct_keys = np.unique(keys)
        threshold = held_out_threshold(distinct_keys, share, len(distinct_keys))
        is_held_out = keys < np.uint64(threshold)
    return _divide_by_file(np.where(is_held_out, HELD_OUT, TRAINED), files)


class DrawnRows(NamedTuple):
    """Rows that are held out by default.

    Args:
        is_held_out: Whether each row is held out, `[rows]`.
        doubtful: Number of held-out rows that may resemble a row to train on.
    """

    is_held_out: NDArray[np.bool_]
    doubtful: int


def draw_groups(rows: Sequence[Sequence[str | None]], keys: NDArray[np.uint64]) -> DrawnRows:
    """Draw the rows that are held out by default, see `hold_out`.

    Args:
        rows: The first text of each row, and the second if it has one.
        keys: Key of the first text of each row, `[rows]`.
    """
    texts = _number_texts(keys)
    rows_of_text = np.bincount(texts.of_row)

    # A text is compared together with all second texts of its rows. The text itself is among its parts only once, and
    # is the first of them.
    parts_of_text: list[list[str]] = [[] for _ in texts.keys]
    for row, text in zip(rows, texts.of_row.tolist(), strict=True):
        parts = parts_of_text[text]
        known_text = parts[0] if parts else None
        for part in row:
            if part is not None and part != known_text:
                parts.append(part)

    groups = near_duplicates(parts_of_text)
    a_tenth = math.ceil(len(rows) / 10)
    is_chosen = _choose_texts(groups, rows_of_text, texts.keys, wanted=min(MOST_HELD_OUT, a_tenth))
    doubtful = int(rows_of_text[is_chosen & groups.common].sum())
    return DrawnRows(is_chosen[texts.of_row], doubtful)


def keep_apart(files: Sequence[Path], development: Sequence[Path], report: SourceReport) -> dict[Path, Roles]:
    """Hold out the development rows, and leave out the rows to train on that they repeat.

    Args:
        files: The stored rows to train on.
        development: The stored development rows.
        report: Receives the rows that are left out, and development rows that resemble a row to train on.
    """
    train_rows = _read_all(files).rows
    development_rows = _read_all(development).rows

    is_repeated = repeat_any(train_rows, development_rows)
    for number in np.flatnonzero(is_repeated):
        report.note(REPEATED, _beginning(train_rows[number]))

    # A development row that is a near duplicate of a row to train on stays, and is reported. Rows that are left out are
    # not trained on, so that it does not matter what resembles them.
    trained_rows = [row for row, is_left_out in zip(train_rows, is_repeated, strict=True) if not is_left_out]
    for number in np.flatnonzero(resemble_any(development_rows, trained_rows)):
        report.note(LEAKED, _beginning(development_rows[number]))

    train_roles = _divide_by_file(np.where(is_repeated, LEFT_OUT, TRAINED), files)
    development_roles = _divide_by_file(np.full(len(development_rows), HELD_OUT), development)
    return {**train_roles, **development_roles}


def repeat_any(rows: Sequence[LabelledRow], others: Sequence[LabelledRow]) -> NDArray[np.bool_]:
    """Return whether each row differs from one of some others only in case, punctuation and white space, `[rows]`."""
    texts_of_others = {comparable_texts(row) for row in others}
    return np.array([comparable_texts(row) in texts_of_others for row in rows], np.bool_)


def resemble_any(rows: Sequence[LabelledRow], others: Sequence[LabelledRow]) -> NDArray[np.bool_]:
    """Return whether each row is a near duplicate of one of some others, `[rows]`."""
    groups = near_duplicates([_texts_of(row) for row in (*others, *rows)])
    groups_of_others = groups.of_text[: len(others)]
    groups_of_rows = groups.of_text[len(others) :]
    return np.isin(groups_of_rows, groups_of_others)


def all_trained(files: Sequence[Path]) -> dict[Path, Roles]:
    """Return roles for files whose rows are all trained on."""
    return {path: np.full(_count_rows(path), TRAINED, np.uint8) for path in files}


class RowWithRole(NamedTuple):
    """A stored row.

    Args:
        row: The row.
        key: Key of its text.
        role: `TRAINED`, `HELD_OUT` or `LEFT_OUT`.
    """

    row: LabelledRow
    key: int
    role: int


def rows_with_roles(roles: Mapping[Path, Roles]) -> Iterator[RowWithRole]:
    """Iterate over the rows of all files that have roles."""
    for path, roles_of_file in roles.items():
        first_row = 0
        for batch in read_rows(path):
            roles_of_batch = roles_of_file[first_row : first_row + len(batch.rows)]
            first_row += len(batch.rows)
            for row, key, role in zip(batch.rows, batch.keys.tolist(), roles_of_batch.tolist(), strict=True):
                yield RowWithRole(row, key, role)


class _NumberedTexts(NamedTuple):
    """The distinct first texts of rows, numbered in the order in which they come.

    Args:
        keys: The key of each text, `[texts]`.
        of_row: The number of the first text of each row, `[rows]`.
    """

    keys: NDArray[np.uint64]
    of_row: NDArray[np.int64]


def _number_texts(keys: NDArray[np.uint64]) -> _NumberedTexts:
    """Number the distinct first texts of rows.

    Args:
        keys: The key of the first text of each row, `[rows]`.
    """
    # `np.unique` numbers the keys in their own order, so its numbers are translated into those of the order of rows.
    sorted_keys, first_rows, sorted_number_of_row = np.unique(keys, return_index=True, return_inverse=True)
    order_of_rows = np.argsort(first_rows)
    number_of_sorted = np.empty_like(order_of_rows)
    number_of_sorted[order_of_rows] = np.arange(len(order_of_rows))
    return _NumberedTexts(sorted_keys[order_of_rows], number_of_sorted[sorted_number_of_row])


def _choose_texts(
    groups: Groups, rows_of_text: NDArray[np.int64], keys: NDArray[np.uint64], wanted: int
) -> NDArray[np.bool_]:
    """Choose the texts that are held out, by whole groups in the order of a hash; common texts come last.

    Args:
        groups: The groups of the texts.
        rows_of_text: Number of rows of each text, `[texts]`.
        keys: Key of each text, `[texts]`.
        wanted: Rows to hold out.
    """
    # A common text resembles texts of other groups, so that its own group does not matter.
    texts_of_group: dict[int, list[int]] = {}
    common_texts: list[list[int]] = []
    for text, group in enumerate(groups.of_text.tolist()):
        if groups.common[text]:
            common_texts.append([text])
        else:
            texts_of_group.setdefault(group, []).append(text)

    # The order of groups is that of the key of their first text. With the lowest key of all texts, large groups would
    # come first more often.
    def key_of_first(texts: list[int]) -> int:
        return int(keys[texts[0]])

    candidates = sorted(texts_of_group.values(), key=key_of_first) + sorted(common_texts, key=key_of_first)
    # At most half of all rows are held out.
    most_rows = min(_MOST_OVER * wanted, int(rows_of_text.sum()) // 2)
    is_chosen = np.zeros(len(rows_of_text), bool)
    rows_so_far = 0
    # A group is passed over if it would exceed the most rows; a later, smaller one may still fit.
    for texts in candidates:
        rows = int(rows_of_text[texts].sum())
        if rows_so_far < wanted and rows_so_far + rows <= most_rows:
            is_chosen[texts] = True
            rows_so_far += rows
    return is_chosen


def _read_all(files: Sequence[Path]) -> RowBatch:
    """Return all rows of some files, with the keys of their texts."""
    rows: list[LabelledRow] = []
    keys: list[NDArray[np.uint64]] = []
    for path in files:
        for batch in read_rows(path):
            rows += batch.rows
            keys.append(batch.keys)
    return RowBatch(rows, np.concatenate(keys))


def _divide_by_file(roles: NDArray[Any], files: Sequence[Path]) -> dict[Path, Roles]:
    """Divide the roles of all rows among the files that the rows are in."""
    roles_by_file: dict[Path, Roles] = {}
    start = 0
    for path in files:
        end = start + _count_rows(path)
        roles_by_file[path] = roles[start:end].astype(np.uint8)
        start = end
    return roles_by_file


def _count_rows(path: Path) -> int:
    return sum(len(batch) for batch in read_batches(path))


def _texts_of(row: LabelledRow) -> list[str]:
    """Return the texts of a row, one or two."""
    return [row.text] if row.pair is None else [row.text, row.pair]


def comparable_texts(row: LabelledRow) -> tuple[str, ...]:
    """Return what is equal of rows that differ only in case, punctuation and white space."""
    return tuple(comparable(text) for text in _texts_of(row))


def _beginning(row: LabelledRow) -> str:
    """Return the beginning of a row's text, for a message."""
    return repr(row.text[:_SHOWN_CHARACTERS].replace(WORD_GAP, " "))
