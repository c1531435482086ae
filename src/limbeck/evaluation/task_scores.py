"""What a task-specific student gets right on held-out rows, beside its teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.errors import CorpusError
from limbeck.evaluation.inference import device_of
from limbeck.models.families import depth
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap

METRICS = {"classification": "accuracy", "regression": "spearman", "question_answering": "exact_span"}
"""Task to metric: the share of right classes, the rank correlation with the values, or the share of windows whose start
and end are both right."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of both models on the same held-out rows.

    Attributes:
        task: What is predicted.
        metric: How it is scored, see `METRICS`; 0 to 1, or -1 to 1 for a correlation.
        rows: Number of rows (windows for question answering).
        teacher: The teacher's score.
        student: The student's score.
        agreement: The same metric with the teacher's predictions in place of the labels.

    What has no teacher is None, as is a correlation with values that are all equal.
    """

    task: str
    metric: str
    rows: int
    teacher: float | None
    student: float | None
    agreement: float | None


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    batch_size: int = 32,
) -> TaskScores:
    """Score teacher and student on labelled rows.

    Args:
        teacher: With the head of the task; None scores the student alone.
        student: With the head of the task.
        rows: Held-out rows with `labels`.
        collate: Makes a batch of them.
        task: A key of `METRICS`.
        batch_size: Rows a forward pass.

    Raises:
        CorpusError: if there are fewer than 2 rows.
    """
    if len(rows) < 2:
        raise CorpusError(f"{len(rows)} rows are held out: too few to score; raise corpus.held_out.")
    batches = [
        collate([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        for start in range(0, len(rows), batch_size)
    ]
    labels = torch.cat([batch.pop("labels") for batch in batches])
    of_student = _predict(student, batches, task)
    of_teacher = _predict(teacher, batches, task) if teacher is not None else None
    return TaskScores(
        task=task,
        metric=METRICS[task],
        rows=len(rows),
        teacher=None if of_teacher is None else _score(of_teacher, labels, task),
        student=_score(of_student, labels, task),
        agreement=None if of_teacher is None else _score(of_student, of_teacher, task),
    )


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], task: str) -> Tensor:
    """The predicted classes `[rows]`, values `[rows]`, or start and end within the text `[rows, 2]`."""
    key = StreamKey("logits", depth(model.config))
    device, was_training = device_of(model), model.training
    found = []
    with StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            logits = tap(**{name: tensor.to(device) for name, tensor in batch.items()})[key].float().cpu()
            found.append(logits[:, 0] if task == "regression" else logits.argmax(-1))
    model.train(was_training)
    return torch.cat(found)


def _score(predicted: Tensor, wanted: Tensor, task: str) -> float | None:
    if task == "regression":
        if len(predicted.unique()) == 1 or len(wanted.unique()) == 1:
            return None
        return float(spearmanr(predicted.numpy(), wanted.numpy()).statistic)
    right = predicted == wanted
    return float((right.all(-1) if right.dim() == 2 else right).float().mean())
