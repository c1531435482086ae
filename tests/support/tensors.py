"""A record of the tensors that operations make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MadeTensors(TorchDispatchMode):
    """Notes the largest new tensor, and the memory behind those of at least `least` numbers.

    Args:
        known: Tensors that are not new.
        least: Numbers of a tensor whose memory is noted.
    """

    def __init__(self, known: Iterable[torch.Tensor] = (), least: int = 1) -> None:
        super().__init__()
        self.least, self.known = least, {x.untyped_storage().data_ptr() for x in known}
        self.elements = 0
        self.large: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.known:
                self.elements = max(self.elements, x.numel())
                if x.numel() >= self.least:
                    self.large.add(x.untyped_storage().data_ptr())
        return result


#: Where plain PyTorch is right by luck, one rounding of the result is not an error.
EPS = torch.finfo(torch.float32).eps


def errors(found: Sequence[Sequence[torch.Tensor]], exact: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """Relative errors of a value and of its gradients, root mean square over draws.

    Args:
        found: Of each draw the value and gradients.
        exact: The same in float64.
    """
    rows = [[(x - y).norm() / y.norm() for x, y in zip(*both, strict=True)] for both in zip(found, exact, strict=True)]
    return torch.tensor(rows, dtype=torch.float64).square().mean(0).sqrt()
