"""Leaving weights and optimizer as they are in a step, decided on the device."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def skip_update(optimizer: Any, module: nn.Module, bad: Tensor, *, on_device: bool) -> None:
    """Let the optimizer's next step change nothing if the step is bad.

    Fused optimizers of PyTorch take a flag, made for loss scaling, and pass over weights, moments and step counts where
    it is set: no host has to know. The others pass over parameters without a gradient, and the host has to look.

    Args:
        optimizer: The optimizer, or accelerate's around it.
        module: What it trains, with gradients.
        bad: Bool scalar on the device.
        on_device: Whether the optimizer may be told by flag, see `takes_flag`.
    """
    if on_device:
        getattr(optimizer, "optimizer", optimizer).found_inf = bad.float()
    elif bool(bad):
        module.zero_grad(set_to_none=True)


def takes_flag(optimizer: Any) -> bool:
    """Whether an optimizer is fused throughout."""
    groups = getattr(optimizer, "optimizer", optimizer).param_groups
    return all(group.get("fused") for group in groups)
