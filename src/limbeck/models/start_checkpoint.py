"""The start of a student from a saved model with the same tensors."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from limbeck.errors import ModelError
from limbeck.models.families import base_model, shape_of
from limbeck.models.heads import head_of, model_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.quiet import quiet
from limbeck.models.start_head import copy_head

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def same_tensors(config: PreTrainedConfig, other: PreTrainedConfig) -> bool:
    """Return whether models of two configurations have the same tensors; no weight is read or made.

    The number of heads may differ where no tensor depends on it: MLKD-BERT's students with fewer heads start from
    TinyBERT's (section 4.2).
    """
    shape, others = shape_of(config), shape_of(other)
    alike = replace(others, heads=shape.heads, key_value_heads=shape.key_value_heads, head_size=shape.head_size)
    if shape == others:
        return True
    if shape != alike:
        return False
    sizes = []
    with torch.device("meta"), quiet():
        for each_config in (config, other):
            model = model_class(each_config)(copy.deepcopy(each_config))
            sizes.append({name: tensor.shape for name, tensor in model.state_dict().items()})
    return sizes[0] == sizes[1]


@torch.no_grad()
def load_checkpoint(student: PreTrainedModel, name_or_path: str | Path) -> list[str]:
    """Set the student's weights from a saved model with the same tensors, in place.

    A task head and a pooler are set too where the checkpoint has the same, else they stay as they are. Configurations
    are compared before any weight is read, see `same_tensors`.

    Args:
        student: With or without a head.
        name_or_path: The earlier student: a folder, `package:NAME`, or a Hub name.

    Returns:
        Names of the tensors that were set.

    Raises:
        ModelError: for everything `load_model` refuses, and a checkpoint of another shape.
    """
    config = load_config(name_or_path)
    ours, theirs = shape_of(student.config), shape_of(config)
    if not same_tensors(student.config, config):
        raise ModelError(
            f"The checkpoint '{name_or_path}' is {theirs}, vocabulary {theirs.vocabulary}, positions "
            f"{theirs.positions}; the student is {ours}, vocabulary {ours.vocabulary}, positions "
            f"{ours.positions}: give the student that shape, or start it from the checkpoint's layers with "
            "it as the teacher."
        )
    head = head_of(config) if type(student).__name__ in (config.architectures or []) else None
    target = base_model(student).state_dict()
    poolers = [name for name in target if name.startswith("pooler.")]
    source = load_model(name_or_path, head=head, pooler=bool(poolers))
    source_tensors = base_model(source).state_dict()
    target = {name: tensor for name, tensor in target.items() if name in source_tensors or name not in poolers}
    lacking = [
        name for name in target if name not in source_tensors or source_tensors[name].shape != target[name].shape
    ]
    if lacking:
        raise ModelError(
            f"The checkpoint '{name_or_path}' has no tensor that fits '{lacking[0]}' ({len(lacking)} in "
            "all); derive the student's configuration from that of its start."
        )
    for name, tensor in target.items():
        tensor.copy_(source_tensors[name])
    return list(dict.fromkeys([*target, *copy_head(student, source)]))
