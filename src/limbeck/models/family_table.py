"""The table of families: one row an architecture, with its module paths and configuration fields.

Nothing else in limbeck spells a model's module path or a configuration's field name. Any other family of `transformers`
is found by its structure (`structure.py`), without what only a row tells: the roles of a block's maps, for narrower
students, and packing. To add a row, write it here; the tests in `tests/models/test_families.py` then hold it to the
rest's assumptions.
"""

from dataclasses import dataclass, replace

from limbeck.core.registry import Registry
from limbeck.errors import ModelError


@dataclass(frozen=True)
class BlockRoles:
    """The linear maps inside a block by their role, and its norms in order, as module paths relative to the block.

    With them a block can be copied into a narrower student without cutting through a head. Only families with separate
    query, key and value maps and a plain feed-forward part of two matrices have roles. The last norm gives the block's
    output.
    """

    query: str
    key: str
    value: str
    attention_output: str
    ffn_in: str
    ffn_out: str
    norms: tuple[str, ...]


@dataclass(frozen=True)
class OutputMap:
    """The last linear map of a block, which writes to the hidden states, as module paths relative to the block.

    Attributes:
        linear: Path of the map, an `nn.Linear`.
        norm: Path of the norm behind the map and the residual connection; None where a block ends with their sum.
    """

    linear: str
    norm: str | None


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
        norm_behind_projection: Whether the norm of the embeddings reads the output of that map, and not the tables
            (DeBERTa).
        final_norm: Path of the norm after the last block, where there is one.
        extras: Paths of other modules that the blocks share (relative positions).
        roles: The block's linear maps by role, or None where blocks can only be copied at equal shape.
        roles_missing: Why `roles` is None, as the end of an error line.
        output_map: The last linear map of a block; None where a start cannot refit it (`start_fit.py`).
        causal: Whether a token sees only its past.
        shared_blocks: Whether one block serves several layers.
        padded_positions: Whether positions are counted from `pad_token_id + 1` (the RoBERTa lineage).
        projections: The maps to hook where attention does not go through the AttentionInterface, else None.
        returned: The length of the tuple that a block returns; 0 where it returns hidden states alone.
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
    norm_behind_projection: bool = False
    final_norm: str | None = None
    extras: tuple[str, ...] = ()
    roles: BlockRoles | None = None
    roles_missing: str = "its blocks fuse or gate their linear maps"
    output_map: OutputMap | None = None
    causal: bool = False
    shared_blocks: bool = False
    padded_positions: bool = False
    projections: Projections | None = None
    returned: int = 0
    packs: bool = False
    positions: str | None = None
    segments: str | None = None


UNLISTED = Family(
    model_type="",
    blocks="",
    embeddings=(),
    roles_missing="limbeck does not know which map of its blocks is which",
)
"""Facts about every family outside of the table; `structure.py` fills in the others for a model."""

_POSITIONS = "embeddings.position_embeddings"
_SEGMENTS = "embeddings.token_type_embeddings"

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
    output_map=OutputMap(linear="output.dense", norm="output.LayerNorm"),
)

_LLAMA = Family(
    model_type="llama",
    blocks="layers",
    embeddings=("embed_tokens",),
    layout="llama",
    final_norm="norm",
    output_map=OutputMap(linear="mlp.down_proj", norm=None),
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
        fields=Fields(
            layers="n_layers",
            hidden="dim",
            heads="n_heads",
            ffn="hidden_dim",
            dropouts=("dropout", "attention_dropout"),
        ),
        roles=BlockRoles(
            query="attention.q_lin",
            key="attention.k_lin",
            value="attention.v_lin",
            attention_output="attention.out_lin",
            ffn_in="ffn.lin1",
            ffn_out="ffn.lin2",
            norms=("sa_layer_norm", "output_layer_norm"),
        ),
        output_map=OutputMap(linear="ffn.lin2", norm="output_layer_norm"),
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
        output_map=OutputMap(linear="output.dense", norm="output.LayerNorm"),
        padded_positions=True,
        projections=Projections(
            query="attention.attn.q",
            key="attention.attn.k",
            value="attention.attn.v",
            output="attention.attn.o",
        ),
        returned=1,
        positions=_POSITIONS,
    ),
    Family(
        model_type="modernbert",
        blocks="layers",
        embeddings=("embeddings",),
        layout="modernbert",
        final_norm="final_norm",
        output_map=OutputMap(linear="mlp.Wo", norm=None),
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
        output_map=OutputMap(linear="mlp.down_proj", norm="post_mlp_layernorm"),
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
        fields=Fields(
            layers="n_layer",
            hidden="n_embd",
            heads="n_head",
            ffn="n_inner",
            dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        ),
    ),
)

families: Registry[Family] = Registry(
    "model family", error=ModelError, source=lambda: ((family.model_type, family) for family in _TABLE)
)


_WITH_FACTORISED = replace(UNLISTED, fields=Fields(embedding="embedding_size"), plain_drops_projection=True)
_FACTORISED = (
    replace(_WITH_FACTORISED, model_type="convbert", embedding_projection="embeddings_project"),
    replace(_WITH_FACTORISED, model_type="roformer", embedding_projection="embeddings_project"),
    replace(
        _WITH_FACTORISED,
        model_type="deberta",
        embedding_projection="embeddings.embed_proj",
        norm_behind_projection=True,
    ),
    replace(
        _WITH_FACTORISED,
        model_type="deberta-v2",
        embedding_projection="embeddings.embed_proj",
        norm_behind_projection=True,
    ),
    replace(
        UNLISTED,
        model_type="rembert",
        fields=Fields(embedding="input_embedding_size"),
        embedding_projection="encoder.embedding_hidden_mapping_in",
    ),
)
_FACTORISED_BY_TYPE = {family.model_type: family for family in _FACTORISED}
"""Families outside of the table of which one thing is known: where their factorised embeddings are."""


def row_of(model_type: str) -> Family:
    """Return a family's row of the table; `unlisted_row` for a family outside of it."""
    is_listed = model_type in families
    return families[model_type] if is_listed else unlisted_row(model_type)


def unlisted_row(model_type: str) -> Family:
    """Return what is known of a family outside of the table before `structure.py` looks into a model of it."""
    return _FACTORISED_BY_TYPE.get(model_type, UNLISTED)


def families_with_factorised_embeddings() -> list[str]:
    """The names of the families whose configurations have a width of factorised embeddings, sorted."""
    names = list(_FACTORISED_BY_TYPE)
    for name, family in families.items():
        if family.fields.embedding is not None:
            names.append(name)
    return sorted(names)
