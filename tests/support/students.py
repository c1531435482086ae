"""Tiny students to export, saved as any student is."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

from limbeck.export import write_sentence_transformers_files
from limbeck.models.loading import quiet
from tests.support.models import HIDDEN, make_teacher, save_folder, tiny_config


def sentence_student(
    parent: Path, family: str = "bert", *, pooling: str = "mean", normalize: bool = True, max_length: int | None = 48
) -> Path:
    """A student that makes sentence vectors."""
    folder = make_teacher(parent, family, layers=2)
    write_sentence_transformers_files(folder, width=HIDDEN, pooling=pooling, normalize=normalize, max_length=max_length)
    return folder


def token_classifier(parent: Path) -> Path:
    """A BERT that labels tokens, with three labels."""
    config = tiny_config("bert", layers=2, num_labels=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)](config)
    return save_folder(model, parent / "tagger", "bert")


def with_pooler(parent: Path) -> Path:
    """A BERT whose checkpoint has a pooler."""
    from transformers import BertModel

    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        model = BertModel(tiny_config("bert", layers=2))
    return save_folder(model, parent / "pooled", "bert")
