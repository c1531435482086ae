"""Tiny random models, a tokenizer and documents, made on the spot."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CONFIG_MAPPING, AutoModel, BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

WORDS = (
    *("a", "the", "of", "river", "stone", "bridge", "water", "city", "old", "new", "runs", "under"),
    *("over", "near", "tower", "market", "street", "people", "boat", "music", "paper", "ship"),
    *("forest", "mountain", "road", "house", "garden", "light", "rain", "winter", "summer"),
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tiny_tokenizer(**fixed: Any) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with [CLS] and [SEP]; `fixed` is a padding length baked into its backend."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    if "length" in fixed:
        backend.enable_padding(length=fixed["length"], pad_id=0, pad_token="[PAD]")
        backend.enable_truncation(max_length=fixed["length"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def tiny_bert(layers: int = 2, *, seed: int = 0, **fields: Any) -> BertModel:
    torch.manual_seed(seed)
    return BertModel(BertConfig(**_common(layers), **fields)).eval()


def tiny_models() -> dict[str, PreTrainedModel]:
    torch.manual_seed(0)
    common = _common(2)
    distil = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    configurations = {
        "bert": common,
        "roberta": common | {"max_position_embeddings": 65, "pad_token_id": 0},
        "distilbert": distil | {"vocab_size": 64, "max_position_embeddings": 64},
        "electra": common | {"embedding_size": 8},
        "albert": common | {"embedding_size": 8},
        "modernbert": common | special,
    }
    return {
        name: AutoModel.from_config(CONFIG_MAPPING[name](**fields)).eval() for name, fields in configurations.items()
    }


def _common(layers: int) -> dict[str, Any]:
    return {
        "vocab_size": 64,
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
    }
