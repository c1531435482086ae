"""The start of a map that a student keeps behind its pooling: least squares on the text that it is trained on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.core import ranks

RIDGE = 1e-3
"""λ, as a share of the mean squared entry of the student's vectors."""


class KeptMapFit:
    """Least squares from a student's vectors to its source's, a batch at a time.

    S and T are the widths of the student's and the source's vectors.
    W = argmin Σ ‖g W + b − t‖² + λ ‖W‖², with g the student's pooled vectors before its first step, t the finished
    ones of the source, and λ a thousandth of the mean squared entry of g, summed over the texts; without bias
    b = 0. The paper does not say how its map starts.
    """

    def __init__(self) -> None:
        # Σ g~ᵀ (g~, t), with g~ for g with a one behind it: [S + 1, S + 1 + T].
        self._products: Tensor | None = None

    def add(self, student: Tensor, source: Tensor) -> None:
        """Take in the vectors of a batch of texts.

        Args:
            student: g, `[texts, S]`.
            source: t, `[texts, T]`, in float64 where it is made longer or shorter first.
        """
        # On the CPU, since not every device has float64. The last feature stands for the bias.
        vectors = F.pad(student.cpu().double(), (0, 1), value=1.0)
        product = vectors.T @ torch.cat([vectors, source.cpu().double()], dim=-1)
        self._products = product if self._products is None else self._products + product

    @torch.no_grad()
    def solve(self, linear: nn.Linear) -> None:
        """Set the weight and the bias of a map to the solution, on all ranks that of the first."""
        assert self._products is not None
        products = ranks.broadcast(self._products)
        width = linear.in_features
        # With a bias the one behind g is a feature too.
        size = width if linear.bias is None else width + 1
        gram = products[:size, :size]
        with_source = products[:size, width + 1 :]
        # λ on the weights alone.
        penalty = torch.zeros(size, dtype=gram.dtype)
        penalty[:width] = RIDGE * gram.diagonal()[:width].mean()
        # [S or S + 1, T].
        solution = torch.linalg.solve(gram + penalty.diag(), with_source)
        linear.weight.copy_(solution[:width].T)
        if linear.bias is not None:
            linear.bias.copy_(solution[-1])
