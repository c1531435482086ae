"""Running a model in eval mode, with every module's own mode put back afterwards."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

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
    if dtype is not None and dtype != _dtype_of(model):
        yield copy.deepcopy(model).to(dtype).eval()
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        # Not `model.train(previous)`: that would also switch on parts that were frozen in eval mode on purpose.
        for module, was_training in modes:
            module.training = was_training


def _dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of the first floating-point parameter; float32 for a module without any."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32
