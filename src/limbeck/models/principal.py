"""Principal directions: the narrower space that keeps most of what the teacher's word embeddings differ
in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 65_536


@dataclass(frozen=True)
class PrincipalDirections:
    """An orthonormal basis, most important direction first.

    Attributes:
        basis: `[H, width]` in float64, `basisᵀ basis = 1`; the column's largest entry is positive.
        explained: Share of the variance that the basis keeps, 0..1.
    """

    basis: Tensor
    explained: float


def principal_directions(rows: Tensor, width: int, *, through: Tensor | None = None) -> PrincipalDirections:
    """Return the leading principal directions of a matrix's rows (PCA).

    Works on the H x H covariance in float64, in chunks of rows, so a vocabulary of 250 000 needs no second
    copy of its embeddings. The sign of each direction is fixed, so the same rows give the same basis.

    Args:
        rows: `[V, E]`, one row a token.
        width: How many directions, 1..H.
        through: `[H, E]`, a map applied to the rows first (the projection of factorised embeddings); H = E
            without it.
    """
    rows = rows.detach()
    mean = rows.double().mean(0) if len(rows) <= _CHUNK else rows.mean(0, dtype=torch.float64)
    covariance = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for chunk in rows.split(_CHUNK):
        centred = chunk.double() - mean
        covariance += centred.T @ centred
    if through is not None:
        through = through.detach().double()
        covariance = through @ covariance @ through.T
    values, vectors = torch.linalg.eigh(covariance)
    basis = vectors.flip(1)[:, :width]
    largest = basis.abs().argmax(0, keepdim=True)
    basis = basis * basis.gather(0, largest).sign()
    spread = values.clamp(min=0).flip(0)
    explained = float(spread[:width].sum() / spread.sum()) if float(spread.sum()) > 0 else 1.0
    return PrincipalDirections(basis.contiguous(), explained)
