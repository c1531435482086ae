"""`VectorCombination`: the sentence vectors of several teachers as one vector, by a linear map of each.

Every teacher's vectors are scaled to length one first, so that none counts more because its vectors are longer. n is
the number of texts, D_i the width of teacher i and W the width of the combined vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.files import atomic_file
from limbeck.errors import CorpusError
from limbeck.models.directions import leading_directions


@dataclass(frozen=True)
class VectorCombination:
    """A linear map for each teacher: the combined vector of a text is sum_i u_i M_i, scaled to length one.

    u_i is the vector of teacher i, scaled to length one.

    Args:
        maps: M_i, `[D_i, W]` in float32, with the weight of the teacher in it.
    """

    maps: tuple[Tensor, ...]

    def combine(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the combined vectors of some texts, `[n, W]`, on the device of the first teacher's vectors.

        Args:
            vectors: The vectors of each teacher, `[n, D_i]`, in the order of the maps.
        """
        total: Tensor | None = None
        for teacher_vectors, teacher_map in zip(vectors, self.maps, strict=True):
            unit_vectors = F.normalize(teacher_vectors.float(), dim=-1)
            part = unit_vectors @ teacher_map.to(unit_vectors.device)
            total = part if total is None else total + part
        assert total is not None  # There is a teacher.
        return F.normalize(total, dim=-1)

    def save(self, path: Path) -> None:
        """Write the maps to a file."""
        tensors = {str(index): teacher_map.contiguous() for index, teacher_map in enumerate(self.maps)}
        with atomic_file(path) as partial_file:
            save_file(tensors, partial_file)

    @classmethod
    def load(cls, path: Path) -> VectorCombination:
        """Read the maps from a file that `save` has written."""
        tensors = load_file(path)
        return cls(tuple(tensors[str(index)] for index in range(len(tensors))))


def concatenated(vectors: Sequence[Tensor], weights: Sequence[float], width: int) -> VectorCombination:
    """Concatenate vectors, and project them onto the directions in which those of a corpus are longest.

    Each u_i is multiplied by sqrt(w_i), with weights that sum to 1. The dot product of two concatenated vectors is then
    the weighted mean of the teachers' cosines. The W principal directions (not centred, since a mean taken off would
    change these products) keep as much of the vectors' mean square as W directions can.

    Args:
        vectors: The vectors of a sample of texts by each teacher, `[n, D_i]`.
        weights: The weight of each teacher, above 0.
        width: W, at most the sum of the widths.

    Raises:
        CorpusError: for fewer texts than directions.
    """
    count = len(vectors[0])
    if count < width:
        raise CorpusError(
            f"The vectors of several teachers are projected onto {width} principal directions of the text, but "
            f"{count} texts are too few to find these; give more text, or a smaller combine.width."
        )
    total_weight = sum(weights)
    scales = [math.sqrt(weight / total_weight) for weight in weights]
    scaled_vectors = []
    for scale, teacher_vectors in zip(scales, vectors, strict=True):
        scaled_vectors.append(scale * _unit(teacher_vectors))
    joined = torch.cat(scaled_vectors, dim=1)
    moment = joined.T @ joined / count
    basis = leading_directions([moment], width).basis

    # Each row of the basis belongs to a feature of the joined vectors, whose features come teacher by teacher.
    widths = [teacher_vectors.shape[1] for teacher_vectors in vectors]
    rows_of_teachers = basis.split(widths)
    maps = [scale * rows for scale, rows in zip(scales, rows_of_teachers, strict=True)]
    return VectorCombination(tuple(teacher_map.float() for teacher_map in maps))


def averaged(vectors: Sequence[Tensor], weights: Sequence[float]) -> VectorCombination:
    """Rotate the vectors of all teachers into the space of the first teacher's, and average them.

    With U_i `[n, D_i]` the vectors of teacher i, scaled to length one, and weights w_i that sum to 1, the maps are
    M_1 = w_1 I and M_i = w_i Q_i. Q_i `[D_i, D_1]` is the rotation that brings U_i nearest to U_1: it minimises
    ‖U_i Q − U_1‖ (Frobenius norm) over the matrices with orthonormal rows, or with orthonormal columns where D_i > D_1.
    It is Q_i = L Rᵀ, with L S Rᵀ the singular value decomposition of U_iᵀ U_1.

    Args:
        vectors: The vectors of a sample of texts by each teacher, `[n, D_i]`.
        weights: The weight of each teacher, above 0.

    Source:
        Schönemann, A generalized solution of the orthogonal Procrustes problem (Psychometrika 31, 1966).
    """
    total_weight = sum(weights)
    shares = [weight / total_weight for weight in weights]
    first_vectors = _unit(vectors[0])
    identity = torch.eye(first_vectors.shape[1], dtype=torch.float64)
    maps = [shares[0] * identity]
    for share, teacher_vectors in zip(shares[1:], vectors[1:], strict=True):
        product = _unit(teacher_vectors).T @ first_vectors
        # L and Rᵀ; the singular values play no part.
        left, _, right = torch.linalg.svd(product, full_matrices=False)
        rotation = left @ right
        maps.append(share * rotation)
    return VectorCombination(tuple(teacher_map.float() for teacher_map in maps))


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of length one, in float64 on the CPU."""
    return F.normalize(vectors.double().cpu(), dim=-1)
