"""`CombinedSide`: several teachers beside their student, by the combination of their sentence vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from limbeck.core import progress, records
from limbeck.errors import ModelError
from limbeck.evaluation.compare import Side
from limbeck.models.vector_combination import VectorCombination


@dataclass(frozen=True)
class CombinedSide(Side):
    """Several teachers, each of which reads texts in its own way.

    Attributes:
        members: The teachers.
        combination: How their vectors become one; None for a run that combined none.
    """

    members: Sequence[Side] = ()
    combination: VectorCombination | None = None

    def encode(
        self, texts: Sequence[tuple[str, str]], report: progress.Report, roles: tuple[str, str] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the combined vectors of the first and of the second of each pair; see `Side.encode`."""
        if self.combination is None:
            raise ModelError(
                "No stage of this run combined the sentence vectors of its teachers, so there are none to compare with."
            )
        first_vectors = []
        second_vectors = []
        for member in self.members:
            first, second = member.encode(texts, report, roles)
            first_vectors.append(first)
            second_vectors.append(second)
        return self.combination.combine(first_vectors), self.combination.combine(second_vectors)

    def figures(self) -> records.ModelFigures:
        """Return the sizes of all teachers together; a size that one of them lacks is None."""
        figures_of_members = [member.figures() for member in self.members]
        parameters = {}
        for name in records.Parameters.model_fields:
            parameters[name] = _sum_of([getattr(figures.parameters, name) for figures in figures_of_members])
        return records.ModelFigures(
            parameters=records.Parameters(**parameters),
            megabytes=_sum_of([figures.megabytes for figures in figures_of_members]),
            megabytes_of=figures_of_members[0].megabytes_of,
        )

    def timed_model(self) -> nn.Module:
        """Refuse to time several models as one."""
        raise ModelError("The student had several teachers, which cannot be timed as one model.")


def _sum_of(sizes: Sequence[float | None]) -> float | None:
    """Return the sum of some sizes; None where one is not known."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return sum(known)
