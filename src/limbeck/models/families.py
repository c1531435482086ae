"""Families: the shape of a model by its configuration, and the places of its parts.

The lookups on a configuration need no weights, so shapes can be checked before anything is loaded. The table of
families has one row an architecture, with its module paths and configuration fields. Nothing else in limbeck spells a
model's module path or a configuration's field name. Any other family of `transformers` is found by its structure
(`structure.py`), without what only a row tells: the roles of a block's maps, for narrower students, and packing. To add
a row, write it here; the tests in `tests/models/test_families.py` then hold it to the rest's assumptions.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from limbeck.core.registry import Registry
from limbeck.errors import ModelError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class BlockRoles:
    """The linear maps inside a block by their role, as module paths relative to the block.

    Only families with separate query, key and value maps and a plain two-matrix feed-forward part have one;
    it is what lets a block be copied into a narrower student without cutting through a head.
    """

    query: str
    key: str
    value: str
    attention_output: str
    ffn_in: str
    ffn_out: str
    norms: tuple[str, ...]


@dataclass(frozen=True)
class Projections:
    """Where a block keeps the maps of its attention, for families outside transformers' AttentionInterface."""

    query: str
    key: str
    value: str
    output: str


@dataclass(frozen=True)
class Fields:
    """Names of the configuration fields that hold a model's shape."""

    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    ffn: str = "intermediate_size"
    embedding: str | None = None
    dropouts: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass(frozen=True)
class Family:
    """One architecture: module paths are relative to the base model (see `base_model`).

    Attributes:
        model_type: The name in `config.json`.
        blocks: Path of the list of blocks.
        embeddings: Paths of the modules that make the embedding output.
        fields: Configuration field names.
        layout: Families with the same layout name the tensors of a block alike, so blocks move between them.
        embedding_projection: Path of the map from a factorised embedding to the hidden width, where one may
            exist.
        plain_drops_projection: Whether that map is missing where both widths are equal (ELECTRA).
        final_norm: Path of the norm after the last block, where there is one.
        extras: Paths of other modules that the blocks share (relative positions).
        roles: The block's linear maps by role, or None where blocks can only be copied at equal shape.
        roles_missing: Why `roles` is None, as the end of an error line.
        causal: Whether a token sees only its past.
        shared_blocks: Whether one block serves several layers.
        padded_positions: Whether positions are counted from `pad_token_id + 1` (the RoBERTa lineage).
        projections: The maps to hook where attention does not go through the AttentionInterface, else None.
        returned: How many things a block returns in a tuple; 0 where it returns hidden states alone.
        packs: Whether a batch may run as one row of real tokens: the model takes `position_ids`, and all tokens of a
            sample attend to each other.
        positions: Path of the table of positions, where tokens have an embedding of their place.
        segments: Path of the table of segments, where tokens have an embedding of theirs.
    """

    model_type: str
    blocks: str
    embeddings: tuple[str, ...]
    fields: Fields = Fields()
    layout: str = ""
    embedding_projection: str | None = None
    plain_drops_projection: bool = False
    final_norm: str | None = None
    extras: tuple[str, ...] = ()
    roles: BlockRoles | None = None
    roles_missing: str = "its blocks fuse or gate their linear maps"
    causal: bool = False
    shared_blocks: bool = False
    padded_positions: bool = False
    projections: Projections | None = None
    returned: int = 0
    packs: bool = False
    positions: str | None = None
    segments: str | None = None


UNLISTED = Family("", "", (), roles_missing="limbeck does not know which map of its blocks is which")
"""What holds of every family outside of the table, whatever its structure."""

