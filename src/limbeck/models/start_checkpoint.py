"""The start of a student from a *checkpoint*: a saved model with the same tensors."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from limbeck.errors import ModelError
from limbeck.models.families import Shape, base_model, shape_of
from limbeck.models.heads import head_of, model_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.quiet import quiet
from limbeck.models.start_head import copy_head

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@torch.no_grad()
def load_checkpoint(student: PreTrainedModel, name_or_path: str | Path) -> list[str]:
    """Set the student's weights from a saved model with the same tensors, in place.

    A task head and a pooler are set too where the checkpoint has the same, else they stay as they are. Configurations
    are compared before any weight is read, see `same_tensors`.

    Args:
        student: The student, with or without a head.
        name_or_path: The earlier student: a folder, `package:NAME`, or a Hub name.

    Returns:
        Names of the tensors that were set.

    Raises:
        ModelError: for everything `load_model` refuses, and a checkpoint of another shape.
    """
    config = load_config(name_or_path)
    if not same_tensors(student.config, config):
        raise _other_shape_error(name_or_path, shape_of(student.config), shape_of(config))

    # The checkpoint is loaded with a head only if it was saved as the student's class, and with a pooler only if the
    # student has one.
    head = None
    if type(student).__name__ in (config.architectures or []):
        head = head_of(config)
    student_tensors = base_model(student).state_dict()
    has_pooler = any(_is_of_pooler(name) for name in student_tensors)
    checkpoint = load_model(name_or_path, head=head, pooler=has_pooler)
    checkpoint_tensors = base_model(checkpoint).state_dict()

    names = []
    lacking = []
    for name, student_tensor in student_tensors.items():
        tensor = checkpoint_tensors.get(name)
        if tensor is None and _is_of_pooler(name):
            # A pooler that the checkpoint lacks stays as it is.
            continue
        names.append(name)
        if tensor is None or tensor.shape != student_tensor.shape:
            lacking.append(name)
    if lacking:
        raise ModelError(
            f"The checkpoint '{name_or_path}' has no tensor that fits the student's '{lacking[0]}' ({len(lacking)} "
            "in all); give the student the shape of the checkpoint."
        )
    for name in names:
        # A tensor of the state dict shares the student's memory, so this changes the student.
        student_tensors[name].copy_(checkpoint_tensors[name])
    # This copies everything around the base model and, once more, the pooler, which is named as above.
    names_of_head = copy_head(student, checkpoint)
    return list(dict.fromkeys([*names, *names_of_head]))


def _is_of_pooler(name: str) -> bool:
    """Whether a tensor of the base model belongs to its pooler."""
    return name.startswith("pooler.")


def _other_shape_error(name_or_path: str | Path, student: Shape, checkpoint: Shape) -> ModelError:
    """The error for a checkpoint of another shape than the student's."""
    return ModelError(
        f"The checkpoint '{name_or_path}' is {checkpoint}, vocabulary {checkpoint.vocabulary}, positions "
        f"{checkpoint.positions}; the student is {student}, vocabulary {student.vocabulary}, positions "
        f"{student.positions}: give the student that shape, or start it from the checkpoint's layers with "
        "it as the teacher."
    )


def same_tensors(student: PreTrainedConfig, checkpoint: PreTrainedConfig) -> bool:
    """Return whether models of two configurations have the same tensors; no weight is read or made.

    The number of heads may differ where no tensor depends on it: MLKD-BERT's students with fewer heads start from
    TinyBERT's (section 4.2).
    """
    student_shape = shape_of(student)
    checkpoint_shape = shape_of(checkpoint)
    if student_shape == checkpoint_shape:
        return True
    # The three numbers that describe the heads; the hidden width and all other numbers have to be equal.
    with_student_heads = replace(
        checkpoint_shape,
        heads=student_shape.heads,
        key_value_heads=student_shape.key_value_heads,
        head_size=student_shape.head_size,
    )
    if student_shape != with_student_heads:
        return False
    # Only the heads differ. Models without memory show whether any tensor's shape depends on them.
    return _tensor_shapes(student) == _tensor_shapes(checkpoint)


def _tensor_shapes(config: PreTrainedConfig) -> dict[str, torch.Size]:
    """Return the shape of each tensor of a configuration's model, which is built without memory."""
    with torch.device("meta"), quiet():
        # Building a model may change its configuration.
        model = model_class(config)(copy.deepcopy(config))
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
