"""`run_cell`: one cell from its settings to its scores; `train_once`: one fine-tuning that several cells share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.errors import ModelError, TrainingError
from limbeck.evaluation.fine_tuning.best_epoch import BestEpoch
from limbeck.evaluation.fine_tuning.cell import Cell, SimilarityPoint
from limbeck.evaluation.fine_tuning.prepared import PreparedCell, PreparedTask
from limbeck.evaluation.fine_tuning.progress import Share
from limbeck.evaluation.fine_tuning.similarity import pooling_of, predict_similarities
from limbeck.evaluation.fine_tuning.task_model import check_padding, load_task_model, take_padding
from limbeck.evaluation.fine_tuning.training import FineTuner, training_arguments
from limbeck.evaluation.metrics.scoring import score
from limbeck.evaluation.tasks.predictions import Predictions
from limbeck.models.families import shape_of
from limbeck.models.loading import load_model, quiet
from limbeck.models.vocabulary import check_fits_model, load_tokenizer

Scores = Mapping[str, Mapping[str, float]]
"""Split to metric to value, 0 to 1 (correlations -1 to 1)."""


@dataclass(frozen=True)
class CellResult:
    """What a cell gave.

    Attributes:
        scores: Of every scored split, and of the select split.
        predictions: Of the unlabelled splits.
        epoch: Whose weights were scored; None where they are the last.
        rows: How many there were to train on, and in every scored split.
        seconds: For everything, tokens and data apart; a training that is shared counts for each of its cells.
        training_seconds: Of the training alone; 0 where nothing is trained.
    """

    scores: Scores
    predictions: Mapping[str, Predictions]
    epoch: float | None
    rows: Mapping[str, int]
    seconds: float
    training_seconds: float


def run_cell(cell: Cell, prepared: PreparedTask, report: Share) -> CellResult:
    """Fine-tune a model on a task, or take its sentence vectors, and score it.

    Args:
        cell: What to run.
        prepared: Its task.
        report: Is told how far it is.

    Raises:
        LimbeckError: as `train_once` and `Trained.score`.
    """
    whole = PreparedCell(cell, prepared)
    return train_once([whole], report).score(whole)


@dataclass(frozen=True)
class Trained:
    """What cells with one training are scored by.

    Attributes:
        tuner: Holds the fine-tuned model; None where nothing is trained.
        best_epochs: Of the cells that keep the weights of an epoch.
        seconds: For the training.
    """

    tuner: FineTuner | None
    best_epochs: Mapping[Cell, BestEpoch]
    seconds: float

    def score(self, cell: PreparedCell) -> CellResult:
        """Score one of the cells, by the weights that its settings keep.

        Raises:
            LimbeckError: one clear line: a weight that is not finite, a device that is out of memory, a model without
                sentence vectors.
        """
        started = time.monotonic()
        best = self.best_epochs.get(cell.cell)
        with _plainly():
            scores, predictions = _similarities(cell) if self.tuner is None else _scored(cell, self.tuner, best)
        rows = {"train": cell.task.train_rows, **{split: len(cell.task.rows[split]) for split in scores}}
        seconds = self.seconds + time.monotonic() - started
        epoch = None if best is None else best.epoch
        return CellResult(scores, predictions, epoch, rows, round(seconds, 3), round(self.seconds, 3))


def train_once(cells: Sequence[PreparedCell], report: Share) -> Trained:
    """Fine-tune a model once, for all cells that it is then scored for.

    Args:
        cells: At least one; all of the same training, see `training_identity`. They differ in what they are scored on
            and in which epoch they keep.
        report: Is told how far it is.

    Raises:
        LimbeckError: one clear line: a model that cannot be loaded or takes fewer tokens than asked for, a device that
            is out of memory.
    """
    started = time.monotonic()
    (cell, prepared), point = cells[0], cells[0].cell.point
    if isinstance(point, SimilarityPoint):
        return Trained(None, {}, 0.0)
    with _plainly():
        tokenizer = load_tokenizer(cell.model)
        arguments = training_arguments(point, cell.seed)
        model = load_task_model(cell.model, prepared.task, seed=cell.seed)
        _check_inputs(cell.model, model, tokenizer, point.length)
        take_padding(model, tokenizer)
        tuner = FineTuner(model, tokenizer, prepared, arguments)
        found = {each.cell: _best_epoch(each, tuner) for each in cells}
        best_epochs = {cell: best for cell, best in found.items() if best is not None}
        tuner.train(report, list(best_epochs.values()))
    return Trained(tuner, best_epochs, time.monotonic() - started)


def select_split(prepared: PreparedTask) -> str | None:
    """Return the split that grid points and epochs are chosen on: the task's, else the first that is scored."""
    task = prepared.task
    if task.select is not None and task.select in prepared.rows:
        return task.select
    return task.scored[0] if task.scored else None


def _best_epoch(cell: PreparedCell, tuner: FineTuner) -> BestEpoch | None:
    point, split = cell.cell.point, select_split(cell.task)
    if isinstance(point, SimilarityPoint) or point.best_epoch_by is None or split is None:
        return None
    return BestEpoch(partial(_selected, tuner, cell.task, split, point.best_epoch_by))


def _selected(tuner: FineTuner, prepared: PreparedTask, split: str, metric: str) -> float:
    """What an epoch is kept by."""
    scores = score(prepared.task, split, prepared.rows[split], tuner.predict(prepared, split))
    return scores[metric] if metric in scores else next(iter(scores.values()))


def _scored(cell: PreparedCell, tuner: FineTuner, best: BestEpoch | None) -> tuple[Scores, Mapping[str, Predictions]]:
    tuner.settle(best)
    prepared, task, select = cell.task, cell.task.task, select_split(cell.task)
    splits = dict.fromkeys([*task.scored, *([select] if select is not None else [])])
    scores = {split: score(task, split, prepared.rows[split], tuner.predict(prepared, split)) for split in splits}
    return scores, {split: tuner.predict(prepared, split) for split in task.predicted if split in prepared.rows}


def _similarities(cell: PreparedCell) -> tuple[Scores, Mapping[str, Predictions]]:
    name, point, prepared = cell.cell.model, cell.cell.point, cell.task
    assert isinstance(point, SimilarityPoint)
    tokenizer = load_tokenizer(name)
    model: PreTrainedModel = load_model(name)
    if torch.accelerator.is_available():
        model = model.to(torch.accelerator.current_accelerator())
    pooling = pooling_of(name, point)
    scores = {
        split: score(
            prepared.task,
            split,
            prepared.rows[split],
            predict_similarities(model, tokenizer, prepared, split, point, pooling),
        )
        for split in prepared.task.scored
    }
    return scores, {}


@contextmanager
def _plainly() -> Iterator[None]:
    """Keep libraries quiet, and say in one line what to do about a full device."""
    try:
        with quiet():
            yield
    except torch.OutOfMemoryError:
        raise TrainingError("The device is out of memory; --set batch_size or length lower.") from None


def _check_inputs(name: str, model: PreTrainedModel, tokenizer: Any, length: int) -> None:
    """Refuse tokens that the model has no embedding for, and rows that are longer than it takes."""
    shape = shape_of(model.config)
    check_padding(name, tokenizer)
    check_fits_model(tokenizer, shape.vocabulary)
    if shape.positions is not None and length > shape.positions:
        raise ModelError(f"'{name}' takes {shape.positions} tokens, not {length}; --set length={shape.positions}.")
