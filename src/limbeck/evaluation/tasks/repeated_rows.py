"""Rows of a user's own task that are scored and resemble rows to train on, so that their scores may be too good."""

from collections.abc import Iterator, Mapping, Sequence

from limbeck.core.blocks import counted
from limbeck.corpus.building.splitting import repeat_any, resemble_any
from limbeck.corpus.rows.labelled_rows import LabelledRow

TOO_GOOD = "so that the scores are too good"
"""What a note says of scores over rows that repeat a row to train on."""


def repeated_row_notes(
    title: str, train_rows: Sequence[LabelledRow], rows_by_split: Mapping[str, Sequence[LabelledRow]]
) -> Iterator[str]:
    """Yield notes that count, for each split, the rows that repeat a row to train on, and those that resemble one.

    Nothing is left out: the rows of a task are those of its files.

    Args:
        title: The task's title.
        train_rows: The rows that are trained on.
        rows_by_split: The rows that are scored, by split.
    """
    for split, all_rows in rows_by_split.items():
        # A document of a ranking that belongs to no query is in a row without a query's text.
        rows = [row for row in all_rows if row.text]
        if not rows:
            continue
        is_repeated = repeat_any(rows, train_rows)
        is_similar = resemble_any(rows, train_rows) & ~is_repeated
        subject = f"{title} {split}"
        size = counted(len(rows), "row")
        repeated_count = int(is_repeated.sum())
        if repeated_count > 0:
            verb = "repeats" if repeated_count == 1 else "repeat"
            yield (
                f"{subject}: {repeated_count:,} of {size} {verb} a training row, {TOO_GOOD} "
                "(case, punctuation and spaces do not count)"
            )
        similar_count = int(is_similar.sum())
        if similar_count > 0:
            verb = "resembles" if similar_count == 1 else "resemble"
            yield (
                f"{subject}: {similar_count:,} of {size} {verb} a training row, so that the scores may be too good "
                "(each shares at least half of its three-word sequences)"
            )
