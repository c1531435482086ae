"""The start of a map that a student keeps behind its pooling: least squares on the text that it is trained on.

The map takes the student's vectors to the width of its teacher's, so that the two can be compared.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.core import ranks

RIDGE = 1e-3
"""λ, as a share of the mean squared entry of the student's vectors."""


class KeptMapFit:
    """Ridge regression from a student's vectors to its source's, whose sums are gathered batch by batch.

    With g the student's pooled vectors `[S]` before its first step, and t the finished vectors `[T]` of the source, W
    and b minimise Σ ‖g W + b − t‖² + λ ‖W‖² over the texts; without a bias b = 0. λ is `RIDGE` times Σ ‖g‖² / S. The
    paper does not say how its map starts.
    """

    def __init__(self) -> None:
        # The sum over texts of g~ᵀ [g~, t], where g~ is g with a one behind it: [S + 1, S + 1 + T].
        self._products: Tensor | None = None

    def add(self, student: Tensor, source: Tensor) -> None:
        """Take in the vectors of a batch of texts.

        Args:
            student: g, `[texts, S]`.
            source: t, `[texts, T]`.
        """
        # Sums are kept on the CPU, since not every device has float64. The one behind g stands for the bias.
        vectors = F.pad(student.cpu().double(), (0, 1), value=1.0)
        product = vectors.T @ torch.cat([vectors, source.cpu().double()], dim=-1)
        self._products = product if self._products is None else self._products + product

    @torch.no_grad()
    def solve(self, linear: nn.Linear) -> None:
        """Set the weight and the bias of a map to the least-squares solution, in place.

        It maps the student's vectors g `[S]` to the source's vectors t `[T]`.

        All processes of a training take the sums of the first, so that they get the same map.
        """
        assert self._products is not None
        products = ranks.broadcast(self._products)
        width = linear.in_features
        # The products are Σ g~ᵀ [g~, t], where g~ is g with a one behind it. That one is the feature of the bias. For a
        # map without a bias its row and its column are left out.
        size = width if linear.bias is None else width + 1
        gram = products[:size, :size]
        with_source = products[:size, width + 1 :]
        # λ for the weights, and 0 for the bias.
        penalty = torch.zeros(size, dtype=gram.dtype)
        penalty[:width] = RIDGE * gram.diagonal()[:width].mean()
        # [S or S + 1, T].
        solution = torch.linalg.solve(gram + penalty.diag(), with_source)
        linear.weight.copy_(solution[:width].T)
        if linear.bias is not None:
            linear.bias.copy_(solution[-1])
