"""The start of a student's task head: a copy of the source's, where shapes are equal.

The *source* is the model that the student starts from, usually its teacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from limbeck.models.families import base_model
from limbeck.models.start_step import Start, StartStep

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TaskHead(StartStep):
    """The task head, which reads what embeddings and layers give."""

    name = "head"
    place = "head"

    def apply(self, start: Start) -> None:
        """Copy the head of a source that has the same, unless the student's embeddings are random."""
        is_same = start.head is not None and start.source_head == start.head
        if is_same and start.embeddings != "random":
            start.copied_head = copy_head(start.student, start.source)


@torch.no_grad()
def copy_head(student: PreTrainedModel, source: PreTrainedModel) -> list[str]:
    """Copy the source's head, and the pooler below it, into the student, where shapes are equal.

    Args:
        student: Changed in place. Parameters tied to its embeddings are left alone.
        source: The model whose head and pooler are taken, as far as it has them.

    Returns:
        The names that were copied; a pooler's are those in the base model.
    """
    prefix = student.base_model_prefix + "."
    # The encoder is all of the base model but the pooler. A parameter of the head that is tied to the embeddings is the
    # very same object as theirs, so parameters are compared by their ids.
    ids_of_encoder = set()
    for name, parameter in base_model(student).named_parameters():
        if not name.startswith("pooler."):
            ids_of_encoder.add(id(parameter))
    source_parameters = dict(source.named_parameters())
    copied_names = []
    for name, parameter in student.named_parameters():
        value = source_parameters.get(name)
        is_of_encoder = id(parameter) in ids_of_encoder
        if is_of_encoder or value is None or value.shape != parameter.shape:
            continue
        parameter.copy_(value)
        copied_names.append(name.removeprefix(prefix))
    return copied_names
