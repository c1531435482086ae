"""The start of a student's task head: a copy of the source's, where shapes are equal.

The *source* is the model that the student starts from, usually its teacher.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from limbeck.models.families import Shape, base_model
from limbeck.models.start_embeddings import embedding_mode
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
    source_parameters = dict(source.named_parameters())
    copied_names = []
    for name, parameter in _parameters_of_head(student):
        value = source_parameters.get(name)
        if value is None or value.shape != parameter.shape:
            continue
        parameter.copy_(value)
        copied_names.append(_name_in_record(student, name))
    return copied_names


def may_take_head(student: Shape, source: Shape, embeddings: str) -> bool:
    """Return whether a student may start with the head of a source, by what is known before the two are loaded.

    A head reads states of the source's width, and says nothing of the words of random embeddings.

    Args:
        student: The student's shape.
        source: The source's shape.
        embeddings: Where the student's embeddings are from, as in a recipe.
    """
    if student.hidden != source.hidden:
        return False
    return embedding_mode(embeddings, student, source) != "random"


def names_of_head(model: PreTrainedModel) -> list[str]:
    """Return the names of the parameters of a model's head and of the pooler below it, as `copy_head` has them."""
    return [_name_in_record(model, name) for name, _ in _parameters_of_head(model)]


def _parameters_of_head(model: PreTrainedModel) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the parameters of a model's head and of the pooler below it, without those tied to the embeddings."""
    # The encoder is all of the base model but the pooler. A parameter of the head that is tied to the embeddings is the
    # very same object as theirs, so parameters are compared by their ids.
    ids_of_encoder = set()
    for name, parameter in base_model(model).named_parameters():
        if not name.startswith("pooler."):
            ids_of_encoder.add(id(parameter))
    for name, parameter in model.named_parameters():
        if id(parameter) not in ids_of_encoder:
            yield name, parameter


def _name_in_record(model: PreTrainedModel, name: str) -> str:
    """Return the name of a parameter as records have it: that of a pooler without the name of the base model."""
    return name.removeprefix(f"{model.base_model_prefix}.")
