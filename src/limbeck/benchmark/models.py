"""Models to measure: saved ones, and random ones of a named shape, for which nothing has to be downloaded."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from limbeck.models.blueprint import build_student, parse_blueprint, presets, student_config
from limbeck.models.loading import load_config, load_model

_SIZE = re.compile(r"\d+\s*[x×]\s*\d+(h\d+)?", re.IGNORECASE)


def names_shape(name: str) -> bool:
    """Whether text names a shape (`"12x768"`, `"12x768h6"`, a preset) and no saved model; an existing folder wins."""
    return not Path(name).is_dir() and (_SIZE.fullmatch(name.strip()) is not None or name in presets)


def read_config(name: str, length: int) -> PreTrainedConfig:
    """Return the configuration of a saved model, or of a BERT of a named shape.

    Args:
        name: A shape (see `names_shape`), a folder, `package:NAME` or a Hub name.
        length: Tokens that a model of a named shape has to take; BERT's own are 512.

    Raises:
        ModelError: see `parse_blueprint` and `load_config`.
    """
    if not names_shape(name):
        return load_config(name)
    return student_config(parse_blueprint(name), BertConfig(max_position_embeddings=max(512, length)))


def load_or_make(name: str, *, length: int, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Load a saved model, or make a random BERT of a named shape; in eval mode.

    Args:
        name: As in `read_config`.
        length: As in `read_config`.
        dtype: Of the weights.
        device: Where it goes.

    Raises:
        ModelError: see `load_model`.
    """
    if names_shape(name):
        model = build_student(read_config(name, length), seed=0).to(dtype)
    else:
        model = load_model(name, dtype=dtype)
    return model.to(device).eval()
