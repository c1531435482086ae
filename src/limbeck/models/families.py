"""Families: what a configuration says of a model's shape, and where a model keeps its parts.

The lookups on a configuration need no weights, so shapes can be checked before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.errors import ModelError
from limbeck.models.family_table import Family, families


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that checks compare, read from its configuration only.

    `head_size` is the width of one query head, `embedding` the width of the word embeddings (`hidden` unless
    factorised), `positions` the longest input in tokens or None where nothing bounds it.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    embedding: int
    positions: int | None

    def __str__(self) -> str:
        factorised = f", embedding {self.embedding}" if self.embedding != self.hidden else ""
        size = f"{self.layers}x{self.hidden}, {self.heads} heads, FFN {self.ffn}"
        return f"{self.model_type} {size}{factorised}"


def family_of(config: PreTrainedConfig) -> Family:
    """Return the family of a configuration.

    Raises:
        ModelError: for a `model_type` that is not in the table, with the nearest and all known ones.
    """
    return families[str(config.model_type)]


def base_model(model: PreTrainedModel) -> PreTrainedModel:
    """Return the Transformer without its task head (`model` itself where there is none)."""
    return model.base_model


def block_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the model's own list of blocks; deleting from it removes blocks from the model.

    Where the family shares blocks (ALBERT) it is the list of groups, each of which serves several layers.

    Raises:
        ModelError: for an unknown family, or a model that is not laid out as its family is.
    """
    path = family_of(model.config).blocks
    try:
        found = base_model(model).get_submodule(path)
    except AttributeError as error:
        raise ModelError(
            f"{type(model).__name__} has no '{path}', where its family keeps blocks; load it with AutoModel."
        ) from error
    assert isinstance(found, nn.ModuleList)
    return found


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """Return the block that computes each layer: item 0 is layer 1.

    The length is the depth, unless blocks were dropped. Where the family shares blocks (ALBERT) the same
    module appears several times.
    """
    found = list(block_list(model))
    if not family_of(model.config).shared_blocks:
        return found
    # ALBERT spreads its groups evenly over the layers.
    layers = depth(model.config)
    return [found[layer * len(found) // layers] for layer in range(layers)]


def depth(config: PreTrainedConfig) -> int:
    """Return the number of layers."""
    return int(getattr(config, family_of(config).fields.layers))


def hidden_size(config: PreTrainedConfig) -> int:
    """Return the width of the hidden states."""
    return int(getattr(config, family_of(config).fields.hidden))


def heads(config: PreTrainedConfig) -> int:
    """Return the number of query heads of a layer."""
    return int(getattr(config, family_of(config).fields.heads))


def ffn(config: PreTrainedConfig) -> int:
    """Return the inner width of the feed-forward part; GPT-2's unset `n_inner` means four times the hidden
    width."""
    width = getattr(config, family_of(config).fields.ffn)
    return int(width) if width is not None else 4 * hidden_size(config)


def head_size(config: PreTrainedConfig) -> int:
    """Return the width of one query head; a family with `head_dim` may make it differ from hidden / heads."""
    explicit = getattr(config, "head_dim", None)
    return int(explicit) if explicit is not None else hidden_size(config) // heads(config)


def shape_of(config: PreTrainedConfig) -> Shape:
    """Return the shape of the model that a configuration describes, without building or loading it.

    Raises:
        ModelError: for an unknown family.
    """
    family = family_of(config)
    embedding = getattr(config, family.fields.embedding) if family.fields.embedding else None
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and family.padded_positions:
        positions -= (config.pad_token_id or 0) + 1
    return Shape(
        model_type=family.model_type,
        layers=depth(config),
        hidden=hidden_size(config),
        heads=heads(config),
        key_value_heads=int(getattr(config, "num_key_value_heads", None) or heads(config)),
        head_size=head_size(config),
        ffn=ffn(config),
        vocabulary=int(config.vocab_size),
        embedding=int(embedding or hidden_size(config)),
        positions=positions,
    )
