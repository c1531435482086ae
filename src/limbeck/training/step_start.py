"""The way back to the start of a step that is skipped or run again."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def skip_update(optimizer: Any, module: nn.Module, bad: Tensor, *, on_device: bool) -> None:
    """Let the optimizer's next step change nothing if the step is bad.

    A fused optimizer takes a flag on the device, made for loss scaling. If it is set, weights, moments and step counts
    stay as they are, and the host need not know. Other optimizers skip parameters that have no gradient. For them the
    host waits for the verdict and drops the gradients.

    Args:
        optimizer: The optimizer, or accelerate's around it.
        module: The trained module, with gradients.
        bad: Bool scalar on the device.
        on_device: Whether the optimizer takes a flag, see `takes_flag`.
    """
    if on_device:
        # PyTorch's name of the flag, from loss scaling: a gradient that is infinite.
        _torch_optimizer_of(optimizer).found_inf = bad.float()
    elif bool(bad):
        module.zero_grad(set_to_none=True)


def takes_flag(optimizer: Any) -> bool:
    """Return whether an optimizer is fused in all of its parameter groups."""
    return all(group.get("fused") for group in _torch_optimizer_of(optimizer).param_groups)


def _torch_optimizer_of(optimizer: Any) -> Any:
    """Return PyTorch's optimizer inside of accelerate's, or the optimizer itself."""
    return getattr(optimizer, "optimizer", optimizer)


class RandomStreams:
    """The states of the random generators that dropout draws from, as they were when this object was made.

    Args:
        device: Device of the model; for a GPU the states of both its generator and the CPU's are noted.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Set the generators back to these states."""
        torch.set_rng_state(self._cpu)
        if self._gpu is not None:
            torch.cuda.set_rng_state(self._gpu, self._device)


class StepStart:
    """Buffers and random streams at the start of a step, to go back to if the step is skipped or run again.

    Args:
        buffers: Buffers of what is trained; those of floating point are remembered.
        device: The device that dropout is drawn on.
    """

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in buffers if buffer.is_floating_point()]
        self.random = RandomStreams(device)

    def restore_buffers(self, where: Tensor | None = None) -> None:
        """Put the buffers back.

        Args:
            where: Bool scalar on the device; nothing is put back where it is false. None puts them back.
        """
        for buffer, before in self._buffers:
            if where is None:
                buffer.copy_(before)
            else:
                buffer.copy_(torch.where(where.to(buffer.device), before, buffer))
