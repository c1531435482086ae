"""A teacher for the self-test: a BERT of two layers with random weights, whose tokenizer knows a few words."""

from itertools import product
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer

from limbeck.models.quiet import quiet

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""BERT's special tokens, which begin the vocabulary."""
_SUBJECTS = ("the river", "the teacher", "a still", "my student")
"""Parts of the sentences that make up the text."""
_VERBS = ("moves", "teaches", "makes", "learns")
_OBJECTS = ("slowly", "a layer", "a small model", "by the hour")
_LENGTH = 32
"""Most tokens of a text."""


def random_text() -> str:
    """Return all sentences of a subject, a verb and an object, each as a document."""
    # A blank line separates documents.
    sentences = [f"{' '.join(words)} ." for words in product(_SUBJECTS, _VERBS, _OBJECTS)]
    return "\n\n".join(sentences)


def write_teacher(folder: Path, seed: int = 0) -> None:
    """Write a BERT with random weights (2 layers, width 32, 4 heads) and its tokenizer into a folder.

    The state of torch's random numbers is the same afterwards as before.
    """
    words = sorted(set(random_text().split()))
    vocabulary = {token: number for number, token in enumerate((*_SPECIAL, *words))}
    config = BertConfig(
        vocab_size=len(vocabulary),
        max_position_embeddings=_LENGTH,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        BertTokenizer(vocab=vocabulary, model_max_length=_LENGTH).save_pretrained(folder)