_POSITIONS, _SEGMENTS = "embeddings.position_embeddings", "embeddings.token_type_embeddings"
_BERT = Family(
    model_type="bert",
    blocks="encoder.layer",
    embeddings=("embeddings",),
    layout="bert",
    packs=True,
    positions=_POSITIONS,
    segments=_SEGMENTS,
    roles=BlockRoles(
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        attention_output="attention.output.dense",
        ffn_in="intermediate.dense",
        ffn_out="output.dense",
        norms=("attention.output.LayerNorm", "output.LayerNorm"),
    ),
)
_LLAMA = Family(
    model_type="llama",
    blocks="layers",
    embeddings=("embed_tokens",),
    layout="llama",
    final_norm="norm",
    causal=True,
    fields=Fields(dropouts=("attention_dropout",)),
)
_TABLE = (
    _BERT,
    replace(_BERT, model_type="ernie"),
    replace(_BERT, model_type="roberta", padded_positions=True),
    replace(_BERT, model_type="xlm-roberta", padded_positions=True),
    replace(_BERT, model_type="camembert", padded_positions=True),
    replace(
        _BERT,
        model_type="electra",
        embedding_projection="embeddings_project",
        plain_drops_projection=True,
        fields=Fields(embedding="embedding_size"),
    ),
    Family(
        model_type="distilbert",
        blocks="transformer.layer",
        embeddings=("embeddings",),
        layout="distilbert",
        packs=True,
        positions=_POSITIONS,
        fields=Fields("n_layers", "dim", "n_heads", "hidden_dim", dropouts=("dropout", "attention_dropout")),
        roles=BlockRoles(
            query="attention.q_lin",
            key="attention.k_lin",
            value="attention.v_lin",
            attention_output="attention.out_lin",
            ffn_in="ffn.lin1",
            ffn_out="ffn.lin2",
            norms=("sa_layer_norm", "output_layer_norm"),
        ),
    ),
    Family(
        model_type="albert",
        blocks="encoder.albert_layer_groups",
        embeddings=("embeddings",),
        layout="albert",
        packs=True,
        positions=_POSITIONS,
        segments=_SEGMENTS,
        fields=Fields(embedding="embedding_size"),
        embedding_projection="encoder.embedding_hidden_mapping_in",
        roles_missing="one block serves all its layers and its word embeddings span few directions",
        shared_blocks=True,
    ),
    Family(
        model_type="mpnet",
        blocks="encoder.layer",
        embeddings=("embeddings",),
        layout="mpnet",
        extras=("encoder.relative_attention_bias",),
        roles_missing="its relative positions belong to whole heads",
        padded_positions=True,
        projections=Projections("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
        returned=1,
        positions=_POSITIONS,
    ),
    Family(
        model_type="modernbert",
        blocks="layers",
        embeddings=("embeddings",),
        layout="modernbert",
        final_norm="final_norm",
        fields=Fields(dropouts=("embedding_dropout", "mlp_dropout", "attention_dropout")),
    ),
    replace(
        _LLAMA,
        model_type="nomic_bert",
        layout="nomic_bert",
        packs=True,
        segments=_SEGMENTS,
        embeddings=("embeddings",),
        final_norm=None,
        causal=False,
        fields=Fields(dropouts=("hidden_dropout_prob",)),
    ),
    replace(_LLAMA, model_type="eurobert", layout="eurobert", causal=False, packs=True),
    _LLAMA,
    replace(_LLAMA, model_type="qwen3", layout="qwen3"),
    Family(
        model_type="gpt2",
        blocks="h",
        embeddings=("wte", "wpe"),
        layout="gpt2",
        final_norm="ln_f",
        causal=True,
        positions="wpe",
        fields=Fields("n_layer", "n_embd", "n_head", "n_inner", dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop")),
    ),
)
families: Registry[Family] = Registry(
    "model family", error=ModelError, source=lambda: ((family.model_type, family) for family in _TABLE)
)


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that checks compare, read from its configuration only.

    `head_size` is the width of one query head, `embedding` the width of the word embeddings (`hidden` unless
    factorised), `positions` the longest input in tokens or None where nothing bounds it, `causal` whether a token sees
    only its past.
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

    def __str__(self) -> str:
        embedding = self.embedding if self.embedding != self.hidden else None
        return f"{self.model_type} {describe_size(self.layers, self.hidden, self.heads, self.ffn, embedding)}"


def describe_size(layers: int, hidden: int, heads: int, ffn: int, embedding: int | None = None) -> str:
    """Write the size of a model, for example `6x384, 12 heads, FFN 1536`; of factorised embeddings also the width."""
    factorised = f", embedding {embedding}" if embedding else ""
    return f"{layers}x{hidden}, {heads} heads, FFN {ffn}{factorised}"


def family_of(config: PreTrainedConfig) -> Family:
    """Return the family of a configuration: its row of the table, else what is found by running a small model of it.

    Raises:
        ModelError: for a `model_type` that is neither in the table nor the configuration's own, with the nearest and
            all known ones, and for a family that cannot be read, see `find_family`.
    """
    from transformers import CONFIG_MAPPING

    name = str(config.model_type)
    is_its_own = name in CONFIG_MAPPING and type(config) is CONFIG_MAPPING[name]
    if name in families or not is_its_own:
        return families[name]
    from limbeck.models.structure import find_family

    return find_family(config)


def row_of(model_type: str) -> Family:
    """Return a family's row of the table; for one outside of it what holds of all such."""
    is_listed = model_type in families
    return families[model_type] if is_listed else UNLISTED


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


def segment_count(config: PreTrainedConfig) -> int:
    """Return how many segments a model tells apart; 0 for a family without an embedding of them."""
    return int(getattr(config, "type_vocab_size", 0)) if family_of(config).segments else 0


class Table(NamedTuple):
    """A table of embeddings: its name among the model's modules, and the module."""

    name: str
    module: nn.Embedding


def embedding_tables(model: PreTrainedModel) -> dict[str, Table]:
    """Return the tables in which a model looks up its `tokens`, `positions` and `segments`, as far as it has them."""
    from torch import nn

    base, family = base_model(model), family_of(model.config)
    found = {"tokens": base.get_input_embeddings()}
    found |= {
        kind: base.get_submodule(path)
        for kind, path in (("positions", family.positions), ("segments", family.segments))
        if path is not None
    }
    names = {module: name for name, module in model.named_modules()}
    return {kind: Table(names[table], table) for kind, table in found.items() if isinstance(table, nn.Embedding)}


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
    hidden, heads = int(getattr(config, fields.hidden)), int(getattr(config, fields.heads))
    ffn = getattr(config, fields.ffn, None)
    head_size = getattr(config, "head_dim", None)
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and family.padded_positions:
        positions -= (config.pad_token_id or 0) + 1
    return Shape(
        model_type=family.model_type,
        layers=depth(config),
        hidden=hidden,
        heads=heads,
        key_value_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_size=int(head_size) if head_size is not None else hidden // heads,
        ffn=int(ffn) if ffn is not None else 4 * hidden,  # GPT-2's `n_inner` may be unset.
        vocabulary=int(config.vocab_size),
        embedding=int((getattr(config, fields.embedding) if fields.embedding else None) or hidden),
        positions=positions,
        causal=family.causal and getattr(config, "is_causal", True) is not False,  # What transformers' masks ask.
    )


def pooler_option(loader: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the keyword that leaves out the pooler, which nothing here reads, for classes that have it."""
    known = "add_pooling_layer" in inspect.signature(loader.__init__).parameters
    return {"add_pooling_layer": False} if known else {}


def fit_layer_lists(values: dict[str, Any], depth: int, sources: Sequence[int]) -> None:
    """Fit what a configuration lists layer by layer, such as `layer_types`, to the layers of another model, in place.

    Args:
        values: The configuration as a dictionary.
        depth: Its layers; one whose upper blocks were dropped lists more than it has.
        sources: For each layer of the other the one that it is like, counted from 0; on from the first after the last.
    """
    for key, value in values.items():
        if "layer" in key and isinstance(value, list) and len(value) >= depth:
            values[key] = [value[source % len(value)] for source in sources]
