"""Which layers of two models hold alike vectors: linear centred kernel alignment (CKA), a batch at a time.

Axis letters: n tokens, S/T number of student and teacher layers, H width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.inspection.results import LayerSimilarity
from limbeck.inspection.subject import Subject, check_comparable, layer_keys, valid_vectors
from limbeck.inspection.texts import tokenise
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import shape_of
from limbeck.models.inference import batches
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap

# Bytes that the cross-products of all pairs of layers may take at once.
_MEMORY = 2**30
_BYTES_OF_FLOAT64 = 8


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
        self._student: _SelfProducts | None = None
        self._teacher: _SelfProducts | None = None
        # Of all student layers with all teacher layers, `[S * H_S, T * H_T]`.
        self._cross = torch.zeros(0, 0, dtype=torch.float64)

    def add(self, student: Tensor, teacher: Tensor) -> None:
        """Add the vectors of some more tokens.

        Args:
            student: `[S, n, H_S]`.
            teacher: `[T, n, H_T]`, of the same tokens.
        """
        student = student.float()
        teacher = teacher.float()
        if self._student is None or self._teacher is None:
            self._student = _SelfProducts(student)
            self._teacher = _SelfProducts(teacher)
            self._cross = torch.zeros(self._student.sums.numel(), self._teacher.sums.numel(), dtype=torch.float64)
        student_shifted = self._student.add(student)
        teacher_shifted = self._teacher.add(teacher)
        # [layers, n, H] -> [n, layers * H].
        student_rows = student_shifted.transpose(0, 1).flatten(1)
        teacher_rows = teacher_shifted.transpose(0, 1).flatten(1)
        self._cross += (student_rows.T @ teacher_rows).cpu()
        self.tokens += student.shape[1]

    def similarity(self) -> Tensor:
        """Return the CKA of every pair of layers, `[S, T]`, 0 to 1; NaN for a layer that never varies."""
        assert self._student is not None
        assert self._teacher is not None
        student_sums = self._student.sums
        teacher_sums = self._teacher.sums
        rows = []
        # A block is `[H_S, T * H_T]`, the products of one student layer with all teacher layers.
        blocks = self._cross.split(student_sums.shape[1])
        for block, layer_sums in zip(blocks, student_sums, strict=True):
            product_of_means = torch.outer(layer_sums, teacher_sums.flatten()) / self.tokens
            centred = block - product_of_means
            # [H_S, T, H_T] -> [T], the squared Frobenius norms.
            rows.append(centred.view(-1, *teacher_sums.shape).square().sum((0, 2)))
        norms = torch.outer(self._student.norms(self.tokens), self._teacher.norms(self.tokens))
        return torch.stack(rows) / norms


class _SelfProducts:
    """Sums of one model's vectors and of their products within each layer.

    Args:
        first: The first batch, `[layers, n, H]`, whose mean all batches are shifted by.
    """

    def __init__(self, first: Tensor) -> None:
        layers, _, width = first.shape
        self._shift = first.mean(1, keepdim=True)
        self.sums = torch.zeros(layers, width, dtype=torch.float64)
        self._products = torch.zeros(layers, width, width, dtype=torch.float64)

    def add(self, vectors: Tensor) -> Tensor:
        """Add a batch `[layers, n, H]`, and return it shifted."""
        shifted = vectors - self._shift
        self.sums += shifted.sum(1).cpu()
        self._products += (shifted.transpose(1, 2) @ shifted).cpu()
        return shifted

    def norms(self, tokens: int) -> Tensor:
        """Return the Frobenius norm of each layer's centred products, `[layers]`."""
        product_of_means = self.sums[:, :, None] * self.sums[:, None, :] / tokens
        return (self._products - product_of_means).flatten(1).norm(dim=1)


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
    rows = tokenise(student.tokenizer, texts, limits=(length, student.longest, teacher.longest))
    student_width = shape_of(student.model.config).hidden
    teacher_width = shape_of(teacher.model.config).hidden
    # Layers of the student whose cross-products with all of the teacher's fit into the memory.
    teacher_layers = len(layer_keys(teacher.model))
    bytes_of_one_layer = _BYTES_OF_FLOAT64 * student_width * teacher_width * teacher_layers
    at_once = max(1, _MEMORY // bytes_of_one_layer)
    keys = layer_keys(student.model)
    groups = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]

    values: list[tuple[float, ...]] = []
    tokens = 0
    for number, group in enumerate(groups):
        part = part_of(report, number / len(groups), (number + 1) / len(groups))
        sums = _cross_products(student, teacher, rows.ids, group, report=part)
        values += [tuple(similarities) for similarities in sums.similarity().tolist()]
        # The same for every group.
        tokens = sums.tokens
    width = max(student_width, teacher_width)
    return LayerSimilarity(student.name, teacher.name, tuple(values), tokens, width, rows.cut)


def _cross_products(
    student: Subject,
    teacher: Subject,
    rows: Sequence[list[int]],
    student_keys: Sequence[StreamKey],
    *,
    report: Report,
) -> CrossProducts:
    """Sum the cross-products of some layers of the student with all layers of the teacher, over all rows of tokens."""
    sums = CrossProducts()
    teacher_keys = layer_keys(teacher.model)
    title = "Layers of both"
    with evaluation_mode(student.model), evaluation_mode(teacher.model):
        for batch in batches(rows, student.tokenizer, device=student.device, report=report, what=title):
            # One after the other: two taps on one model would be in each other's way.
            with StreamTap(student.model, student_keys) as tap:
                student_vectors = valid_vectors(tap(**batch.inputs), student_keys, batch.valid)
            with StreamTap(teacher.model, teacher_keys) as tap:
                teacher_vectors = valid_vectors(tap(**batch.inputs), teacher_keys, batch.valid)
            sums.add(student_vectors, teacher_vectors)
    return sums
