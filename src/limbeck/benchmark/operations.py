"""Operations of a training step: products of matrices in a forward pass and in the losses.

Only matrix products are counted, a multiplication and an addition as two; only valid tokens take part, so padding is
waste. With l_b valid tokens in sample b, n = Σ l_b and s = Σ l_b²:

    a block                2 n Σ(numbers of its matrices) + 4 s A D          (projections and FFN; scores and their use)
    its projections alone  2 n H (A + 2 A') D                                (A query heads, A' key and value heads)
    a factorised embedding 2 n E H
    scores of V tokens     2 (scored tokens) V H + 2 n Σ(numbers of the head's other matrices)
    the same, left to loss 2 n_t V (3 H_S + H_T) for a term of n_t tokens; see `Term.takes_from_hidden`
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

from limbeck.methods.layer_mapping import stream_width
from limbeck.methods.term import Term
from limbeck.models import packed_linear, taps
from limbeck.models.families import Shape, blocks, family_of
from limbeck.models.streams import OF_SENTENCES
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
        tokens = sum(lengths)
        squares = sum(length**2 for length in lengths)
        weights = 2 * tokens * self.weights
        attention = 4 * squares * sum(self.attention_widths)
        scores = 2 * scored * self.decoder
        return weights + attention + scores


def forward_cost(tap: taps.StreamTap, shape: Shape) -> ForwardCost:
    """Work out what a tapped model runs: no more than its streams need.

    Args:
        tap: The tap on the model.
        shape: The model's shape, before blocks were dropped.
    """
    weights = 0
    if family_of(tap.base.config).embedding_projection is not None and shape.embedding != shape.hidden:
        weights += shape.embedding * shape.hidden

    # All blocks run whole but the last, which ends where its last stream is.
    attention_widths = []
    plan = tap.recorder
    for layer, block in enumerate(blocks(tap.model)[: plan.last_layer], start=1):
        is_whole = layer < plan.last_layer or plan.stop_after == "block"
        if is_whole:
            weights += _matrix_numbers(block)
        else:
            weights += shape.hidden * (shape.heads + 2 * shape.key_value_heads) * shape.head_size
        if is_whole or plan.stop_after == "context":
            attention_widths.append(shape.heads * shape.head_size)

    decoder = None
    if any(key.name == "logits" for key in tap.keys):
        decoder = tap.model.get_output_embeddings()
    if decoder is None:
        return ForwardCost(weights, tuple(attention_widths))
    # The head's other matrices read every token.
    counted = {id(parameter) for parameter in (*tap.base.parameters(), *decoder.parameters())}
    for parameter in tap.model.parameters():
        if parameter.dim() == 2 and id(parameter) not in counted:
            weights += parameter.numel()
    return ForwardCost(weights, tuple(attention_widths), decoder.weight.numel())


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
    count = OBJECTIVES[term.objective].operations
    if count is None:
        return total
    student_width = stream_width(student, term.student[0].name)
    teacher_width = stream_width(teacher, term.teacher[0].name)
    if term.teacher_heads is not None:
        teacher_width = teacher_width * term.teacher_heads.groups // term.teacher_heads.heads
    student_streams = len(set(term.student))
    teacher_streams = len(set(term.teacher))
    workload = Workload(lengths, student_width, teacher_width, student_streams, teacher_streams, term.options)
    return total + count(workload)


def _map_operations(term: Term, lengths: Sequence[int]) -> int:
    """Count the operations of a learned map with both gradients, once for each layer of the student that it takes."""
    if term.learned_map is None:
        return 0
    is_of_samples = term.student[0].name in ("cls", *OF_SENTENCES)
    rows = len(lengths) if is_of_samples else sum(lengths)
    numbers = term.learned_map.inputs * term.learned_map.outputs
    # A map of relation heads has a block for each head, and no numbers between heads.
    heads = term.learned_map.heads or 1
    return 6 * rows * len(term.student) * numbers // heads


def _matrix_numbers(block: nn.Module) -> int:
    """Count the numbers of a block's matrices; packed ones are no parameters."""
    numbers = sum(parameter.numel() for parameter in block.parameters() if parameter.dim() == 2)
    for module in block.modules():
        if isinstance(module, packed_linear.PackedLinear):
            numbers += module.in_features * module.out_features
    return numbers
