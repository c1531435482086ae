"""`measure_task`: scores of teacher and student on the held-out labelled rows of a run's corpus."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.corpus.batches.batch import LABELS
from limbeck.errors import CorpusError
from limbeck.kinds.kind import Kind
from limbeck.kinds.registry import KINDS
from limbeck.models import families, inference, streams, taps


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    labelled: bool = True,
    batch_size: int = 32,
) -> records.TaskFigures:
    """Score teacher and student on rows of a task, by the kind's metric of held-out rows.

    Rows without labels give the agreement of the two models alone: the student's score with the teacher's answers as
    labels.

    Args:
        teacher: The teacher with the head of the task; None scores the student alone.
        student: The student with the head of the task.
        rows: Held-out rows.
        collate: Function that makes a batch of rows.
        task: Name of a kind of task.
        labelled: Whether the rows have labels.
        batch_size: Rows a forward pass.

    Raises:
        CorpusError: if there are fewer than 2 rows.
    """
    if len(rows) < 2:
        raise CorpusError(
            f"{counted(len(rows), 'row')} held out: too few to score; give corpus.development, or a larger held_out."
        )
    kind = KINDS[task]
    batches = []
    for start in range(0, len(rows), batch_size):
        end = min(start + batch_size, len(rows))
        batches.append(collate([rows[index] for index in range(start, end)]))
    # This removes the labels from the batches, in place: what remains are the inputs of the models. Words without
    # labels have them too, as marks of the tokens that are scored.
    labels_of_batches = [kind.held_out_labels(batch) for batch in batches if LABELS in batch]
    student_answers = _predict(student, batches, kind)
    gives_one_answer = len(student_answers.unique(dim=0)) == 1
    figures = records.TaskFigures(
        task=task,
        metric=kind.held_out_metric,
        rows=len(rows),
        # Records have the field only where it is true.
        only_answer=gives_one_answer or None,
    )
    labels = None
    if labelled:
        labels = torch.cat(labels_of_batches).numpy()
        figures.student = kind.held_out_score(student_answers.numpy(), labels)
    else:
        figures.labelled = False
    if teacher is not None:
        teacher_answers = _predict(teacher, batches, kind)
        if labels is not None:
            figures.teacher = kind.held_out_score(teacher_answers.numpy(), labels)
        figures.agreement = kind.held_out_score(student_answers.numpy(), teacher_answers.numpy())
    return figures


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], kind: Kind) -> Tensor:
    """Return what a head predicts of all rows, in the form of their labels, on the CPU."""
    key = streams.StreamKey("logits", families.depth(model.config))
    device = inference.device_of(model)
    was_training = model.training
    answers = []
    with taps.StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            inputs = {name: tensor.to(device) for name, tensor in batch.items()}
            logits = tap(**inputs)[key]
            answers.append(kind.held_out_predictions(logits.float().cpu()))
    model.train(was_training)
    return torch.cat(answers)
