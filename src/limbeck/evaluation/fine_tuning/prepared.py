"""`PreparedTask`: a task's rows and tokens, made once and shared by all cells of a tokenizer and a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.corpus.cache import build_once, fingerprint
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.fine_tuning.cell import Point, SimilarityPoint, TrainingPoint
from limbeck.evaluation.fine_tuning.encoding import drawn, encode_sequences
from limbeck.evaluation.fine_tuning.question_encoding import encode_questions
from limbeck.evaluation.tasks.task import Task, TaskData, TaskRow

TRAIN = "train"
TOKEN_FORMAT = 1
"""Raise it when the same rows would give other tokens: older files are then made anew."""


@dataclass(frozen=True)
class PreparedTask:
    """What a cell needs of its task; it can be sent to another process.

    Attributes:
        task: The task.
        rows: The rows of every split that is scored or predicted.
        train_rows: How many rows there are to train on.
        folder: Holds a file of tokens per split; None where nothing is trained.
        notes: Rows cut or left out on the way to tokens, for the user to read.
    """

    task: Task
    rows: Mapping[str, Sequence[TaskRow]]
    train_rows: int
    folder: Path | None
    notes: tuple[str, ...] = ()

    def tokens(self, split: str) -> Path:
        """Return the file of a split's tokens."""
        assert self.folder is not None, f"{self.task.name} has no tokens"
        names = [TRAIN, *self.rows]
        return self.folder / f"{names.index(split):02d}.arrow"


def prepare(data: TaskData, point: Point, tokenizer: Any, *, keys: Sequence[str], cache_dir: Path) -> PreparedTask:
    """Draw the rows that a grid point asks for, and encode them unless that was done before.

    Args:
        data: All rows of the task.
        point: Any of its grid points: all of them have the same length and draw the same rows.
        tokenizer: Of the model.
        keys: Fingerprints of the tokenizer and of the rows.
        cache_dir: Root of the cache of tokens.

    Raises:
        CorpusError: if the task has no rows to train on, or they cannot be encoded.
    """
    task = data.task
    # A leaderboard takes whole splits only, so none is predicted where rows are drawn.
    left_out = {TRAIN, *(task.predicted if point.max_scored_rows is not None else ())}
    rows = {
        split: drawn(found, point.max_scored_rows)
        for split, found in data.splits.items()
        if split not in left_out and found
    }
    if isinstance(point, SimilarityPoint):
        return PreparedTask(task, rows, 0, None)
    if not data.splits.get(TRAIN):
        raise CorpusError(f"{task.title} has no rows to train on ({task.train}); give --data a folder that has them.")
    train = drawn(data.splits[TRAIN], point.max_train_rows)
    choices = [point.length, point.stride, point.max_train_rows, point.max_scored_rows]
    folder = cache_dir / "evaluation" / fingerprint([TOKEN_FORMAT, *keys, *choices, sorted(rows)])
    prepared = PreparedTask(task, rows, len(train), folder)

    def build(aside: Path) -> dict[str, Any]:
        reports = {}
        for split, part in {TRAIN: train, **rows}.items():
            path = aside / prepared.tokens(split).name
            reports[split] = _encode(part, task, tokenizer, point, path, split == TRAIN).to_dict()
        return {"task": task.name, "reports": reports}

    manifest = build_once(folder, build)
    notes = tuple(
        f"{task.title} {split}: {line}"
        for split, report in manifest["reports"].items()
        for line in SourceReport.from_dict(report).lines()
    )
    return PreparedTask(task, rows, len(train), folder, notes)


def _encode(
    rows: Sequence[TaskRow], task: Task, tokenizer: Any, point: TrainingPoint, path: Path, training: bool
) -> SourceReport:
    if task.kind == "question_answering":
        return encode_questions(rows, tokenizer, point.length, point.stride, path, training=training)
    return encode_sequences(rows, task, tokenizer, point.length, path, labelled=training)
