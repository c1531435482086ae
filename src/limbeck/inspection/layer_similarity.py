"""Similarity of the layers of two models: linear centred kernel alignment (CKA), summed up a batch at a time.

CKA of two layers is near 1 where the vectors of one are close to a rotated and scaled copy of the vectors of the other.

Axis letters: n tokens, S/T number of student and teacher layers, H width of a model; H_S the student's, H_T the
teacher's.
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

_MOST_BYTES = 2**30
"""Bytes that the cross-products of pairs of layers may take at once."""
_BYTES_OF_FLOAT64 = 8


class CrossProducts:
    """Sums of the cross-products of two sets of layers, from which CKA is computed.

    For centred X `[n, H_S]` and Y `[n, H_T]`, CKA = ||X^T Y||^2 / (||X^T X|| ||Y^T Y||) in Frobenius norms. The mean of
    all tokens is known only at the end, so products are made of vectors less the mean of the first batch, and the rest
    of the mean is subtracted at the end: with x and y these shifted vectors, X^T Y = Σ x y^T - (Σ x) (Σ y)^T / n.
    Products are made in float32 and summed in float64; the shift keeps large common components from costing digits.

    Source:
        Kornblith et al. 2019 (arXiv 1905.00414) section 3, linear CKA, the plain (biased) estimate.
    """

    def __init__(self) -> None:
        self.tokens = 0
        # Made with the first batch, which decides the shapes and the shift.
        self._student: _SelfProducts | None = None
        self._teacher: _SelfProducts | None = None
        # Products of all student layers with all teacher layers, `[S * H_S, T * H_T]`.
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
        # `add` has been called: without a token the texts are refused before.
        assert self._student is not None
        assert self._teacher is not None
        student_sums = self._student.sums  # [S, H_S]
        teacher_sums = self._teacher.sums  # [T, H_T]
        teacher_layers, teacher_width = teacher_sums.shape
        student_width = student_sums.shape[1]
        squared_norms = []
        # A block is [H_S, T * H_T], the products of one student layer with all teacher layers.
        blocks = self._cross.split(student_width)
        for block, layer_sums in zip(blocks, student_sums, strict=True):
            product_of_means = torch.outer(layer_sums, teacher_sums.flatten()) / self.tokens
            centred = block - product_of_means
            # [H_S, T, H_T] -> [T], ||X^T Y||^2 with every teacher layer.
            by_teacher_layer = centred.view(student_width, teacher_layers, teacher_width)
            squared_norms.append(by_teacher_layer.square().sum((0, 2)))
        # [S, T], ||X^T X|| ||Y^T Y||.
        norms = torch.outer(self._student.norms(self.tokens), self._teacher.norms(self.tokens))
        return torch.stack(squared_norms) / norms


@torch.no_grad()
def measure_similarity(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 256, report: Report = no_progress
) -> LayerSimilarity:
    """Measure the linear CKA of every layer of the student and every layer of the teacher, on the tokens of some texts.

    Sums of cross-products are held, not the vectors of all tokens. Where the sums of all pairs of layers would take
    more than a gibibyte, the student's layers are measured in groups, and the texts are read once for each group.

    Args:
        student: A model.
        teacher: Another model with the same tokenizer, or the same model.
        texts: The texts to read; with ten tokens or more for each feature of the wider model, the values are reliable.
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
    # The student's layers are split into groups whose cross-products with all teacher layers fit into the memory.
    teacher_layers = len(layer_keys(teacher.model))
    bytes_of_one_layer = _BYTES_OF_FLOAT64 * student_width * teacher_width * teacher_layers
    group_size = max(1, _MOST_BYTES // bytes_of_one_layer)
    keys = layer_keys(student.model)
    groups = [keys[start : start + group_size] for start in range(0, len(keys), group_size)]

    values: list[tuple[float, ...]] = []
    tokens = 0
    for number, group in enumerate(groups):
        report_group = part_of(report, number / len(groups), (number + 1) / len(groups))
        sums = _cross_products(student, teacher, rows.ids, group, report=report_group)
        values += [tuple(similarities) for similarities in sums.similarity().tolist()]
        # Every group reads the same texts, so the number is the same.
        tokens = sums.tokens
    return LayerSimilarity(
        student=student.name,
        teacher=teacher.name,
        values=tuple(values),
        tokens=tokens,
        width=max(student_width, teacher_width),
        cut=rows.cut,
    )


class _SelfProducts:
    """Sums of one model's shifted vectors, and of their products within each layer.

    Attributes:
        sums: Sum of the shifted vectors of each layer, `[layers, H]`.

    Args:
        first: The first batch, `[layers, n, H]`. Its mean is subtracted from the vectors of all batches.
    """

    def __init__(self, first: Tensor) -> None:
        layers, _, width = first.shape
        self._shift = first.mean(1, keepdim=True)
        self.sums = torch.zeros(layers, width, dtype=torch.float64)
        self._products = torch.zeros(layers, width, width, dtype=torch.float64)

    def add(self, vectors: Tensor) -> Tensor:
        """Add a batch `[layers, n, H]` to the sums, and return its shifted vectors."""
        shifted = vectors - self._shift
        self.sums += shifted.sum(1).cpu()
        self._products += (shifted.transpose(1, 2) @ shifted).cpu()
        return shifted

    def norms(self, tokens: int) -> Tensor:
        """Return ||X^T X|| of each layer, the Frobenius norm of its centred products, `[layers]`.

        Args:
            tokens: Number of tokens n that were added.
        """
        # [layers, H, H].
        product_of_means = self.sums[:, :, None] * self.sums[:, None, :] / tokens
        return (self._products - product_of_means).flatten(1).norm(dim=1)


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
            # Student and teacher may be the same model, on which two taps at once would disturb each other.
            with StreamTap(student.model, student_keys) as tap:
                student_vectors = valid_vectors(tap(**batch.inputs), student_keys, batch.valid)
            with StreamTap(teacher.model, teacher_keys) as tap:
                teacher_vectors = valid_vectors(tap(**batch.inputs), teacher_keys, batch.valid)
            sums.add(student_vectors, teacher_vectors)
    return sums
