"""What a step begins with, so that it can be taken back: weights of layers and random streams."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class StepStart:
    """Remembers what a forward pass changes; gradients are the optimizer's business.

    Args:
        buffers: Buffers of what is trained; those of floating point are remembered.
        device: Where dropout is drawn.
    """

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in buffers if buffer.is_floating_point()]
        self._device = device
        self._random = torch.get_rng_state()
        self._device_random = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore_buffers(self, where: Tensor | None = None) -> None:
        """Put the buffers back.

        Args:
            where: Bool scalar on the device; nothing is put back where it is false. None puts them back.
        """
        for buffer, before in self._buffers:
            buffer.copy_(before if where is None else torch.where(where.to(buffer.device), before, buffer))

    def restore_random_streams(self) -> None:
        """Put the streams back that dropout draws from."""
        torch.set_rng_state(self._random)
        if self._device_random is not None:
            torch.cuda.set_rng_state(self._device_random, self._device)
