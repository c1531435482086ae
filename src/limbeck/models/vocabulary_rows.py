"""`cut_rows`: a model with the rows of some of its tokens, for a tokenizer whose vocabulary was cut.

A *row* is the part of a tensor that belongs to one token: a row of the word embeddings, and of an output layer over the
vocabulary with its bias.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from limbeck.errors import ModelError
from limbeck.models.families import family_of
from limbeck.models.pooler import pooler_option
from limbeck.models.quiet import quiet

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

_ID_FIELDS = "_token_id"
"""End of the names of a configuration's fields that hold the id of a token, or a list of ids."""


@torch.no_grad()
def cut_rows(model: PreTrainedModel, old_ids: Sequence[int]) -> PreTrainedModel:
    """Make a model that has the rows of some tokens; all else is as in the model that it is made of.

    Tensors that are tied stay tied.

    Args:
        model: The whole model, with a head or without. It is not changed.
        old_ids: For each token of the new model its id in `model`.

    Raises:
        ModelError: see `cut_config`, and for ids that the model has no rows of.
    """
    highest_id = max(old_ids)
    if highest_id >= model.config.vocab_size:
        raise ModelError(
            f"The model has {model.config.vocab_size} tokens, but the list of tokens to keep has the id "
            f"{highest_id}; give ids below {model.config.vocab_size}."
        )
    config = cut_config(model.config, old_ids)
    with quiet():
        # A model with a pooler keeps it.
        options: dict[str, Any] = {}
        if getattr(model, "pooler", None) is None:
            options = pooler_option(type(model))
        smaller: PreTrainedModel = type(model)._from_config(config, dtype=model.dtype, **options)
    tensors = model.state_dict()
    rows = torch.tensor(old_ids, dtype=torch.long)
    for name, tensor in smaller.state_dict().items():
        tensor.copy_(_rows_of(tensors[name], tensor, rows))
    smaller.name_or_path = model.name_or_path
    return smaller.train(model.training)


def cut_config(config: PreTrainedConfig, old_ids: Sequence[int]) -> PreTrainedConfig:
    """Copy a model's configuration for a vocabulary that was cut: its size, and the new ids of special tokens.

    Args:
        config: Left as it is.
        old_ids: For each new token its old id.

    Raises:
        ModelError: for a model that counts positions from the id of the padding, where that id changes.
    """
    new_ids = {old_id: new_id for new_id, old_id in enumerate(old_ids)}
    smaller = copy.deepcopy(config)
    smaller.vocab_size = len(old_ids)
    for field, value in config.to_dict().items():
        if field.endswith(_ID_FIELDS) and value is not None:
            setattr(smaller, field, _new_id(value, new_ids))
    if family_of(config).padded_positions and smaller.pad_token_id != config.pad_token_id:
        raise ModelError(
            f"The {config.model_type} counts positions from the id of its padding ({config.pad_token_id}), which "
            f"cutting would change to {smaller.pad_token_id}; keep the padding's id, or choose another model."
        )
    return smaller


def _new_id(value: Any, new_ids: Mapping[int, int]) -> Any:
    """The new id of a token, or list of ids; None for a token that has gone, or that the tokenizer never had."""
    if isinstance(value, list):
        return [new_ids[old_id] for old_id in value if old_id in new_ids]
    return new_ids.get(value)


def _rows_of(tensor: Tensor, smaller: Tensor, rows: Tensor) -> Tensor:
    """A tensor with the rows that stay, along each axis that is as long as the vocabulary.

    Args:
        tensor: The tensor of the whole model.
        smaller: The tensor of the same name in the model that is made, which has the shape that is wanted.
        rows: Numbers of the rows that stay.
    """
    for axis, (length, new_length) in enumerate(zip(tensor.shape, smaller.shape, strict=True)):
        if length != new_length:
            tensor = tensor.index_select(axis, rows)
    return tensor
