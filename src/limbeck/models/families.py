"""Lookups on a model by its family: its shape, its base model, its blocks and its tables of embeddings.

The *family* of a model is its architecture, such as BERT; see `family_table.py`. A *block* is a Transformer layer's
module. The lookups on a configuration need no weights, so shapes can be checked before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from limbeck.errors import ModelError
from limbeck.models.family_table import Family, families

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that checks compare, read from its configuration only.

    Attributes:
        model_type: The family.
        layers: Number of blocks.
        hidden: Width of the hidden states.
        heads: Query heads of a block.
        key_value_heads: Key heads of a block, which several query heads may share.
        head_size: Width of one query head.
        ffn: Inner width of the feed-forward part.
        vocabulary: Number of tokens.
        embedding: Width of the word embeddings; `hidden` unless they are factorised.
        positions: The longest input in tokens; None where nothing bounds it.
        causal: Whether a token sees only its past.
        rotary: Whether attention turns the features of queries and keys, pair by pair, by the position of their token
            (rotary embedding).
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
    causal: bool = False
    rotary: bool = False

    def __str__(self) -> str:
        # Only the width of factorised embeddings is worth a word.
        embedding = self.embedding if self.embedding != self.hidden else None
        return f"{self.model_type} {describe_size(self.layers, self.hidden, self.heads, self.ffn, embedding)}"


def describe_size(layers: int, hidden: int, heads: int, ffn: int, embedding: int | None = None) -> str:
    """Write the size of a model, for example `6x384, 12 heads, FFN 1536`; of factorised embeddings also the width."""
    size = f"{layers}x{hidden}, {heads} heads, FFN {ffn}"
    if embedding is None:
        return size
    return f"{size}, embedding {embedding}"


def family_of(config: PreTrainedConfig) -> Family:
    """Return the facts about a configuration's family.

    They are the family's row of the table. For a family outside of the table they are found by running a small model.

    Raises:
        ModelError: for a `model_type` that is neither in the table nor the configuration's own, with the nearest and
            all known ones, and for a family that cannot be read, see `find_family`.
    """
    from transformers import CONFIG_MAPPING

    # The configuration of a model whose modules are named (`named_modules.py`) brings its own row.
    own_row = getattr(config, "own_row", None)
    if isinstance(own_row, Family):
        return own_row
    name = str(config.model_type)
    # A configuration of another class may describe anything, whatever its name.
    is_of_transformers = name in CONFIG_MAPPING and type(config) is CONFIG_MAPPING[name]
    if name in families or not is_of_transformers:
        # The table raises the error for a name that it does not have.
        return families[name]
    from limbeck.models.structure import find_family

    return find_family(config)


def base_model(model: PreTrainedModel) -> PreTrainedModel:
    """Return the Transformer without its task head (`model` itself where there is none)."""
    return model.base_model


def block_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the model's own list of blocks; deleting from it removes blocks from the model.

    Where the family shares blocks (ALBERT) it is the list of groups, each of which serves several layers.

    Raises:
        ModelError: for an unknown family, or a model that is not laid out as its family is.
    """
    from torch import nn

    path = family_of(model.config).blocks
    try:
        module = base_model(model).get_submodule(path)
    except AttributeError as error:
        raise ModelError(
            f"{type(model).__name__} has no '{path}', where models of its family keep their layers; load it with "
            "AutoModel."
        ) from error
    assert isinstance(module, nn.ModuleList)
    return module


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """Return the block that computes each layer: item 0 is layer 1.

    The length is the depth, unless blocks were dropped. Where the family shares blocks (ALBERT) the same
    module appears several times.
    """
    stored_blocks = list(block_list(model))
    if not family_of(model.config).shared_blocks:
        return stored_blocks
    # ALBERT spreads its groups evenly over the layers.
    layers = depth(model.config)
    return [stored_blocks[layer * len(stored_blocks) // layers] for layer in range(layers)]


def segment_count(config: PreTrainedConfig) -> int:
    """Return how many segments a model tells apart; 0 for a family without an embedding of them."""
    if family_of(config).segments is None:
        return 0
    return int(getattr(config, "type_vocab_size", 0))


class Table(NamedTuple):
    """A table of embeddings: its name among the model's modules, and the module."""

    name: str
    module: nn.Embedding


def embedding_tables(model: PreTrainedModel) -> dict[str, Table]:
    """Return the tables in which a model looks up its `tokens`, `positions` and `segments`, as far as it has them."""
    from torch import nn

    base = base_model(model)
    family = family_of(model.config)
    modules: dict[str, nn.Module] = {"tokens": base.get_input_embeddings()}
    if family.positions is not None:
        modules["positions"] = base.get_submodule(family.positions)
    if family.segments is not None:
        modules["segments"] = base.get_submodule(family.segments)

    # Names in the whole model, which may have a head around the base model.
    names = {module: name for name, module in model.named_modules()}
    tables = {}
    for key, module in modules.items():
        # Positions may be computed instead of looked up.
        if isinstance(module, nn.Embedding):
            tables[key] = Table(names[module], module)
    return tables


def depth(config: PreTrainedConfig) -> int:
    """Return the number of layers."""
    return int(getattr(config, family_of(config).fields.layers))


def shape_of(config: PreTrainedConfig) -> Shape:
    """Return the shape of the model that a configuration describes, without building or loading it.

    Raises:
        ModelError: for an unknown family.
    """
    family = family_of(config)
    fields = family.fields
    hidden = int(getattr(config, fields.hidden))
    heads = int(getattr(config, fields.heads))
    head_size = getattr(config, "head_dim", None)
    if head_size is None:
        head_size = hidden // heads
    ffn = getattr(config, fields.ffn, None)
    if ffn is None:
        ffn = 4 * hidden  # GPT-2's `n_inner` may be unset.
    key_value_heads = getattr(config, "num_key_value_heads", None)
    if not key_value_heads:
        key_value_heads = heads
    embedding = None
    if fields.embedding is not None:
        # DeBERTa's configurations have the field only where the embeddings are factorised.
        embedding = getattr(config, fields.embedding, None)
    if not embedding:
        embedding = hidden
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and family.padded_positions:
        # The rows of the table up to the padding's own serve no token.
        unused_rows = (config.pad_token_id or 0) + 1
        positions -= unused_rows
    return Shape(
        model_type=family.model_type,
        layers=depth(config),
        hidden=hidden,
        heads=heads,
        key_value_heads=int(key_value_heads),
        head_size=int(head_size),
        ffn=int(ffn),
        vocabulary=int(config.vocab_size),
        embedding=int(embedding),
        positions=positions,
        # The masks of transformers read `is_causal` in the same way.
        causal=family.causal and getattr(config, "is_causal", True) is not False,
        rotary=_has_rotary_positions(config),
    )


def _has_rotary_positions(config: PreTrainedConfig) -> bool:
    """Whether a configuration has the parameters of a rotary embedding, or names one."""
    if getattr(config, "rope_parameters", None):
        return True
    # RoFormer says whether values are rotated beside queries and keys.
    if hasattr(config, "rotary_value"):
        return True
    # ESM names its kind of positions.
    return getattr(config, "position_embedding_type", None) in _ROTARY_POSITIONS


_ROTARY_POSITIONS = ("rotary", "rope")
"""Names of rotary embeddings in the field `position_embedding_type`."""

_BLOCK_NUMBERS = ("hidden", "heads", "key_value_heads", "head_size", "ffn")
"""The numbers that decide the tensors of a block, and the places of its heads in them."""


def same_blocks(student: Shape, source: Shape) -> bool:
    """Whether blocks of two shapes have equal numbers, so that one can be copied into the other bit for bit."""
    return all(getattr(student, number) == getattr(source, number) for number in _BLOCK_NUMBERS)
