"""Scores of teacher and student on the held-out labelled rows of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core import IGNORED_LABEL, records
from limbeck.core.blocks import counted
from limbeck.core.kinds import KINDS
from limbeck.errors import CorpusError
from limbeck.models import families, inference, streams, taps

METRICS = {
    "classification": "accuracy",
    "multi_label": "micro_f1",
    "regression": "spearman",
    "question_answering": "exact_span",
    "token_classification": "accuracy",
    "ranking": "spearman",
}
"""Task to metric: the share of right classes (of texts or words), the F1 of all rows and classes where a row may have
several, the rank correlation with values or scores, or the share of windows whose start and end are both right."""


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    batch_size: int = 32,
) -> records.TaskFigures:
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
        raise CorpusError(
            f"{counted(len(rows), 'row')} held out: too few to score; give corpus.development, or a larger held_out."
        )
    parts = (range(len(rows))[start : start + batch_size] for start in range(0, len(rows), batch_size))
    batches = [collate([rows[index] for index in part]) for part in parts]
    labels = torch.cat([_labels_of(batch, task) for batch in batches])
    of_student = _predict(student, batches, task)
    of_teacher = _predict(teacher, batches, task) if teacher is not None else None
    return records.TaskFigures(
        task=task,
        metric=METRICS[task],
        rows=len(rows),
        teacher=None if of_teacher is None else _score(of_teacher, labels, task),
        student=_score(of_student, labels, task),
        agreement=None if of_teacher is None else _score(of_student, of_teacher, task),
        only_answer=True if len(of_student.unique(dim=0)) == 1 else None,
    )


def _labels_of(batch: dict[str, Tensor], task: str) -> Tensor:
    """Take the labels out of a batch; of tagged words those of the tokens that have one, which then are `scored`."""
    labels = batch.pop("labels")
    if not KINDS[task].of_words:
        return labels
    batch["scored"] = labels != IGNORED_LABEL
    return labels[batch["scored"]]


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], task: str) -> Tensor:
    """The predicted classes `[rows]` or `[words]`, given ones `[rows, classes]`, values, or ends `[rows, 2]`."""
    key = streams.StreamKey("logits", families.depth(model.config))
    device, was_training = inference.device_of(model), model.training
    found = []
    with taps.StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            logits = tap(**{name: tensor.to(device) for name, tensor in batch.items()})[key].float().cpu()
            kind = KINDS[task]
            of_rows = logits[:, 0] if kind.has_value else logits > 0 if kind.has_several else logits.argmax(-1)
            found.append(of_rows)
    model.train(was_training)
    return torch.cat(found)


def _score(predicted: Tensor, wanted: Tensor, task: str) -> float | None:
    if KINDS[task].has_value:
        if len(predicted.unique()) == 1 or len(wanted.unique()) == 1 or bool(wanted.isnan().any()):
            return None
        from scipy.stats import spearmanr  # As in `similarities`.

        return float(spearmanr(predicted.numpy(), wanted.numpy()).statistic)
    if KINDS[task].has_several:
        ours, theirs = predicted.bool(), wanted.bool()
        given = int(ours.sum()) + int(theirs.sum())
        return 2 * int((ours & theirs).sum()) / given if given else None
    right = predicted == wanted
    return float((right.all(-1) if right.dim() == 2 else right).float().mean())
