"""Rows to choose settings on, which are held out of the rows to train on if a task has only a test split besides."""

from dataclasses import replace

import numpy as np

from limbeck.corpus.building.splitting import draw_groups
from limbeck.corpus.text.documents import Document
from limbeck.evaluation.tasks.splits import TRAIN, name_some
from limbeck.kinds.task import SplitFacts, TaskData

HELD_OUT = "held_out"
"""The split of the rows that are held out."""


def hold_out_rows(data: TaskData) -> TaskData:
    """Hold out some of the rows to train on, so that settings are not chosen on the test split.

    There are 500 of them, or a tenth of fewer than 5,000 rows. Near duplicates stay together, on one side or the other,
    as in corpora. If all rows are near duplicates, nothing is held out.
    """
    task = data.task
    rows = data.splits[TRAIN]
    keys = np.array([Document(row.text).key for row in rows], np.uint64)
    drawn = draw_groups([(row.text, row.pair) for row in rows], keys)
    held_out = []
    trained = []
    for row, is_held_out in zip(rows, drawn.is_held_out, strict=True):
        if is_held_out:
            held_out.append(row)
        else:
            trained.append(row)
    if not held_out:
        return data

    reason = "no others are labelled"
    if task.scored:
        reason = f"the only other rows are those of {name_some(task.scored)}, which are only scored"
    note = (
        f"{task.title}: {len(held_out)} of its {len(rows)} training rows are held out to choose settings on, since "
        f"{reason}"
    )
    # Each row has its language itself, so the facts of the new split need not say it.
    return replace(
        data,
        task=replace(task, select=HELD_OUT, splits={**task.splits, HELD_OUT: SplitFacts()}),
        splits={**data.splits, TRAIN: trained, HELD_OUT: held_out},
        notes=(*data.notes, note),
    )
