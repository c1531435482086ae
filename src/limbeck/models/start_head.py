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
    """Start the student's head, and a pooler below it, from the source's, where shapes are equal.

    Args:
        student: Changed in place. Parameters tied to its embeddings are left alone.
        source: The model whose head and pooler are taken, as far as it has them.

    Returns:
        The names that were copied.
    """
    prefix = student.base_model_prefix + "."
    # A parameter of the head that is tied to the embeddings is the very same object as theirs, so it is told by its id.
    ids_below_head = set()
    for name, parameter in base_model(student).named_parameters():
        if not name.startswith("pooler."):
            ids_below_head.add(id(parameter))
    source_parameters = dict(source.named_parameters())
    copied_names = []
    for name, parameter in student.named_parameters():
        value = source_parameters.get(name)
        is_below_head = id(parameter) in ids_below_head
        if is_below_head or value is None or value.shape != parameter.shape:
            continue
        parameter.copy_(value)
        copied_names.append(name.removeprefix(prefix))
    return copied_names
