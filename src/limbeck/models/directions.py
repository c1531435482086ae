"""Orthonormal directions along which vectors lie most: principal directions of words, and of hidden states.

H is the width of the directions, V the number of words and E the width of their embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_CHUNK = 65_536
"""Rows of a matrix that are taken to float64 at once."""


class Directions(NamedTuple):
    """An orthonormal basis of a part of a space.

    Attributes:
        basis: `[H, width]` in float64: the most important direction first, the largest entry of each positive.
        share: Share of the vectors' variance, or of their mean square, that the basis keeps, 0..1.
    """

    basis: Tensor
    share: float


def principal_directions(rows: Tensor, width: int, *, through: Tensor | None = None) -> Directions:
    """Return the leading principal directions of a matrix's rows (PCA), and the share of their variance.

    Works on the H x H covariance in float64, in chunks of rows, so a vocabulary of 250 000 needs no second
    copy of its embeddings.

    Args:
        rows: `[V, E]`, one row a token.
        width: Number of directions, 1..H.
        through: `[H, E]`, a map applied to the rows first (the projection of factorised embeddings); H = E
            without it.
    """
    rows = rows.detach()
    # A small matrix in float64 costs nothing; of a large one only the sums are in float64.
    is_small = len(rows) <= _CHUNK
    mean = rows.double().mean(0) if is_small else rows.mean(0, dtype=torch.float64)
    # The sum of outer products, [E, E]. It is not divided by the number of rows, which would change no direction and no
    # share.
    covariance = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for chunk in rows.split(_CHUNK):
        centred = chunk.double() - mean
        covariance += centred.T @ centred
    if through is not None:
        # The covariance of mapped rows M x is M C Mᵀ, [H, H].
        through = through.detach().double()
        covariance = through @ covariance @ through.T

    # Eigenvalues come in rising order. Here the largest are wanted first.
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    basis = eigenvectors.flip(1)[:, :width]
    variances = eigenvalues.clamp(min=0).flip(0)
    # Rows that are all equal have no variance to lose.
    share = 1.0
    if float(variances.sum()) > 0:
        share = float(variances[:width].sum() / variances.sum())
    return Directions(fix_signs(basis), share)


def leading_directions(moments: Sequence[Tensor], width: int) -> Directions:
    """Return the directions along which several groups of vectors lie most, and the share of their mean square.

    Each group counts the same, however long its vectors are.

    Args:
        moments: Of each group the mean of x xᵀ over its vectors x, `[H, H]` in float64.
        width: Number of directions, 1..H.
    """
    # A moment's trace is the mean square length of its vectors.
    squares = moments[0] / moments[0].trace()
    for moment in moments[1:]:
        squares = squares + moment / moment.trace()
    # Eigenvectors come in the rising order of their eigenvalues. Here those of the largest are wanted first.
    eigenvectors = torch.linalg.eigh(squares).eigenvectors.flip(1)
    basis = fix_signs(eigenvectors[:, :width])
    share = (basis.T @ squares @ basis).trace() / squares.trace()
    return Directions(basis, float(share))


def fix_signs(basis: Tensor) -> Tensor:
    """Turn the columns of `[H, width]` so that the largest entry of each is positive.

    An eigenvector's sign is arbitrary; fixed signs let the same rows give the same basis everywhere.
    """
    row_of_largest = basis.abs().argmax(0, keepdim=True)
    signs = basis.gather(0, row_of_largest).sign()
    return (basis * signs).contiguous()
