"""Tiny models to look into, and what they compute by plain `transformers`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from limbeck.inspection import Subject
from limbeck.models.quiet import quiet
from tests.support.models import tiny_model, tiny_tokenizer

TEXTS = (
    "The teacher shows the student a layer of text.",
    "It is a model.",
    "We read the words that the student of the teacher is on.",
    "Text and layer: the model is for that.",
)


def tiny_subject(family: str = "bert", name: str = "tiny", **changes: Any) -> Subject:
    return Subject(name, tiny_model(family, **changes), tiny_tokenizer(family))


def own_attention(subject: Subject, text: str) -> list[Tensor]:
    """Each layer's attention `[A, L, L]`, float64, as the model itself returns it."""
    model = copy.deepcopy(subject.model).double().eval()
    with quiet(), torch.no_grad():
        model.set_attn_implementation("eager")
        ids = torch.tensor([subject.tokenizer(text)["input_ids"]])
        found = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True).attentions
    return [layer[0] for layer in found]


def own_hidden(subject: Subject, text: str) -> list[Tensor]:
    """The output of layers 0 to N, `[L, H]`, as the model itself returns it."""
    ids = torch.tensor([subject.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        found = subject.model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return [layer[0] for layer in found.hidden_states]
