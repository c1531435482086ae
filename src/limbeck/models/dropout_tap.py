"""The dropout modules of a model, run by limbeck's own dropout, which is faster on a CPU."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from limbeck.kernels.dropout import fast_dropout


def attach(model: nn.Module) -> None:
    """Let the plain dropout modules of a model draw by `fast_dropout`; nothing else of them changes."""
    for module in model.modules():
        if type(module) is nn.Dropout and not module.inplace:
            module.__dict__["forward"] = partial(_drop, module)


def detach(model: nn.Module) -> None:
    """Undo `attach`."""
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__dict__.pop("forward", None)


def _drop(module: nn.Dropout, x: Tensor) -> Tensor:
    return fast_dropout(x, module.p, module.training)
