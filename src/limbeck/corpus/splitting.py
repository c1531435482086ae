"""Which documents and labelled rows are held out, and which rows are left out since the development set has them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus import store
from limbeck.corpus.labelled import WORD_GAP, Example
from limbeck.corpus.near_duplicates import Groups, near_duplicates, words_of
from limbeck.corpus.source_report import SourceReport

_KEYS = 2**64


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
    wanted = min(max(int(np.count_nonzero(keys < np.uint64(threshold))), 1), most, len(keys) - 1)
    # Between two neighbours any threshold gives the same documents; that of the share is the clearest.
    lowest = np.sort(keys)
    return min(max(threshold, int(lowest[wanted - 1]) + 1), int(lowest[wanted]))


# Labelled rows: each is trained on, held out or left out.

TRAINED, HELD_OUT, LEFT_OUT = 0, 1, 2
"""What becomes of a row."""

Roles: TypeAlias = NDArray[np.uint8]
"""What becomes of each row of a file, `[rows]`."""

MOST_HELD_OUT = 500
"""Rows that are held out by default; of fewer than ten times as many, a tenth."""
_OVERFULL = 2
NEAR = "held-out row that may resemble a training row"
REPEATED = "training row that is also in the development set, left out"
LEAKED = "development row that resembles a training row (it shares at least half of its three-word sequences)"


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
        return _by_file(files, np.where(keys < np.uint64(threshold), HELD_OUT, TRAINED))
    chosen, crossing = draw_groups([example[:2] for example in examples], keys)
    report.note(NEAR, "short or common texts", crossing)
    return _by_file(files, np.where(chosen, HELD_OUT, TRAINED))


def draw_groups(rows: Sequence[Sequence[str | None]], keys: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], int]:
    """Return which rows are held out by default, see `hold_out`, and how many of them may be like one that is not.

    Args:
        rows: Their texts, the first and maybe a second.
        keys: Of the first text of each, `[rows]`.
    """
    texts, first, text_of = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)  # Texts as they come.
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    of_row = place[text_of]
    counts = np.bincount(of_row)
    units: list[list[str]] = [[] for _ in order]
    for parts, unit in zip(rows, of_row.tolist(), strict=True):
        units[unit] += [part for part in parts if part is not None and part not in units[unit][:1]]
    groups = near_duplicates(units)
    wanted = min(MOST_HELD_OUT, -(-len(rows) // 10))
    chosen = _choose(groups, counts, texts[order], wanted)
    return chosen[of_row], int(counts[chosen & groups.common].sum())


def all_trained(files: Sequence[Path]) -> dict[Path, Roles]:
    """Return roles for files whose rows are all trained on."""
    return {path: np.full(sum(len(batch) for batch in store.read_batches(path)), TRAINED, np.uint8) for path in files}


def _choose(groups: Groups, rows: NDArray[np.int64], keys: NDArray[np.uint64], wanted: int) -> NDArray[np.bool_]:
    """Return which texts are held out: whole groups, drawn by a hash, and common texts only where these are too few."""
    chosen = np.zeros(len(rows), bool)
    most, held = min(_OVERFULL * wanted, int(rows.sum()) // 2), 0
    # A group is drawn by the hash of its first text: by its lowest, large groups would be drawn more often.
    members: dict[int, list[int]] = {}
    for text in np.flatnonzero(~groups.common).tolist():
        members.setdefault(int(groups.of_text[text]), []).append(text)
    singles = [[text] for text in np.flatnonzero(groups.common).tolist()]
    for kind in (list(members.values()), singles):
        for texts in sorted(kind, key=lambda texts: int(keys[texts[0]])):
            size = int(rows[texts].sum())
            if held < wanted and held + size <= most:
                chosen[texts] = True
                held += size
    return chosen


def keep_apart(files: Sequence[Path], development: Sequence[Path], report: SourceReport) -> dict[Path, Roles]:
    """Hold out the development rows, and leave out the rows to train on that they repeat.

    Args:
        files: The stored rows to train on.
        development: The stored development rows.
        report: Receives the rows that are left out, and development rows like one to train on.
    """
    train, _ = _read(files)
    scored, _ = _read(development)
    wanted = {_normalised(example) for example in scored}
    repeated = np.array([_normalised(example) in wanted for example in train])
    groups = near_duplicates([[part for part in example[:2] if part is not None] for example in (*train, *scored)])
    trained = np.unique(groups.of_text[: len(train)])
    near = np.isin(groups.of_text[len(train) :], trained)
    for row in np.flatnonzero(repeated):
        report.note(REPEATED, repr(train[row].text[:40].replace(WORD_GAP, " ")))
    for row in np.flatnonzero(near):
        report.note(LEAKED, repr(scored[row].text[:40].replace(WORD_GAP, " ")))
    roles = _by_file(files, np.where(repeated, LEFT_OUT, TRAINED))
    return roles | _by_file(development, np.full(len(scored), HELD_OUT))


def _read(files: Sequence[Path]) -> tuple[list[Example], NDArray[np.uint64]]:
    """Return all rows of some files, and the keys of their texts."""
    batches = [batch for path in files for batch in store.read_examples(path)]
    return [example for part, _ in batches for example in part], np.concatenate([keys for _, keys in batches])


def _by_file(files: Sequence[Path], roles: NDArray[Any]) -> dict[Path, Roles]:
    counts = [sum(len(part) for part, _ in store.read_examples(path)) for path in files]
    return dict(zip(files, np.split(roles.astype(np.uint8), np.cumsum(counts)[:-1]), strict=True))


# Near duplicates.


def _normalised(example: Example) -> tuple[str, ...]:
    """Return the texts of a row without case, punctuation and white space; as they are where that leaves nothing."""
    return tuple(" ".join(words_of(part)) or part.strip() for part in example[:2] if part is not None)
