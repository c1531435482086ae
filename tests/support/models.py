"""Tiny random models and tokenizers of every family, made in milliseconds and loadable offline.

    folder = make_teacher(tmp_path, "roberta")
    model = load_model(folder)

The models are `TINY` shaped: 4 layers, 48 wide, 4 heads, FFN 96, some 130 tokens, inputs up to 128 tokens.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from limbeck.core.records import Initialisation
from limbeck.models import start
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape, shape_of
from limbeck.models.heads import Head
from limbeck.models.layer_selection import LayerStrategy
from limbeck.models.quiet import quiet
from limbeck.models.start_step import NarrowBy, StartSettings
from limbeck.models.students import build_student, student_config

LAYERS, HIDDEN, HEADS, FFN, MAX_LENGTH = 4, 48, 4, 96, 128
EMBEDDING = 24  # of the factorised families

#: The families the design asks taps to be proven on.
FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert", "albert", "llama")
#: Every family in the table.
ALL_FAMILIES = (*FAMILIES, "camembert", "ernie", "mpnet", "nomic_bert", "eurobert", "qwen3", "gpt2")

#: Families without a row, which limbeck finds by their structure; `alembic` is of `tests/support/alembic.py`.
UNLISTED = ("deberta-v2", "gemma3_text", "gte", "alembic")

_ROBERTA_LIKE = ("roberta", "xlm-roberta", "camembert", "mpnet")
_DECODER_LIKE = ("llama", "qwen3", "gpt2", "eurobert", "gemma3_text")
_WITH_TOKEN_TYPES = ("bert", "electra", "ernie", "albert", "nomic_bert", "deberta-v2", "gte")
#: The special tokens of a lineage by kind, in the order of their ids.
_SPECIAL = {
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "roberta": {
        "cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"
    },
    "decoder": {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>"},
}  # fmt: skip
#: Fields of layers, width, heads, feed-forward width and positions.
_SIZES = {
    "gpt2": ("n_layer", "n_embd", "n_head", "n_inner", "n_positions"),
    "distilbert": ("n_layers", "dim", "n_heads", "hidden_dim", "max_position_embeddings"),
}
_USUAL_SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings"
)  # fmt: skip
_WORDS = "the of and to in is for that with model teacher student layer text word we it on are"


def blueprint_like(shape: Shape, layers: int) -> StudentBlueprint:
    """The blueprint of a model with a shape but another depth, for example of a truncated teacher."""
    embedding = shape.embedding if shape.embedding != shape.hidden else None
    return StudentBlueprint(layers=layers, hidden=shape.hidden, heads=shape.heads, ffn=shape.ffn, embedding=embedding)


def start_student(
    teacher: PreTrainedModel,
    layers: int,
    strategy: LayerStrategy,
    *,
    embeddings: str = "auto",
    narrow_by: NarrowBy = "weights",
    **changes: Any,
) -> tuple[PreTrainedModel, Initialisation]:
    """A student of the teacher's shape but for its depth and some changes, started from it, and the record of that."""
    blueprint = blueprint_like(shape_of(teacher.config), layers).model_copy(update=changes)
    student = build_student(student_config(blueprint, teacher.config), seed=9)
    settings = StartSettings(strategy, embeddings, narrow_by, seed=3)
    return student, start.start_student(student, teacher, settings)


def special_names(family: str) -> dict[str, str]:
    """The family's special tokens by kind."""
    return _SPECIAL["roberta" if family in _ROBERTA_LIKE else "decoder" if family in _DECODER_LIKE else "bert"]


def vocabulary(family: str) -> list[str]:
    """All tokens: special ones, letters and word pieces that spell any lower-case ASCII text, some words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [f"##{letter}" for letter in letters]
    return [*dict.fromkeys(special_names(family).values()), *letters, *pieces, *".,;:!?'()-\"/%", *_WORDS.split()]


def tiny_tokenizer(family: str = "bert", *, lowercase: bool = True) -> PreTrainedTokenizerFast:
    """A working fast WordPiece tokenizer with the family's special tokens and input names."""
    names = {f"{kind}_token": token for kind, token in special_names(family).items()}
    types = ["token_type_ids"] if family in _WITH_TOKEN_TYPES else []
    return PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(family, lowercase), model_max_length=MAX_LENGTH, padding_side="right",
        model_input_names=["input_ids", *types, "attention_mask"], **names,
    )  # fmt: skip


