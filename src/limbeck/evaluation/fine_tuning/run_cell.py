"""`run_cell`: one cell from its settings to its scores."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.errors import ModelError, TrainingError
from limbeck.evaluation.fine_tuning.cell import Cell, SimilarityPoint, TrainingPoint
from limbeck.evaluation.fine_tuning.prepared import PreparedTask
from limbeck.evaluation.fine_tuning.progress import Share
from limbeck.evaluation.fine_tuning.similarity import pooling_of, predict_similarities
from limbeck.evaluation.fine_tuning.task_model import load_task_model
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
        seconds: For everything, tokens and data apart.
    """

    scores: Scores
    predictions: Mapping[str, Predictions]
    epoch: float | None
    rows: Mapping[str, int]
    seconds: float


def run_cell(cell: Cell, prepared: PreparedTask, report: Share) -> CellResult:
    """Fine-tune a model on a task, or take its sentence vectors, and score it.

    Args:
        cell: What to run.
        prepared: Its task.
        report: Is told how far it is.

    Raises:
        LimbeckError: one clear line: a model that cannot be loaded or takes fewer tokens than asked for, a training
            that diverged, a device that is out of memory.
    """
    started = time.monotonic()
    epoch: float | None = None
    predictions: Mapping[str, Predictions] = {}
    try:
        with quiet():
            if isinstance(cell.point, SimilarityPoint):
                scores = _similarity_scores(cell, cell.point, prepared)
            else:
                epoch, scores, predictions = _fine_tuned(cell, cell.point, prepared, report)
    except torch.OutOfMemoryError:
        raise TrainingError("The device is out of memory; --set batch_size or length lower.") from None
    rows = {"train": prepared.train_rows, **{split: len(prepared.rows[split]) for split in scores}}
    return CellResult(scores, predictions, epoch, rows, round(time.monotonic() - started, 3))


def _fine_tuned(
    cell: Cell, point: TrainingPoint, prepared: PreparedTask, report: Share
) -> tuple[float | None, Scores, Mapping[str, Predictions]]:
    task = prepared.task
    tokenizer = load_tokenizer(cell.model)
    with tempfile.TemporaryDirectory(prefix="limbeck-cell-") as scratch:
        arguments = training_arguments(point, cell.seed, scratch)
        model = load_task_model(cell.model, task, seed=cell.seed)
        _check_inputs(cell.model, model, tokenizer, point.length)
        tuner = FineTuner(model, tokenizer, prepared, arguments)

        def scored(split: str) -> dict[str, float]:
            return score(task, split, prepared.rows[split], tuner.predict(split))

        select = select_split(prepared)
        best_by: Callable[[], float] | None = None
        if point.best_epoch_by is not None and select is not None:
            metric = point.best_epoch_by
            best_by = lambda: _one(scored(select), metric)  # noqa: E731 - reads as what it is
        epoch = tuner.train(report, best_by)
        splits = dict.fromkeys([*task.scored, *([select] if select is not None else [])])
        scores = {split: scored(split) for split in splits}
        return epoch, scores, {split: tuner.predict(split) for split in task.predicted if split in prepared.rows}


def select_split(prepared: PreparedTask) -> str | None:
    """Return the split that grid points and epochs are chosen on: the task's, else the first that is scored."""
    task = prepared.task
    if task.select is not None and task.select in prepared.rows:
        return task.select
    return task.scored[0] if task.scored else None


def _one(scores: Mapping[str, float], metric: str) -> float:
    return scores[metric] if metric in scores else next(iter(scores.values()))


def _similarity_scores(cell: Cell, point: SimilarityPoint, prepared: PreparedTask) -> Scores:
    tokenizer = load_tokenizer(cell.model)
    model: PreTrainedModel = load_model(cell.model)
    if torch.accelerator.is_available():
        model = model.to(torch.accelerator.current_accelerator())
    pooling = pooling_of(cell.model, point)
    return {
        split: score(
            prepared.task,
            split,
            prepared.rows[split],
            predict_similarities(model, tokenizer, prepared, split, point, pooling),
        )
        for split in prepared.task.scored
    }


def _check_inputs(name: str, model: PreTrainedModel, tokenizer: Any, length: int) -> None:
    """Refuse tokens that the model has no embedding for, and rows that are longer than it takes."""
    shape = shape_of(model.config)
    check_fits_model(tokenizer, shape.vocabulary)
    if shape.positions is not None and length > shape.positions:
        raise ModelError(f"'{name}' takes {shape.positions} tokens, not {length}; --set length={shape.positions}.")
