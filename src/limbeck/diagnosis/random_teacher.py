"""A teacher for a self-test: two layers at random values, with a tokenizer of a few words and text of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from limbeck.models.loading import quiet

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SUBJECTS = ("the river", "the teacher", "a still", "my student")
_VERBS = ("moves", "teaches", "makes", "learns")
_OBJECTS = ("slowly", "a layer", "a small model", "by the hour")
_LENGTH = 32


def random_text() -> str:
    """Return every sentence that the words make, each a document."""
    return "\n\n".join(f"{' '.join(words)} ." for words in product(_SUBJECTS, _VERBS, _OBJECTS))


def write_teacher(folder: Path, seed: int = 0) -> None:
    """Write a BERT, 2 layers, 32 wide, 4 heads, with its tokenizer; the random stream is left as it was."""
    words = sorted(set(random_text().split()))
    vocabulary = {token: number for number, token in enumerate((*_SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    )
    names = {f"{token[1:-1].lower()}_token": token for token in _SPECIAL}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=_LENGTH,
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=_LENGTH, **names).save_pretrained(folder)
