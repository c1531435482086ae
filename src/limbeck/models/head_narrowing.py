"""Attention heads made of fewer dimensions each, by what they do on a teacher's inputs.

Written as in `bases.py` and `activations.py`: S is the student's hidden width, and C the moment of its hidden states
with a one behind each. A is the number of heads and d their size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

_LEAST_EIGENVALUE = 1e-6
"""Of a moment, as a share of its largest; smaller eigenvalues are raised to it."""


class HeadMaps(NamedTuple):
    """The linear maps of heads.

    Attributes:
        query: `[A, d, S + 1]`, its bias last; reads what the student's hidden states are.
        key: Like `query`.
        value: Like `query`.
        output: `[A, S, d]`.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


class Heads:
    """The heads of a block, and the inputs by which they are judged.

    A head scores a pair of inputs by x~ᵀ Wqᵀ Wk x~ / √d and writes Wo Wv x~. Of both products the best approximation
    of a student head's rank is taken, as inputs of moment C feel it (singular values of C^½ Wqᵀ Wk C^½ and Wo Wv C^½).

    Args:
        maps: Their maps.
        inputs: C, `[S + 1, S + 1]`.
    """

    def __init__(self, maps: HeadMaps, inputs: Tensor) -> None:
        self.maps = maps
        # C^½ and its inverse; the smallest eigenvalues are raised, since C may not be of full rank.
        eigenvalues, eigenvectors = torch.linalg.eigh(inputs)
        largest = float(eigenvalues[-1])
        eigenvalues = eigenvalues.clamp(min=largest * _LEAST_EIGENVALUE)
        self._root = eigenvectors * eigenvalues.sqrt() @ eigenvectors.T
        self._inverse_root = eigenvectors * eigenvalues.rsqrt() @ eigenvectors.T

    def strength(self) -> Tensor:
        """Return the mean square of each head's output, up to its probabilities, `[A]`."""
        written = self.maps.output @ (self.maps.value @ self._root)
        return written.square().sum((1, 2))

    def narrow(self, heads: Tensor, size: int) -> HeadMaps:
        """Return the maps of some heads, with fewer dimensions each.

        Args:
            heads: Numbers of the heads.
            size: The dimensions of each head that stays, at most d.
        """
        query, key = self._narrow_scores(self.maps.query[heads], self.maps.key[heads], size)
        value, output = self._narrow_output(self.maps.value[heads], self.maps.output[heads], size)
        # The student divides scores by √size instead of √d; query and key share the factor that makes up for it.
        gain = math.sqrt(size / self.maps.query.shape[1])
        factor = math.sqrt(gain)
        return HeadMaps(query * factor, key * factor, value, output)

    def _narrow_scores(self, query: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the query and key maps of `size` dimensions whose product is nearest to that of the given ones."""
        if size == query.shape[1]:
            return query, key
        # [heads, S + 1, d] each; their product is C^½ Wqᵀ Wk C^½.
        query_factor = (query @ self._root).mT
        key_factor = (key @ self._root).mT
        narrow_query, narrow_key = best_factors(query_factor, key_factor, size)
        # C^½ is taken off again.
        return narrow_query.mT @ self._inverse_root, narrow_key.mT @ self._inverse_root

    def _narrow_output(self, value: Tensor, output: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the value and output maps of `size` dimensions whose product is nearest to that of the given ones."""
        if size == value.shape[1]:
            return value, output
        # [heads, S, d] and [heads, S + 1, d]; their product is Wo Wv C^½.
        value_factor = (value @ self._root).mT
        narrow_output, narrow_value = best_factors(output, value_factor, size)
        return narrow_value.mT @ self._inverse_root, narrow_output


def best_factors(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factor the best approximation of left · rightᵀ of a rank, of many pairs at once.

    Args:
        left: `[..., m, d]`.
        right: `[..., n, d]`.
        rank: At most d.

    Returns:
        `[..., m, rank]` and `[..., n, rank]`, of equal columns' lengths; zero where there is no such rank.
    """
    # The product of the two triangular factors has the same singular values, and is only d wide.
    left_basis, left_factor = torch.linalg.qr(left)
    right_basis, right_factor = torch.linalg.qr(right)
    u, singular_values, vh = torch.linalg.svd(left_factor @ right_factor.mT, full_matrices=False)
    # Each factor takes the square root of the singular values.
    root = singular_values[..., None, :rank].sqrt()
    best_left = left_basis @ (u[..., :rank] * root)
    best_right = right_basis @ (vh.mT[..., :rank] * root)
    missing = rank - root.shape[-1]
    return nn.functional.pad(best_left, (0, missing)), nn.functional.pad(best_right, (0, missing))
