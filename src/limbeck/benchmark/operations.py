"""Floating point operations of a training step, counted from shapes.

Only matrix products are counted, a multiplication and an addition as two; only valid tokens take part, so padding is
waste. With l_b valid tokens in sample b, n = Σ l_b and s = Σ l_b²:

    a block                2 n Σ(numbers of its matrices) + 4 s A D          (projections and FFN; scores and their use)
    its projections alone  2 n H (A + 2 A') D                                (A query heads, A' key and value heads)
    a factorised embedding 2 n E H
    scores of V tokens     2 (scored tokens) V H + 2 n Σ(numbers of the head's other matrices)
    backward               twice the forward
    a learned map          6 n W_S W_T, with forward and both gradients; over R relation heads divided by R
    a loss                 as its objective counts (`Objective.operations`)

Sliding windows count as full attention. Norms, activations, softmax, embeddings, poolers, heads without a vocabulary,
terms over whole samples have no products worth counting: they are why 100 % is out of reach. The optimizer's floor is
the bytes that it moves; see `Step.optimizer_bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from limbeck.methods.composition import Term
from limbeck.methods.layer_mapping import stream_width
from limbeck.models.families import Shape, blocks, family_of
from limbeck.models.packing import PackedLinear
from limbeck.models.taps import StreamTap
from limbeck.objectives import OBJECTIVES, Workload


@dataclass(frozen=True)
class ForwardCost:
    """What a forward pass multiplies, as numbers of matrices.

    Attributes:
        weights: Numbers of the matrices that every valid token is multiplied with.
        attention_widths: A · D of each block whose attention runs.
        decoder: Numbers of the matrix that gives scores over the vocabulary; 0 where none are read.
    """

    weights: int
    attention_widths: tuple[int, ...]
    decoder: int = 0

    def operations(self, lengths: Sequence[int], scored: int = 0) -> int:
        """Count the operations of a batch.

        Args:
            lengths: Valid tokens of each sample.
            scored: Tokens that are scored over the vocabulary.
        """
        tokens, squares = sum(lengths), sum(length**2 for length in lengths)
        return 2 * tokens * self.weights + 4 * squares * sum(self.attention_widths) + 2 * scored * self.decoder


def forward_cost(tap: StreamTap, shape: Shape) -> ForwardCost:
    """Work out what a tapped model runs: no more than its streams need.

    Args:
        tap: The tap on the model.
        shape: The model's shape, before blocks were dropped.
    """
    width = shape.heads * shape.head_size
    projections = shape.hidden * (shape.heads + 2 * shape.key_value_heads) * shape.head_size
    weights, attention = 0, []
    if family_of(tap.base.config).embedding_projection is not None and shape.embedding != shape.hidden:
        weights += shape.embedding * shape.hidden
    plan = tap.recorder
    for layer, block in enumerate(blocks(tap.model)[: plan.last_layer], start=1):
        whole = layer < plan.last_layer or plan.stop_after == "block"
        weights += _matrix_numbers(block) if whole else projections
        if whole or plan.stop_after == "context":
            attention.append(width)
    decoder = tap.model.get_output_embeddings() if any(key.kind == "logits" for key in tap.keys) else None
    if decoder is None:
        return ForwardCost(weights, tuple(attention))
    inside = {id(parameter) for parameter in (*tap.base.parameters(), *decoder.parameters())}
    weights += sum(p.numel() for p in tap.model.parameters() if p.dim() == 2 and id(p) not in inside)
    return ForwardCost(weights, tuple(attention), decoder.weight.numel())


def loss_operations(term: Term, student: Shape, teacher: Shape, lengths: Sequence[int]) -> int:
    """Count the operations of a term and of its gradient for the student's streams.

    Args:
        term: The term.
        student: The student's shape.
        teacher: The teacher's shape.
        lengths: Valid tokens of each sample.
    """
    total = _map_operations(term, lengths)
    if not term.teacher:
        return total
    own, other = stream_width(student, term.student[0].kind), stream_width(teacher, term.teacher[0].kind)
    if term.teacher_heads is not None:
        other = other * term.teacher_heads.groups // term.teacher_heads.heads
    count = OBJECTIVES[term.objective].operations
    if count is None:
        return total
    return total + count(Workload(lengths, own, other, len(set(term.student)), len(set(term.teacher)), term.options))


def _map_operations(term: Term, lengths: Sequence[int]) -> int:
    """Forward and both gradients of a learned map, once for each of the student's layers where it takes several."""
    if term.learned_map is None:
        return 0
    a_sample = term.student[0].kind in ("cls", "pooled")
    rows = (len(lengths) if a_sample else sum(lengths)) * len(term.student)
    return 6 * rows * term.learned_map.inputs * term.learned_map.outputs // (term.learned_map.heads or 1)


def _matrix_numbers(block: nn.Module) -> int:
    packed = sum(m.in_features * m.out_features for m in block.modules() if isinstance(m, PackedLinear))
    return packed + sum(parameter.numel() for parameter in block.parameters() if parameter.dim() == 2)
