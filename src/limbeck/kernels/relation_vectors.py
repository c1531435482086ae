"""The vectors of a relation a bᵀ, and the gradients of a student's, as its kernels hand them on."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class RelationVectors(NamedTuple):
    """Vectors of one model.

    Attributes:
        a: The left ones, `[B, L, width]`.
        b: The right ones, `[B, L, width]`; `a` itself where the relation is of vectors with themselves.
    """

    a: Tensor
    b: Tensor

    @property
    def is_symmetric(self) -> bool:
        """Whether both are one tensor."""
        return self.a is self.b

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, each once."""
        return (self.a,) if self.is_symmetric else (self.a, self.b)


class RelationGrads(NamedTuple):
    """Gradients of a student's vectors, to be written.

    Attributes:
        a: Of `a`; None where none is wanted.
        b: Of `b`; the tensor of `a` where the vectors are one, which then receives the sum of both.
    """

    a: Tensor | None
    b: Tensor | None

    @classmethod
    def of_tensors(cls, grads: Sequence[Tensor | None]) -> "RelationGrads":
        """Return the gradients of `RelationVectors.tensors`, which are one or two."""
        return cls(grads[0], grads[-1])
