"""Operations of a training step: products of matrices in a forward pass and in the losses.

Only matrix products are counted, each multiplication and each addition as one operation. Only valid tokens are counted,
so that time spent on padding shows as waste. With l_b valid tokens in sample b, n = Σ l_b and s = Σ l_b²; H hidden
width, D width of a head, A query heads, A' key and value heads, E width of a factorised embedding, V vocabulary:

    a block                2 n Σ(numbers of its matrices) + 4 s A D          (projections and FFN; scores and their use)
    its projections alone  2 n H (A + 2 A') D                                (query, key and value)
    a factorised embedding 2 n E H
    scores of V tokens     2 (scored tokens) V H + 2 n Σ(numbers of the head's other matrices)
    the same in the loss   2 n_t V (3 H_S + H_T) for a term of n_t tokens, student S and teacher T
    backward               twice the forward
    a learned map          6 n W_S W_T, with forward and both gradients; over R relation heads divided by R
    a loss                 as its objective counts (`Objective.operations`)

A *term* is one part of the loss, and its *objective* the function that computes it. Some objectives compute scores over
the vocabulary themselves, in chunks and from hidden vectors, since all scores would take too much memory. A *learned
map* is a trained matrix from a stream of the student (width W_S) to the width of the teacher's stream (W_T).

Sliding windows count as full attention. Norms, activations, softmax, embeddings, poolers, heads without a vocabulary
and terms over whole samples have few products, which are not counted.

The *floor* of a part of a step is the time that its operations take at the highest rate of the device. What is not
counted takes time too, so that no step reaches 100 % of its floor. The optimizer's floor is that of the bytes that it
moves; see `Step.optimizer_bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from limbeck.methods.layer_mapping import stream_width
from limbeck.methods.term import Term
from limbeck.models import packed_linear, taps
from limbeck.models.families import Shape, blocks, family_of
from limbeck.models.streams import OF_SENTENCES
from limbeck.objectives import OBJECTIVES, Workload


@dataclass(frozen=True)
class ForwardCost:
    """Sizes of the matrices that a forward pass multiplies.

    Attributes:
        weights: Number of entries of all matrices that every valid token is multiplied with.
        attention_widths: A · D of each block whose attention runs.
        decoder: Number of entries of the matrix that gives scores over the vocabulary; 0 where no scores are read.
    """

    weights: int
    attention_widths: tuple[int, ...]
    decoder: int = 0

    def operations(self, lengths: Sequence[int], scored: int = 0) -> int:
        """Count the operations of a batch.

        Args:
            lengths: Valid tokens of each sample.
            scored: Number of tokens that are scored over the vocabulary.
        """
        tokens = sum(lengths)
        squares = sum(length**2 for length in lengths)
        # A token and an entry of a matrix meet in one multiplication and one addition. Attention has two products
        # (queries with keys, probabilities with values), for every pair of tokens of a sample.
        weights = 2 * tokens * self.weights
        attention = 4 * squares * sum(self.attention_widths)
        scores = 2 * scored * self.decoder
        return weights + attention + scores


def forward_cost(tap: taps.StreamTap, shape: Shape) -> ForwardCost:
    """Count the entries of the matrices that a tapped model multiplies, up to where it has the streams of its tap.

    Args:
        tap: The tap on the model, which knows the streams that are read.
        shape: The model's shape with all its blocks; the tap may have dropped those that no stream needs.
    """
    weights = 0
    # Narrow embeddings are projected to the hidden width.
    has_projection = family_of(tap.base.config).embedding_projection is not None
    if has_projection and shape.embedding != shape.hidden:
        weights += shape.embedding * shape.hidden

    # All blocks run whole but the last, which stops after the projections of query, key and value, or after the
    # attention (its context), if nothing further is read.
    attention_widths = []
    recorder = tap.recorder
    for layer, block in enumerate(blocks(tap.model)[: recorder.last_layer], start=1):
        is_whole = layer < recorder.last_layer or recorder.stop_after == "block"
        if is_whole:
            weights += _matrix_numbers(block)
        else:
            weights += shape.hidden * (shape.heads + 2 * shape.key_value_heads) * shape.head_size
        if is_whole or recorder.stop_after == "context":
            attention_widths.append(shape.heads * shape.head_size)

    decoder = _decoder(tap)
    if decoder is None:
        return ForwardCost(weights, tuple(attention_widths))
    weights += _further_numbers_of_head(tap, decoder)
    return ForwardCost(weights, tuple(attention_widths), decoder=decoder.weight.numel())


def _decoder(tap: taps.StreamTap) -> Any:
    """Return the part of a language model's head that makes the logits of the vocabulary.

    None if no logits are read, or if the model does not name this part.
    """
    reads_logits = any(key.name == "logits" for key in tap.keys)
    return tap.model.get_output_embeddings() if reads_logits else None


def _further_numbers_of_head(tap: taps.StreamTap, decoder: nn.Module) -> int:
    """Count the entries of the matrices of a language model's head beside its decoder.

    They belong neither to the encoder nor to the decoder, and are multiplied with every token.
    """
    # Parameters are compared by identity, since the decoder may share the encoder's embeddings.
    other_parts = {id(parameter) for parameter in (*tap.base.parameters(), *decoder.parameters())}
    numbers = 0
    for parameter in tap.model.parameters():
        is_matrix = parameter.dim() == 2
        if is_matrix and id(parameter) not in other_parts:
            numbers += parameter.numel()
    return numbers


def loss_operations(term: Term, student: Shape, teacher: Shape, lengths: Sequence[int]) -> int:
    """Count the operations of a term of the loss, with its gradient for the student's streams.

    Args:
        term: The term.
        student: The student's shape.
        teacher: The teacher's shape.
        lengths: Valid tokens of each sample.
    """
    map_operations = _map_operations(term, lengths)
    # A term without a teacher, such as one on labels, has no objective with products worth counting.
    if not term.teacher:
        return map_operations
    count = OBJECTIVES[term.objective].operations
    if count is None:
        return map_operations
    # All streams of one side have the same width.
    teacher_width = stream_width(teacher, term.teacher[0].name)
    # Heads of the teacher may be merged into fewer groups, each as wide as one head.
    if term.teacher_heads is not None:
        teacher_width = teacher_width * term.teacher_heads.groups // term.teacher_heads.heads
    workload = Workload(
        lengths=lengths,
        student_width=stream_width(student, term.student[0].name),
        teacher_width=teacher_width,
        student_streams=len(set(term.student)),
        teacher_streams=len(set(term.teacher)),
        options=term.options,
    )
    return map_operations + count(workload)


def _map_operations(term: Term, lengths: Sequence[int]) -> int:
    """Count the operations of a term's learned map, which is applied to each of the student's streams; 0 without one.

    The map is multiplied three times: in the forward pass, for the gradient of the stream, and for its own gradient. A
    product has two operations for each row and entry of the matrix.
    """
    if term.learned_map is None:
        return 0
    # A vector of the first token or of a sentence is one row for each sample; other streams have one for each token.
    is_of_samples = term.student[0].name in ("cls", *OF_SENTENCES)
    rows = len(lengths) if is_of_samples else sum(lengths)
    # A map by relation heads is block-diagonal: each of R heads has a block of inputs / R x outputs / R. So all blocks
    # together have an R-th of the entries of a whole map.
    heads = term.learned_map.heads or 1
    entries_of_whole_map = term.learned_map.inputs * term.learned_map.outputs
    return 3 * 2 * rows * len(term.student) * entries_of_whole_map // heads


def _matrix_numbers(block: nn.Module) -> int:
    """Count the entries of a block's matrices."""
    numbers = sum(parameter.numel() for parameter in block.parameters() if parameter.dim() == 2)
    # The weights of linear maps that were packed for fast products on a CPU are no parameters.
    for module in block.modules():
        if isinstance(module, packed_linear.PackedLinear):
            numbers += module.in_features * module.out_features
    return numbers
