"""Which layers of two models hold alike vectors: linear centred kernel alignment (CKA), a batch at a time.

Axis letters: n tokens, S/T number of student and teacher layers, H width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.inspection.subject import Subject, check_comparable, layer_keys, tokenise, valid_vectors
from limbeck.models.families import shape_of
from limbeck.models.inference import batches
from limbeck.models.taps import StreamTap, evaluation_mode

_MEMORY = 2**30
_TOKENS_PER_FEATURE = 10


class CrossProducts:
    """Sums of the cross-products of two sets of layers: all that CKA needs of the vectors.

    For centred X `[n, H_S]` and Y `[n, H_T]`, CKA = ||X^T Y||^2 / (||X^T X|| ||Y^T Y||) in Frobenius norms. Products
    are made in float32, of vectors that are shifted by the first batch's mean so that large common components cost no
    digits; they are summed in float64, and the true mean is taken off at the end.

    Source:
        Kornblith et al. 2019 (arXiv 1905.00414) section 3, linear CKA, the plain (biased) estimate.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._shifts: list[Tensor] = []
        self._sums: list[Tensor] = []  # of the vectors: student [S, H_S], teacher [T, H_T]
        self._own: list[Tensor] = []  # of each layer with itself: [S, H_S, H_S], [T, H_T, H_T]
        self._cross = torch.zeros(0, 0, dtype=torch.float64)  # of all with all: [S * H_S, T * H_T]

    def add(self, student: Tensor, teacher: Tensor) -> None:
        """Add the vectors of some more tokens.

        Args:
            student: `[S, n, H_S]`.
            teacher: `[T, n, H_T]`, of the same tokens.
        """
        both = [student.float(), teacher.float()]
        if not self._shifts:
            self._shifts = [side.mean(1, keepdim=True) for side in both]
            self._sums = [torch.zeros(len(side), side.shape[-1], dtype=torch.float64) for side in both]
            self._own = [torch.zeros(*total.shape, total.shape[-1], dtype=torch.float64) for total in self._sums]
            self._cross = torch.zeros(self._sums[0].numel(), self._sums[1].numel(), dtype=torch.float64)
        both = [side - shift for side, shift in zip(both, self._shifts, strict=True)]
        for side, total, own in zip(both, self._sums, self._own, strict=True):
            total += side.sum(1).cpu()
            own += (side.transpose(1, 2) @ side).cpu()
        flat = [side.transpose(0, 1).flatten(1) for side in both]
        self._cross += (flat[0].T @ flat[1]).cpu()
        self.tokens += student.shape[1]

    def similarity(self) -> Tensor:
        """Return the CKA of every pair of layers, `[S, T]`, 0 to 1; NaN for a layer that never varies."""
        students, teachers = self._sums
        norms = [
            (own - total[:, :, None] * total[:, None, :] / self.tokens).flatten(1).norm(dim=1)
            for own, total in zip(self._own, self._sums, strict=True)
        ]
        rows = []
        for block, total in zip(self._cross.split(students.shape[1]), students, strict=True):
            centred = block - torch.outer(total, teachers.flatten()) / self.tokens
            rows.append(centred.view(-1, *teachers.shape).square().sum((0, 2)))
        return torch.stack(rows) / torch.outer(norms[0], norms[1])


@dataclass(frozen=True)
class LayerSimilarity:
    """Every layer of the student beside every layer of the teacher, 0 (the embedding output) to S and T.

    Attributes:
        student: The student's name.
        teacher: The teacher's name.
        values: `values[s][t]` is the CKA of student layer s and teacher layer t, 0 to 1; NaN for a layer that never
            varies.
        tokens: Tokens that it is over, special ones included.
        width: Of the wider model. The plain estimate is too high unless there are many tokens for each feature.
        cut: Texts that were cut to the longest length.
    """

    student: str
    teacher: str
    values: tuple[tuple[float, ...], ...]
    tokens: int
    width: int
    cut: int

    @property
    def nearest(self) -> tuple[int, ...]:
        """For every layer of the student, from 0, the teacher layer that is most like it, from 0."""
        known = [[-math.inf if math.isnan(value) else value for value in row] for row in self.values]
        return tuple(row.index(max(row)) for row in known)

    @property
    def reliable(self) -> bool:
        """Whether there were ten tokens or more for each feature; with fewer the values come out too high."""
        return self.tokens >= _TOKENS_PER_FEATURE * self.width


@torch.no_grad()
def measure_similarity(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 256, report: Report = no_progress
) -> LayerSimilarity:
    """Measure the linear CKA of every layer of the student and every layer of the teacher, on the tokens of some texts.

    The vectors are never held together: sums of cross-products are. Where those of all pairs of layers would take more
    than a gibibyte, the texts are read several times, for a few layers of the student each.

    Args:
        student: A model.
        teacher: Another with the same tokenizer, or the same model.
        texts: Any number; ten tokens for each feature of the wider model, or more, give a steady figure.
        length: Longest input in tokens, special tokens included; lowered to what both models can take.
        report: Receives progress.

    Raises:
        ModelError: if the two read text differently.
        CorpusError: if the texts hold no token.

    Source:
        See `CrossProducts`.
    """
    check_comparable(student, teacher)
    rows = tokenise(student.tokenizer, texts, length, student.longest, teacher.longest)
    student_width = shape_of(student.model.config).hidden
    teacher_width = shape_of(teacher.model.config).hidden
    teacher_keys = layer_keys(teacher.model)
    # Layers of the student whose cross-products with all of the teacher's, in float64, fit into the memory.
    bytes_of_one_layer = 8 * student_width * teacher_width * len(teacher_keys)
    at_once = max(1, _MEMORY // bytes_of_one_layer)
    keys = layer_keys(student.model)
    groups = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]

    similarities = []
    tokens = 0
    with evaluation_mode(student.model), evaluation_mode(teacher.model):
        for number, group in enumerate(groups):
            sums = CrossProducts()
            part = part_of(report, number / len(groups), (number + 1) / len(groups))
            read = batches(rows.ids, student.tokenizer, device=student.device, report=part, what="Layers of both")
            for batch in read:
                # One after the other: two taps on one model would be in each other's way.
                with StreamTap(student.model, group) as tap:
                    student_vectors = valid_vectors(tap(**batch.inputs), group, batch.valid)
                with StreamTap(teacher.model, teacher_keys) as tap:
                    teacher_vectors = valid_vectors(tap(**batch.inputs), teacher_keys, batch.valid)
                sums.add(student_vectors, teacher_vectors)
            similarities += sums.similarity().tolist()
            tokens = sums.tokens
    values = tuple(tuple(row) for row in similarities)
    width = max(student_width, teacher_width)
    return LayerSimilarity(student.name, teacher.name, values, tokens, width, rows.cut)
