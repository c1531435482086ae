"""Identities of cells and of their fine-tunings: hashes of all that their results depend on.

A finished cell with the same identity is not run again. Rows are part of an identity by their content.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from limbeck.core.hashing import fingerprint
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.points import settings_of
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.kind import Kind
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import AnswerRules, Task, TaskData

_SCORING_SETTINGS = ("best_epoch_by", "max_scored_rows", "choose_thresholds")
"""Settings of a training point that decide what is scored, and not how weights are trained."""
_DIGEST_BYTES = 12


def identity(cell: Cell, *, model: str, data: str, teacher: str | None = None) -> str:
    """Return the identity of a cell: a hash of its model, its rows, its settings and its seed.

    The folders of model and data and the versions of packages are not part of it.

    Args:
        cell: The cell.
        model: Fingerprint of the model.
        data: Fingerprint of the task's rows.
        teacher: Fingerprint of the point's teacher, where it has one.
    """
    point = settings_of(cell.point)
    if teacher is not None:
        # The point has the teacher's name, often a path; the fingerprint stays the same when the folder is moved.
        point["teacher"] = teacher
    return fingerprint({"model": model, "data": data, "point": point, "seed": cell.seed})


def training_identity(cell: Cell, *, model: str, training_set: str) -> str | None:
    """Return the identity of a cell's fine-tuning: a hash of everything that its weights depend on.

    These are the model, the rows to train on, the settings except those of scoring, and the seed. Cells with the same
    identity of the fine-tuning share it, also cells of several tasks. They may be scored by the weights of different
    epochs, which are all weights of the same fine-tuning.

    Args:
        cell: The cell.
        model: Fingerprint of the model.
        training_set: Fingerprint of the rows to train on.

    Returns:
        None where nothing is trained.
    """
    if not cell.is_trained:
        return None
    point = {name: value for name, value in settings_of(cell.point).items() if name not in _SCORING_SETTINGS}
    return fingerprint({"model": model, "training_set": training_set, "point": point, "seed": cell.seed})


def data_fingerprint(data: TaskData) -> str:
    """Return a hash of the facts that a task is scored by and of every row of its splits.

    Metrics are no part of it: a finished cell whose scores lack one is run again (`has_metrics`).
    """
    task = data.task
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    facts: list[Any] = [task.name, task.kind, task.labels, task.select, task.answerable_only]
    # Facts that earlier versions did not know are left out where they are the usual ones, so that the fingerprints of
    # those versions stay.
    if task.answer_rules != _usual_answer_rules(task):
        facts.append(task.answer_rules)
    if task.positive != _usual_positive(task):
        facts.append(["positive", task.positive])
    scoring_version = KINDS[task.kind].scoring_version
    if scoring_version != Kind.scoring_version:
        facts.append(["scoring", scoring_version])
    digest.update(json.dumps(facts).encode())
    for split in sorted(data.splits):
        digest.update(f"\0{split}\0".encode())
        _add_rows(digest, task.kind, data.splits[split])
    return digest.hexdigest()


def _usual_answer_rules(task: Task) -> AnswerRules | None:
    """Return the rules for answers of the built-in task of the same name; None, by the language, for an own task."""
    if task.name in TASKS:
        return TASKS[task.name].answer_rules
    return None


def _usual_positive(task: Task) -> str | None:
    """Return the class that `f1` was of before tasks named it: of two classes the second; None where it has none."""
    if task.positive is None or len(task.labels) != 2:
        return None
    return task.labels[1]


def training_set_fingerprint(data: TaskData) -> str:
    """Return a hash of the rows that a task is trained on, with the kind of its head and its classes.

    It is the same for tasks that are trained on the same rows: AX and XNLI on MNLI's, MLQA and XQuAD on SQuAD's.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(json.dumps([data.task.kind, data.task.labels]).encode())
    _add_rows(digest, data.task.kind, data.splits.get(TRAIN, ()))
    return digest.hexdigest()


def _add_rows(digest: hashlib.blake2b, kind: str, rows: Sequence[LabelledRow]) -> None:
    """Add the content of rows to a digest, in their order."""
    content_of = KINDS[kind].content
    for row in rows:
        digest.update(json.dumps(content_of(row), ensure_ascii=False).encode())
