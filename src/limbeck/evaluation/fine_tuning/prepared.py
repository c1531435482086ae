"""`PreparedTask`: a task's rows and tokens, made once and shared by all cells of a tokenizer and a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.files import build_once, fingerprint
from limbeck.corpus.documents import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.fine_tuning.cell import Cell, Point, SimilarityPoint, TrainingPoint
from limbeck.evaluation.fine_tuning.encoding import drawn, encode_sequences
from limbeck.evaluation.fine_tuning.question_encoding import encode_questions
from limbeck.evaluation.tasks.load import TRAIN
from limbeck.evaluation.tasks.task import Task, TaskData, TaskRow

TOKEN_FORMAT = 2
"""Raise it when the same rows would give other tokens, or other files: older ones are then made anew."""


class TokenKeys(NamedTuple):
    """Fingerprints of what tokens are made of.

    Attributes:
        tokenizer: The tokenizer.
        rows: All rows of the task.
        training_set: The rows that it is trained on, which may be another task's too.
    """

    tokenizer: str
    rows: str
    training_set: str


@dataclass(frozen=True)
class PreparedTask:
    """What a cell needs of its task; it can be sent to another process.

    Attributes:
        task: The task.
        rows: The rows of every split that is scored or predicted.
        train_rows: How many rows there are to train on.
        train_folder: Holds the file of tokens to train on, for all tasks that are trained on them; None where nothing
            is trained.
        folder: Holds a file of tokens for each split of `rows`; None where nothing is trained.
        notes: Rows cut or left out on the way to tokens, for the user to read.
    """

    task: Task
    rows: Mapping[str, Sequence[TaskRow]]
    train_rows: int = 0
    train_folder: Path | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def tokens(self, split: str) -> Path:
        """Return the file of a split's tokens; of those to train on, for `"train"`."""
        assert self.folder is not None and self.train_folder is not None, f"{self.task.name} has no tokens"
        return self.train_folder / _file(0) if split == TRAIN else self.folder / _file([*self.rows].index(split))


class PreparedCell(NamedTuple):
    """A cell and its task's rows and tokens."""

    cell: Cell
    task: PreparedTask


def prepare(data: TaskData, point: Point, tokenizer: Any, *, keys: TokenKeys, cache_dir: Path) -> PreparedTask:
    """Draw the rows that a grid point asks for, and encode them unless that was done before.

    Args:
        data: All rows of the task.
        point: Any of its grid points: all of them have the same length and draw the same rows.
        tokenizer: Of the model.
        keys: Of tokenizer and rows.
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
        return PreparedTask(task, rows)
    if not data.splits.get(TRAIN):
        raise CorpusError(f"{task.title} has no rows to train on ({task.train}); give --data a folder that has them.")
    train = drawn(data.splits[TRAIN], point.max_train_rows)
    encoder = _Encoder(task, tokenizer, point, cache_dir / "evaluation")
    choices = [TOKEN_FORMAT, keys.tokenizer, point.length, point.stride]
    train_folder, cut = encoder.encode({TRAIN: train}, [*choices, keys.training_set, point.max_train_rows])
    folder, more = encoder.encode(rows, [*choices, keys.rows, point.max_scored_rows, list(rows)])
    return PreparedTask(task, rows, len(train), train_folder, folder, (*cut, *more))


@dataclass(frozen=True)
class _Encoder:
    """Encodes splits of one task."""

    task: Task
    tokenizer: Any
    point: TrainingPoint
    root: Path

    def encode(self, splits: Mapping[str, Sequence[TaskRow]], key: Sequence[Any]) -> tuple[Path, list[str]]:
        """Return the folder of the splits' files, one after the other, and what there is to say about them."""
        folder = self.root / fingerprint(list(key))

        def build(aside: Path) -> dict[str, Any]:
            return {
                "reports": [
                    self._encode(rows, aside / _file(number), split == TRAIN).to_dict()
                    for number, (split, rows) in enumerate(splits.items())
                ]
            }

        reports = build_once(folder, build)["reports"]
        notes = [
            f"{self.task.title} {split}: {line}"
            for split, report in zip(splits, reports, strict=True)
            for line in SourceReport.from_dict(report).lines()
        ]
        return folder, notes

    def _encode(self, rows: Sequence[TaskRow], path: Path, training: bool) -> SourceReport:
        length = self.point.length
        if self.task.kind == "question_answering":
            return encode_questions(rows, self.tokenizer, length, self.point.stride, path, training=training)
        return encode_sequences(rows, self.task, self.tokenizer, length, path, labelled=training)


def _file(number: int) -> str:
    return f"{number:02d}.arrow"
