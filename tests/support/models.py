"""Tiny random models and tokenizers of every family, made in milliseconds and loadable offline.

    folder = make_teacher(tmp_path, "roberta")
    model = load_model(folder)

The models are `TINY` shaped: 4 layers, 48 wide, 4 heads, FFN 96, some 130 tokens, inputs up to 128 tokens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from limbeck.core.records import Initialisation
from limbeck.models.blueprint import StudentBlueprint, build_student, student_config
from limbeck.models.families import Shape, shape_of
from limbeck.models.heads import AnyHead
from limbeck.models.initialise import LayerStrategy, initialise_student
from limbeck.models.loading import quiet

LAYERS, HIDDEN, HEADS, FFN, MAX_LENGTH = 4, 48, 4, 96, 128
EMBEDDING = 24  # of the factorised families

#: The families the design asks taps to be proven on.
FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert", "albert", "llama")
#: Every family in the table.
ALL_FAMILIES = (*FAMILIES, "camembert", "ernie", "mpnet", "nomic_bert", "eurobert", "qwen3", "gpt2")

_ROBERTA_LIKE = ("roberta", "xlm-roberta", "camembert", "mpnet")
_DECODER_LIKE = ("llama", "qwen3", "gpt2", "eurobert")
_WITH_TOKEN_TYPES = ("bert", "electra", "ernie", "albert", "nomic_bert")
_WORDS = "the of and to in is for that with model teacher student layer text word we it on are"


def blueprint_like(shape: Shape, layers: int) -> StudentBlueprint:
    """The blueprint of a model with a shape but another depth, for example of a truncated teacher."""
    embedding = shape.embedding if shape.embedding != shape.hidden else None
    return StudentBlueprint(layers=layers, hidden=shape.hidden, heads=shape.heads, ffn=shape.ffn, embedding=embedding)


def start_student(
    teacher: PreTrainedModel, layers: int, strategy: LayerStrategy, *, embeddings: str = "auto", **changes: Any
) -> tuple[PreTrainedModel, Initialisation]:
    """A student of the teacher's shape but for its depth and some changes, started from it, and the record of that."""
    blueprint = blueprint_like(shape_of(teacher.config), layers).model_copy(update=changes)
    student = build_student(student_config(blueprint, teacher.config), seed=9)
    return student, initialise_student(student, teacher, layers=strategy, embeddings=embeddings, seed=3)


def special_tokens(family: str) -> list[str]:
    """The family's special tokens, in the order of their ids."""
    if family in _ROBERTA_LIKE:
        return ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if family in _DECODER_LIKE:
        return ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary(family: str) -> list[str]:
    """All tokens: special ones, letters and word pieces that spell any lower-case ASCII text, some words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [f"##{letter}" for letter in letters]
    return [*special_tokens(family), *letters, *pieces, *".,;:!?'()-\"/%", *_WORDS.split()]


def tiny_tokenizer(family: str = "bert", *, lowercase: bool = True) -> PreTrainedTokenizerFast:
    """A working fast WordPiece tokenizer with the family's special tokens and input names."""
    return PreTrainedTokenizerFast(tokenizer_object=_tokenizer(family, lowercase), **_token_names(family))


@cache
def _tokenizer(family: str, lowercase: bool) -> Tokenizer:
    tokens = vocabulary(family)
    names = _token_names(family)
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    first, last = names.get("cls_token", names.get("bos_token")), names.get("sep_token", "")
    if family in _DECODER_LIKE:
        single, pair = f"{first} $A", f"{first} $A $B:1"
        special = [first]
    else:
        single, pair = f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1"
        special = [first, last]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(t, tokens.index(t)) for t in special]
    )
    return tokenizer


def _token_names(family: str) -> dict[str, Any]:
    tokens = special_tokens(family)
    inputs = ["input_ids", "attention_mask"]
    if family in _WITH_TOKEN_TYPES:
        inputs.insert(1, "token_type_ids")
    common = {"model_max_length": MAX_LENGTH, "model_input_names": inputs, "padding_side": "right"}
    if family in _ROBERTA_LIKE:
        kinds = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
        ends = {"bos_token": "<s>", "eos_token": "</s>"}
    elif family in _DECODER_LIKE:
        kinds, ends = ("unk_token", "bos_token", "eos_token", "pad_token", "mask_token"), {}
    else:
        kinds, ends = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), {}
    return common | dict(zip(kinds, tokens, strict=True)) | ends


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
    tokens = special_tokens(family)
    ids = {name[:-6]: tokens.index(t) for name, t in _token_names(family).items() if t in tokens}
    size = len(vocabulary(family))
    fields: dict[str, Any] = {"vocab_size": size, "pad_token_id": ids["pad"]}
    if family == "gpt2":
        fields |= {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": ffn, "n_positions": MAX_LENGTH}
        fields |= {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"]}
    elif family == "distilbert":
        fields |= {"dim": hidden, "n_layers": layers, "n_heads": heads, "hidden_dim": ffn}
        fields |= {"max_position_embeddings": MAX_LENGTH}
    else:
        fields |= {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
        fields |= {"intermediate_size": ffn}
        offset = ids["pad"] + 1 if family in _ROBERTA_LIKE else 0
        fields |= {"max_position_embeddings": MAX_LENGTH + offset}
    if family in ("electra", "albert"):
        fields |= {"embedding_size": EMBEDDING}
    if family in ("llama", "qwen3", "eurobert"):
        fields |= {"num_key_value_heads": max(1, heads // 2), "head_dim": hidden // heads}
    if family in (*_ROBERTA_LIKE, "llama", "qwen3", "eurobert"):
        fields |= {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"]}
    if family == "eurobert":
        fields |= {"mask_token_id": ids["mask"]}
    if family == "modernbert":
        fields |= {"cls_token_id": ids["cls"], "sep_token_id": ids["sep"], "local_attention": 16}
        fields |= {"bos_token_id": ids["cls"], "eos_token_id": ids["sep"]}
    return CONFIG_MAPPING[family](**(fields | changes))


def tiny_model(family: str = "bert", *, seed: int = 0, head: AnyHead | None = None, **changes: Any) -> PreTrainedModel:
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
    parent: Path, family: str = "bert", *, seed: int = 0, head: AnyHead | None = None, **changes: Any
) -> Path:
    """Save a tiny teacher under `parent/teacher-FAMILY`, and return the folder."""
    return save_folder(tiny_model(family, seed=seed, head=head, **changes), parent / f"teacher-{family}", family)


def tiny_batch(family: str = "bert", *, rows: int = 3, length: int = 12, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random token ids with right padding of different lengths: `input_ids` and `attention_mask`, `[rows,
    length]`."""
    generator = torch.Generator().manual_seed(seed)
    specials = len(special_tokens(family))
    ids = torch.randint(specials, len(vocabulary(family)), (rows, length), generator=generator)
    lengths = torch.tensor([max(2, length - 3 * row) for row in range(rows)])
    mask = (torch.arange(length) < lengths[:, None]).long()
    pad = special_tokens(family).index("[PAD]" if "[PAD]" in special_tokens(family) else "<pad>")
    return {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}
