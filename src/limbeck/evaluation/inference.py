"""Running a loaded model for evaluation without changing it: mode, dtype, inner encoder, length limit."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module, dtype: torch.dtype | None = None) -> Iterator[nn.Module]:
    """Yield `model` in eval mode, computing in `dtype`; afterwards every module has the mode it had before.

    Args:
        model: Any module. It is never cast: where `dtype` is not its own, a cast copy is yielded instead.
        dtype: The dtype of weights and activations; None keeps the model's.

    Yields:
        The model, or its cast copy, in eval mode.
    """
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if dtype is not None and dtype != own:
        yield copy.deepcopy(model).to(dtype).eval()
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        # Not `model.train(previous)`: that would also switch on parts that were frozen in eval mode on
        # purpose.
        for module, training in modes:
            module.training = training


def encoder_of(model: nn.Module) -> nn.Module:
    """Return the encoder inside a task model (`BertModel` in `BertForMaskedLM`), or the model itself."""
    return getattr(model, "base_model", model)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters (the CPU for a module without any)."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def longest_input(model: nn.Module) -> int | None:
    """Return how many tokens the model can take, special tokens included; None where nothing limits it.

    RoBERTa-like models number their positions from `padding_idx + 1`, so their table of 514 rows takes 512
    tokens.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    config: Any = getattr(model, "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None