@cache
def _tokenizer(family: str, lowercase: bool) -> Tokenizer:
    names, ids = special_names(family), {token: number for number, token in enumerate(vocabulary(family))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if family in _DECODER_LIKE:
        ends = [names["bos"]]
        single, pair = "{0} $A", "{0} $A $B:1"
    else:
        ends = [names["cls"], names["sep"]]
        single, pair = "{0} $A {1}", "{0} $A {1} $B:1 {1}:1"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single.format(*ends), pair=pair.format(*ends), special_tokens=[(token, ids[token]) for token in ends]
    )
    return tokenizer


def tiny_config(
    family: str = "bert",
    *,
    layers: int = LAYERS,
    hidden: int = HIDDEN,
    heads: int = HEADS,
    ffn: int = FFN,
    **changes: Any,
) -> PreTrainedConfig:
    """The configuration of a tiny model; `changes` are further fields of the family's own configuration."""
    tokens = vocabulary(family)
    ids = {kind: tokens.index(token) for kind, token in special_names(family).items()}
    sizes = (layers, hidden, heads, ffn, MAX_LENGTH + (ids["pad"] + 1 if family in _ROBERTA_LIKE else 0))
    fields: dict[str, Any] = dict(zip(_SIZES.get(family, _USUAL_SIZES), sizes, strict=True))
    if family == "modernbert":
        fields |= {"cls_token_id": ids["cls"], "sep_token_id": ids["sep"], "local_attention": 16}
        ids |= {"bos": ids["cls"], "eos": ids["sep"]}
    if family == "eurobert":
        fields |= {"mask_token_id": ids["mask"]}
    if family in ("electra", "albert"):
        fields |= {"embedding_size": EMBEDDING}
    if family == "gemma3_text":
        fields |= {"sliding_window": 8, "use_bidirectional_attention": True, "sliding_window_pattern": 2}
    if family == "deberta-v2":
        disentangled = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True}
        fields |= disentangled | {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "position_biased_input": False}
        fields |= {"type_vocab_size": 2}
    if family in ("llama", "qwen3", "eurobert", "gemma3_text"):
        fields |= {"num_key_value_heads": max(1, heads // 2), "head_dim": hidden // heads}
    fields |= {f"{kind}_token_id": ids[kind] for kind in ("pad", "bos", "eos") if kind in ids}
    return CONFIG_MAPPING[family](**({"vocab_size": len(tokens)} | fields | changes))


def tiny_model(family: str = "bert", *, seed: int = 0, head: Head | None = None, **changes: Any) -> PreTrainedModel:
    """A tiny random model in eval mode, with a head or without and without a pooler; larger weights than usual, so
    that layers differ."""
    return _spread(build_student(tiny_config(family, **changes), seed=seed, head=head), seed)


def _spread(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Draw all weights wider, norms and biases too: at the usual 0.02 every tiny model is nearly the
    identity."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    return model


def save_folder(model: PreTrainedModel, folder: Path, family: str) -> Path:
    """Save a model and its family's tokenizer as one complete folder."""
    with quiet():
        model.save_pretrained(folder)
        tiny_tokenizer(family).save_pretrained(folder)
    return folder


def make_teacher(
    parent: Path, family: str = "bert", *, seed: int = 0, head: Head | None = None, **changes: Any
) -> Path:
    """Save a tiny teacher under `parent/teacher-FAMILY`, and return the folder."""
    return save_folder(tiny_model(family, seed=seed, head=head, **changes), parent / f"teacher-{family}", family)


def make_embedding(folder: Path, family: str = "bert", **config: Any) -> Path:
    """A tiny sentence-transformers folder; `config` is that of its pooling."""
    place = make_teacher(folder, family)
    return add_modules(place, {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True} | config)


def add_modules(place: Path, pooling: dict[str, Any]) -> Path:
    """Add the files of sentence-transformers to a folder; `pooling` is the configuration of its pooling."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(modules)
    ]
    (place / "1_Pooling").mkdir()
    (place / "modules.json").write_text(json.dumps(listed))
    (place / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return place


def tiny_batch(family: str = "bert", *, rows: int = 3, length: int = 12, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random token ids with right padding of different lengths: `input_ids` and `attention_mask`, `[rows,
    length]`."""
    generator = torch.Generator().manual_seed(seed)
    specials = len({*special_names(family).values()})
    ids = torch.randint(specials, len(vocabulary(family)), (rows, length), generator=generator)
    lengths = torch.tensor([max(2, length - 3 * row) for row in range(rows)])
    mask = (torch.arange(length) < lengths[:, None]).long()
    pad = vocabulary(family).index(special_names(family)["pad"])
    return {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}
