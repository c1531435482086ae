"""Rows of a user's own task that are both trained on and scored: they are left out of the training, as in corpora."""

from dataclasses import replace

import numpy as np

from limbeck.core.blocks import counted
from limbeck.corpus.building.splitting import find_shared_rows
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.task import TaskData


def without_repeated_rows(data: TaskData) -> TaskData:
    """Leave out the rows to train on that other splits repeat, and note them and the rows that are similar.

    Case, punctuation and white space do not count.

    Raises:
        CorpusError: if no row to train on is left.
    """
    train_rows = data.splits.get(TRAIN, ())
    other_rows: list[LabelledRow] = []
    split_of_row: list[str] = []
    for split, rows in data.splits.items():
        if split == TRAIN:
            continue
        # A document of a ranking that belongs to no query is in a row without a query's text.
        rows_with_text = [row for row in rows if row.text]
        other_rows += rows_with_text
        split_of_row += [split] * len(rows_with_text)
    if not train_rows or not other_rows:
        return data

    shared = find_shared_rows(train_rows, other_rows)
    title = data.task.title
    notes = list(data.notes)
    repeated_count = int(shared.is_repeated.sum())
    if repeated_count == len(train_rows):
        raise CorpusError(
            f"Other splits of {title} repeat all of its {counted(repeated_count, 'training row')}, so that none is "
            "left to train on; give other rows to train on."
        )
    if repeated_count > 0:
        verb = "is" if repeated_count == 1 else "are"
        notes.append(
            f"{title} {TRAIN}: {repeated_count:,} of {counted(len(train_rows), 'row')} {verb} left out, because other "
            "splits repeat them (case, punctuation and spaces do not count)"
        )
    for split in dict.fromkeys(split_of_row):
        is_of_split = np.array([name == split for name in split_of_row])
        row_count = int(is_of_split.sum())
        similar_count = int(shared.resembles_train_row[is_of_split].sum())
        if similar_count > 0:
            verb = "resembles" if similar_count == 1 else "resemble"
            notes.append(
                f"{title} {split}: {similar_count:,} of {counted(row_count, 'row')} {verb} a training row, so that the "
                "scores may be too good (each shares at least half of its three-word sequences)"
            )
    trained_rows = [row for row, is_left_out in zip(train_rows, shared.is_repeated, strict=True) if not is_left_out]
    return replace(data, splits={**data.splits, TRAIN: trained_rows}, notes=tuple(notes))
