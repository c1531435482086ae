"""Starting a student from an earlier student's folder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from limbeck.errors import ModelError
from limbeck.models.families import base_model, shape_of
from limbeck.models.heads import HEADS, copy_head, has_head, head_class
from limbeck.models.loading import load_config, load_model


@torch.no_grad()
def load_checkpoint(student: PreTrainedModel, name_or_path: str | Path, *, revision: str | None = None) -> list[str]:
    """Set the student's weights from a saved model of the same shape, in place.

    A task head is set too where the checkpoint has the same, else it stays as it is. The shapes are compared before any
    weight is read.

    Args:
        student: With or without a head.
        name_or_path: The earlier student: a folder, `package:NAME`, or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Returns:
        Names of the tensors that were set.

    Raises:
        ModelError: for everything `load_model` refuses, and a checkpoint of another shape.
    """
    ours, theirs = shape_of(student.config), shape_of(load_config(name_or_path, revision))
    if ours != theirs:
        raise ModelError(
            f"The checkpoint '{name_or_path}' is {theirs}, vocabulary {theirs.vocabulary}, positions "
            f"{theirs.positions}; the student is {ours}, vocabulary {ours.vocabulary}, positions "
            f"{ours.positions}: give the student that shape, or start it from the checkpoint's layers with "
            "it as the teacher."
        )
    source = _load_alike(student, name_or_path, revision)
    given = base_model(source).state_dict()
    target = base_model(student).state_dict()
    lacking = [name for name in target if name not in given or given[name].shape != target[name].shape]
    if lacking:
        raise ModelError(
            f"The checkpoint '{name_or_path}' has no tensor that fits '{lacking[0]}' ({len(lacking)} in "
            "all); derive the student's configuration from the one that was used for it."
        )
    for name, tensor in target.items():
        tensor.copy_(given[name])
    copied = copy_head(student, source) if base_model(source) is not source else []
    return [*target, *copied]


def _load_alike(student: PreTrainedModel, name_or_path: str | Path, revision: str | None) -> PreTrainedModel:
    """Load the checkpoint with the student's head where it was saved with one, else the Transformer alone."""
    config = load_config(name_or_path, revision)
    saved_alike = type(student).__name__ in (config.architectures or [])
    kinds = (head for head in HEADS if has_head(config, head) and type(student) is head_class(config, head))
    head = next(kinds, None) if saved_alike else None
    pooler = any(name.startswith("pooler.") for name in base_model(student).state_dict())
    return load_model(name_or_path, revision=revision, head=head, pooler=pooler)
