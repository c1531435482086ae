"""Rows of a user's own task that are both trained on and scored, so that a score on them may be too good."""

from collections.abc import Iterator

from limbeck.core.blocks import counted
from limbeck.corpus.building.splitting import comparable_texts
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.task import TaskData


def repeated_row_notes(data: TaskData) -> Iterator[str]:
    """Yield a note for each split that repeats rows to train on, except for case, punctuation and white space.

    Nothing is left out: the rows of a task are those of its files.
    """
    trained_texts = {comparable_texts(row) for row in data.splits.get(TRAIN, ())}
    for split, rows in data.splits.items():
        if split == TRAIN:
            continue
        # A document of a ranking that belongs to no query has no text of its own.
        repeated = [row for row in rows if row.text and comparable_texts(row) in trained_texts]
        if not repeated:
            continue
        verb = "repeats" if len(repeated) == 1 else "repeat"
        yield (
            f"{data.task.title} {split}: {len(repeated):,} of {counted(len(rows), 'row')} {verb} a training row, so "
            "that the scores may be too good (case, punctuation and spaces do not count)"
        )
