"""Attention heads of a teacher narrowed to fewer dimensions each, so that they act nearly alike on its inputs.

S is the student's hidden width, A the number of heads, d their size, and x~ a hidden state `[S + 1]` with a one behind
it, by which a map with its bias as the last column is a plain product. C is the *moment* of hidden states, the mean of
x~ x~ᵀ over tokens; C^½ is its symmetric square root.

A head uses its query and key maps, and its value and output maps, only as products: it scores a pair of inputs by
x~ᵀ Wqᵀ Wk x~ / √d, and writes Wo Wv x~. Each product is replaced by the nearest of lower rank, and that is split into
two maps of fewer dimensions again. The error that counts is that on inputs of moment C, so the nearest product is found
for Wqᵀ Wk with C^½ on both sides, and for Wo Wv with C^½ on the right.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

_LEAST_EIGENVALUE = 1e-6
"""Least eigenvalue of a moment, as a share of its largest one; smaller eigenvalues are raised to it."""


class HeadMaps(NamedTuple):
    """The linear maps of heads, between the student's hidden states and the heads' dimensions.

    Attributes:
        query: `[A, d, S + 1]`, with the bias as the last column.
        key: Like `query`.
        value: Like `query`.
        output: `[A, S, d]`.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


class Heads:
    """The heads of a block, and the moment of their inputs.

    Args:
        maps: The heads' maps.
        inputs: C, `[S + 1, S + 1]`.
    """

    def __init__(self, maps: HeadMaps, inputs: Tensor) -> None:
        self.maps = maps
        # The moment C of the inputs is V diag(λ) Vᵀ, with the eigenvalues λ in rising order. The smallest are raised,
        # because C may not be of full rank and would have no inverse.
        eigenvalues, eigenvectors = torch.linalg.eigh(inputs)
        largest = float(eigenvalues[-1])
        eigenvalues = eigenvalues.clamp(min=largest * _LEAST_EIGENVALUE)
        # C^½ = V diag(√λ) Vᵀ and C^-½ = V diag(1 / √λ) Vᵀ, [S + 1, S + 1]; a row vector scales the columns of V.
        self._root = (eigenvectors * eigenvalues.sqrt()) @ eigenvectors.T
        self._inverse_root = (eigenvectors * eigenvalues.rsqrt()) @ eigenvectors.T

    def strength(self) -> Tensor:
        """Return the mean of ‖Wo Wv x~‖² over the inputs for each head, `[A]`; attention probabilities are left out."""
        # The mean is the squared norm of Wo Wv C^½, [A, S, S + 1].
        written = self.maps.output @ (self.maps.value @ self._root)
        return written.square().sum((1, 2))

    def narrow(self, heads: Tensor, size: int) -> HeadMaps:
        """Return the maps of some heads, with fewer dimensions each.

        Args:
            heads: Indices of the heads that are kept, counted from 0.
            size: The new size of each, at most d.
        """
        query, key = self._narrow_scores(self.maps.query[heads], self.maps.key[heads], size)
        value, output = self._narrow_output(self.maps.value[heads], self.maps.output[heads], size)
        # The student divides scores by √size instead of √d. Query and key each take half of the gain √(size / d) that
        # makes up for it.
        teacher_size = self.maps.query.shape[1]
        gain = math.sqrt(size / teacher_size)
        factor = math.sqrt(gain)
        return HeadMaps(query=query * factor, key=key * factor, value=value, output=output)

    def _narrow_scores(self, query: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the query and key maps of `size` dimensions whose product Wqᵀ Wk is nearest to that of these maps.

        Args:
            query: `[heads, d, S + 1]`.
            key: `[heads, d, S + 1]`.
            size: The new size.

        Returns:
            Two maps `[heads, size, S + 1]`.
        """
        if size == query.shape[1]:
            return query, key
        # C^½ Wqᵀ and C^½ Wkᵀ, [heads, S + 1, d]; the first times the transpose of the second is C^½ Wqᵀ Wk C^½.
        query_factor = (query @ self._root).mT
        key_factor = (key @ self._root).mT
        # [heads, S + 1, size] each.
        narrow_query, narrow_key = best_factors(query_factor, key_factor, size)
        # C^½ is taken off again: [heads, size, S + 1].
        return narrow_query.mT @ self._inverse_root, narrow_key.mT @ self._inverse_root

    def _narrow_output(self, value: Tensor, output: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the value and output maps of `size` dimensions whose product Wo Wv is nearest to that of these maps.

        Args:
            value: `[heads, d, S + 1]`.
            output: `[heads, S, d]`.
            size: The new size.

        Returns:
            The value map `[heads, size, S + 1]` and the output map `[heads, S, size]`.
        """
        if size == value.shape[1]:
            return value, output
        # C^½ Wvᵀ, [heads, S + 1, d]; Wo times its transpose is Wo Wv C^½.
        value_factor = (value @ self._root).mT
        # [heads, S, size] and [heads, S + 1, size].
        narrow_output, narrow_value = best_factors(output, value_factor, size)
        # C^½ is taken off the value map again.
        return narrow_value.mT @ self._inverse_root, narrow_output


def best_factors(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return two factors of the best approximation of left · rightᵀ by a matrix of lower rank, for many pairs at once.

    With the singular value decomposition U diag(σ) Vᵀ of the product, the factors are the first `rank` columns of
    U diag(√σ) and V diag(√σ).

    Args:
        left: `[..., m, d]`.
        right: `[..., n, d]`.
        rank: At most d.

    Returns:
        The left factor `[..., m, rank]` and the right one `[..., n, rank]`. If m or n is below the rank, the last
        columns are zero.
    """
    # With left = Q₁ R₁ and right = Q₂ R₂ the product is Q₁ (R₁ R₂ᵀ) Q₂ᵀ, and the small R₁ R₂ᵀ is decomposed instead.
    left_basis, left_triangle = torch.linalg.qr(left)
    right_basis, right_triangle = torch.linalg.qr(right)
    u, singular_values, vh = torch.linalg.svd(left_triangle @ right_triangle.mT, full_matrices=False)
    # [..., 1, rank], or fewer columns than the rank if m or n is smaller.
    root = singular_values[..., None, :rank].sqrt()
    best_left = left_basis @ (u[..., :rank] * root)
    best_right = right_basis @ (vh.mT[..., :rank] * root)
    missing = rank - root.shape[-1]
    # Columns of zeros are added on the right.
    return nn.functional.pad(best_left, (0, missing)), nn.functional.pad(best_right, (0, missing))
