"""All student layers compared with all teacher layers at once, by the earth mover's distance: BERT-EMD.

M and N are the numbers of student and teacher layers, S_i and H_j their vectors. Every layer has a weight, and the
*flow* f_ij says how much of student layer i's weight moves to teacher layer j. The squared distances of all pairs of
layers are computed without graph, and the flow of least cost is solved on the CPU, see `layer_transport.py`.

For the gradient the flow is a constant. The terms of one student layer of weight w_i = Σ_j f_ij can then be gathered by
its *barycentre* b_i = Σ_j f_ij H_j / w_i, a mean of the teacher's layers:
    Σ_j f_ij ‖S_i − H_j‖² = w_i ‖S_i − b_i‖² + a constant.
So the backward pass needs one difference for each student layer, not for each pair.

Source: BERT-EMD (Li et al., EMNLP 2020, arXiv 2010.06133) §3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, sum_accumulator
from limbeck.objectives import registry, relations, terms
from limbeck.objectives.layer_transport import transport_flow, uniform_weights
from limbeck.objectives.terms import LossTerm, Projection

# Most differences, over all pairs of layers, that are computed at a time. On a CPU they stay in cache; on other devices
# few launches matter more.
CPU_CHUNK = 1 << 20
CHUNK = 1 << 24
# From a length of SHORT · (d + d') tokens on, with the head sizes d and d' of both models, it is faster not to compute
# scores, but to compare the pairs of layers one by one in time linear in the length (measured on a CPU).
SHORT = 9

_Layer = TypeVar("_Layer")


@torch.no_grad()
def hidden_distances(
    student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return Σ (S_i − H_j)² over valid tokens and features for all pairs of layers.

    Args:
        student: The student's M layers, `[B, L, width]` each.
        teacher: The teacher's N layers, `[B, L, width]` each, of the same width.
        mask: Real tokens, bool `[B, L]`; None means all.
        dtype: Dtype of the computation.

    Returns:
        `[M, N]` in `dtype`.
    """
    width = student[0].shape[-1]
    student_rows = [x.reshape(-1, width) for x in student]
    teacher_rows = [x.reshape(-1, width) for x in teacher]
    total = sum_accumulator(student[0].device).repeat(len(student), len(teacher))
    # Tokens are taken in parts, so that the differences of all pairs of layers never take more than a chunk of memory.
    differences_of_a_token = max(1, total.numel() * width)
    step = max(1, _chunk(total) // differences_of_a_token)
    for start in range(0, len(student_rows[0]), step):
        rows = slice(start, start + step)
        valid = None if mask is None else mask.flatten()[rows]
        student_part = torch.stack([terms.zero_masked(x[rows], valid, dtype) for x in student_rows])
        teacher_part = torch.stack([terms.zero_masked(x[rows], valid, dtype) for x in teacher_rows])
        total += _all_pairs(student_part, teacher_part)
    return total.to(dtype)


@torch.no_grad()
def score_distances(
    student: Sequence[tuple[Tensor, Tensor]],
    teacher: Sequence[tuple[Tensor, Tensor]],
    heads: int,
    mask: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return Σ (Q_i K_iᵀ/√d − Q'_j K'_jᵀ/√d')² over heads and pairs of valid tokens for all pairs of layers.

    Args:
        student: M pairs (query, key), each `[B, L, width_S]`.
        teacher: N pairs (query, key), each `[B, L, width_T]`.
        heads: Attention heads of both; divides both widths.
        mask: Real tokens, bool `[B, L]`; None means all.
        dtype: Dtype of the computation.

    Returns:
        `[M, N]` in `dtype`.
    """
    first = student[0][0]
    batch, length, student_width = first.shape
    teacher_width = teacher[0][0].shape[-1]
    numbers_of_a_head = (student_width + teacher_width) // heads
    if length >= SHORT * numbers_of_a_head:
        return _score_distances_by_pair(student, teacher, heads, mask).to(dtype)

    # Scores of some heads and rows of one sample, of all layers of both models at once.
    total = sum_accumulator(first.device).repeat(len(student), len(teacher))
    differences_of_a_row = max(1, total.numel() * length)
    row_step = max(1, min(length, _chunk(total) // differences_of_a_row))
    head_step = max(1, _chunk(total) // (differences_of_a_row * row_step))
    with autocast_off(first.device):
        for sample in range(batch):
            valid = None if mask is None else mask[sample]
            student_q, student_k = _heads(student, sample, heads, valid, dtype)
            teacher_q, teacher_k = _heads(teacher, sample, heads, valid, dtype)
            for first_head in range(0, heads, head_step):
                head_part = slice(first_head, first_head + head_step)
                for first_row in range(0, length, row_step):
                    rows = slice(first_row, first_row + row_step)
                    # [layers, heads, rows, L].
                    student_scores = student_q[:, head_part, rows] @ student_k[:, head_part].mT
                    teacher_scores = teacher_q[:, head_part, rows] @ teacher_k[:, head_part].mT
                    total += _all_pairs(student_scores, teacher_scores)
    return total.to(dtype)


def _score_distances_by_pair(
    student: Sequence[tuple[Tensor, Tensor]],
    teacher: Sequence[tuple[Tensor, Tensor]],
    heads: int,
    mask: Tensor | None,
) -> Tensor:
    """Return the distances of `score_distances`, `[M, N]`, comparing one pair of layers after the other."""
    rows = []
    for student_layer in student:
        row = []
        for teacher_layer in teacher:
            term = relations.attention_score_mse(*student_layer, *teacher_layer, heads=heads, valid=mask)
            row.append(term.total)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def _heads(
    layers: Sequence[tuple[Tensor, Tensor]], sample: int, heads: int, real: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return queries, divided by √d, and keys of all layers for one sample, `[layers, heads, L, d]`.

    Vectors of padding become 0, so that its scores are 0 in both models and their distance is 0 too.
    """
    q = _split_heads([terms.zero_masked(query[sample], real, dtype) for query, _ in layers], heads)
    k = _split_heads([terms.zero_masked(key[sample], real, dtype) for _, key in layers], heads)
    return q / math.sqrt(q.shape[-1]), k


def _split_heads(vectors: list[Tensor], heads: int) -> Tensor:
    """Return the layers' vectors, each `[L, width]`, by head: `[layers, heads, L, d]`."""
    return torch.stack(vectors).unflatten(-1, (heads, -1)).transpose(1, 2)


def _all_pairs(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared distances of all pairs of a student's layer and a teacher's, `[M, N]`.

    Args:
        student: `[M, …]`.
        teacher: `[N, …]`, with the same further axes.
    """
    # [M, 1, numbers] − [N, numbers] = [M, N, numbers].
    differences = student.flatten(1)[:, None] - teacher.flatten(1)
    return differences.square_().sum(-1)


def _chunk(like: Tensor) -> int:
    """Return the most differences that are computed at a time on a tensor's device."""
    return CPU_CHUNK if like.device.type == "cpu" else CHUNK


@dataclass(frozen=True)
class EmdTerm(LossTerm):
    """An earth mover's distance as a loss, with its costs and its flow, by which `cost_attention` moves the weights.

    Args:
        total: As in `LossTerm`.
        count: As in `LossTerm`.
        costs: Mean cost of each pair of layers, `[M, N]`, float64 on the CPU, without gradient.
        flow: Weight that moved from each student layer to each teacher layer, `[M, N]`, float64 on the CPU.
    """

    costs: Tensor
    flow: Tensor


@registry.register_as_objective(unit="token", batch_coupled=True, layers=1)
def layer_emd(
    student_layers: Sequence[Tensor],
    teacher_layers: Sequence[Tensor],
    *,
    valid: Tensor | None = None,
    projection: Projection | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
    across: Callable[[Tensor], Tensor] | None = None,
) -> EmdTerm:
    """Earth mover's distance between the hidden states of all layers of two models.

    total = Σ_ij f_ij Σ (H^S_i W − H^T_j)² over valid tokens and the teacher's features; f, which sums to 1, moves the
    student's layer weights to the teacher's at the least Σ_ij f_ij D_ij, with D_ij the mean squared error of a pair.
    The mean is Σ f_ij D_ij / Σ f_ij. 0 when each layer with weight has an equal one to move to.

    Gradients flow through D, not through f. The flow is solved on the CPU, which costs one copy of M × N numbers to
    the host in each call. It is that of the given batch: the sum of two halves is at most the whole.

    Source: BERT-EMD §3 (Li et al., EMNLP 2020, arXiv 2010.06133), the distance between hidden states, of blocks alone;
    as in the authors' code, D is a mean squared error. Nearest alternative: `hidden_mse`, one layer with one.

    Args:
        student_layers: M of `[B, L, width_S]`.
        teacher_layers: N of `[B, L, width_T]`; never get a gradient.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable; None needs equal widths. One for all
            layers.
        student_weights: w^S, `[M]`, 0 or more, summing to 1; None means 1/M each. `cost_attention` makes them.
        teacher_weights: w^T, `[N]`, likewise.
        across: Sums a tensor over the processes that share a batch; costs and flow are then those of the whole batch,
            the loss is this process's part.

    Returns:
        The moved sum of squared errors; the count is valid tokens × width_T.

    Raises:
        KernelError: if there is no layer, or shapes, widths, mask, projection or weights do not fit.

    Example:
        >>> student = [torch.zeros(1, 3, 2), torch.ones(1, 3, 2)]  # 2 layers: 1 sample, 3 tokens, width 2
        >>> teacher = [torch.ones(1, 3, 2), torch.zeros(1, 3, 2)]
        >>> loss = layer_emd(student, teacher)
        >>> loss.mean
        tensor(0.)
        >>> loss.flow
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)
    """
    student_named = _named("student_layers", student_layers)
    teacher_named = _named("teacher_layers", teacher_layers)
    inputs = _check_layers(student_named, teacher_named, valid)
    width = teacher_layers[0].shape[-1]
    teacher = [layer.detach() for layer in teacher_layers]
    with autocast_off(inputs.first.device):
        mapped = [terms.project(inputs.masked(x), projection, width) for x in student_layers]

        # The flow needs the errors of all pairs of layers, but no gradient of them. Once the flow is a constant, the
        # gradient of Σ_j f_ij Σ (S_i − H_j)² is that of one error: between S_i and a mean of the teacher's layers.
        errors_of_pairs = hidden_distances(mapped, teacher, inputs.mask, inputs.dtype)

        def error_to_mean(layer: int, shares: Sequence[float]) -> Tensor:
            """Return Σ (S_i − b_i)² for a student layer S_i, with b_i the teacher's layers averaged by `shares`."""
            barycentre = _hidden_barycentre(teacher, shares, inputs.dtype)
            return inputs.masked(mapped[layer] - barycentre).square().sum()

        return _emd_term(
            errors_of_pairs,
            inputs.count(width),
            error_to_mean,
            student_weights=student_weights,
            teacher_weights=teacher_weights,
            across=across,
        )


def _hidden_barycentre(layers: Sequence[Tensor], shares: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Return Σ_j share_j H_j; at least one share is above 0, and layers without a share are skipped."""
    parts = [layer.to(dtype) * share for layer, share in zip(layers, shares, strict=True) if share > 0]
    barycentre = parts[0]
    for part in parts[1:]:
        barycentre = barycentre + part
    return barycentre


def _count_scores(work: registry.Workload) -> int:
    """Count the operations for the scores of every layer, and for the gradient of the student's."""
    # The streams of a layer are two, its queries and its keys.
    student = work.student_streams // 2 * work.student_width
    teacher = work.teacher_streams // 2 * work.teacher_width
    return work.pairs * (6 * student + 2 * teacher)


@registry.register_as_objective(unit="pair", batch_coupled=True, layers=2, operations=_count_scores)
def attention_layer_emd(
    student_layers: Sequence[tuple[Tensor, Tensor]],
    teacher_layers: Sequence[tuple[Tensor, Tensor]],
    *,
    heads: int,
    valid: Tensor | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
    across: Callable[[Tensor], Tensor] | None = None,
) -> EmdTerm:
    """Earth mover's distance between the attention scores of all layers of two models.

    total = Σ_ij f_ij Σ (Q_i K_iᵀ/√d − Q'_j K'_jᵀ/√d')² over heads and pairs of valid tokens, with f as in `layer_emd`
    for the costs of `attention_score_mse`. Both models need the same number of attention heads.

    Source: BERT-EMD §3 (Li et al., EMNLP 2020, arXiv 2010.06133), the distance between attentions. Scores before the
    softmax, as in TinyBERT and in the authors' code, which is built on it; that code sets the scores of padding to 0 in
    both models and counts them, where they are left out here. Nearest alternative: `attention_score_mse`, one layer
    with one.

    Args:
        student_layers: M pairs (query, key), each `[B, L, width_S]`, heads concatenated.
        teacher_layers: N pairs (query, key), each `[B, L, width_T]`; never get a gradient.
        heads: Attention heads of both models; divides both widths.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        student_weights: w^S, `[M]`, 0 or more, summing to 1; None means 1/M each. `cost_attention` makes them.
        teacher_weights: w^T, `[N]`, likewise.
        across: As in `layer_emd`.

    Returns:
        The moved sum of squared errors; the count is heads × Σ_b (valid tokens of sample b)². It has a first derivative
        only.

    Raises:
        KernelError: if there is no layer, or shapes, widths, heads, mask or weights do not fit.

    Example:
        >>> layer = torch.eye(4).unsqueeze(0), torch.eye(4).unsqueeze(0)  # queries and keys of 1 sample, 4 tokens
        >>> attention_layer_emd([layer], [layer, layer], heads=2).mean
        tensor(0.)
    """
    student_named = _named_pairs("student_layers", student_layers)
    teacher_named = _named_pairs("teacher_layers", teacher_layers)
    inputs = _check_layers(student_named, teacher_named, valid)
    first_teacher_query, _ = teacher_layers[0]
    terms.check_heads(heads, {"student": inputs.first.shape[-1], "teacher": first_teacher_query.shape[-1]})

    # The flow needs the errors of all pairs of layers, but no gradient of them. Once the flow is a constant, the
    # gradient of Σ_j f_ij Σ (scores of S_i − scores of H_j)² is that of one error: between the scores of S_i and a mean
    # of the teacher's layers.
    errors_of_pairs = score_distances(student_layers, teacher_layers, heads, inputs.mask, inputs.dtype)

    def error_to_mean(layer: int, shares: Sequence[float]) -> Tensor:
        """Return the error of a student layer's scores beside the teacher's scores averaged by `shares`."""
        query, key = student_layers[layer]
        mean_query, mean_key = _score_barycentre(teacher_layers, shares, heads, inputs.dtype)
        error = relations.attention_score_mse(query, key, mean_query, mean_key, heads=heads, valid=inputs.mask)
        return error.total.to(inputs.dtype)

    return _emd_term(
        errors_of_pairs,
        relations.count_pairs(inputs) * heads,
        error_to_mean,
        student_weights=student_weights,
        teacher_weights=teacher_weights,
        across=across,
    )


def _score_barycentre(
    layers: Sequence[tuple[Tensor, Tensor]], shares: Sequence[float], heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return queries and keys whose scores are Σ_j share_j Q_j K_jᵀ/√d.

    The heads of the n layers with a share are put side by side: the product of two such heads is the sum of the layers'
    products. Since such a head is n times wider, its scores will be divided by √(n d) instead of √d. So the queries are
    multiplied by √n.
    """
    width_factor = math.sqrt(sum(share > 0 for share in shares))
    queries = []
    keys = []
    for (query, key), share in zip(layers, shares, strict=True):
        if share == 0:
            continue
        query_heads = query.detach().to(dtype).unflatten(-1, (heads, -1))
        queries.append(query_heads * (share * width_factor))
        keys.append(key.detach().to(dtype).unflatten(-1, (heads, -1)))
    # [B, L, heads, n · d] -> [B, L, heads · n · d].
    return torch.cat(queries, -1).flatten(-2), torch.cat(keys, -1).flatten(-2)


def _emd_term(
    errors_of_pairs: Tensor,
    count: Tensor,
    error_to_mean: Callable[[int, Sequence[float]], Tensor],
    *,
    student_weights: Tensor | None,
    teacher_weights: Tensor | None,
    across: Callable[[Tensor], Tensor] | None,
) -> EmdTerm:
    """Solve for the flow between the layers, and return its cost as a loss.

    The gradient is that of the error of each student layer beside its *barycentre* b_i: the mean of the teacher's
    layers, weighted by what the flow moves to them. S_i and H_j are here the hidden states of the layers, or their
    attention scores, and squares are summed over all their numbers but those of padding; hidden states of the student
    are projected. With w_i = Σ_j f_ij above 0 and b_i = Σ_j f_ij H_j / w_i,

        Σ_j f_ij (S_i − H_j)² = w_i (S_i − b_i)² + a constant that does not depend on S_i

    Args:
        errors_of_pairs: Σ of squared errors of all pairs of layers, `[M, N]`, without gradient.
        count: Number of squared errors that each of these sums has.
        error_to_mean: Takes the index of a student layer, and the share of each teacher layer in its barycentre.
            Returns the Σ of squared errors beside the barycentre, with gradient.
        student_weights: w^S; None means equal ones.
        teacher_weights: w^T; None means equal ones.
        across: Sums a tensor over the processes that share a batch.
    """
    if student_weights is None:
        student_weights = uniform_weights(errors_of_pairs.shape[0])
    if teacher_weights is None:
        teacher_weights = uniform_weights(errors_of_pairs.shape[1])

    # The flow follows the costs of the whole batch, also where several processes share it. Errors and count are summed
    # in one communication.
    errors_of_batch = errors_of_pairs
    count_of_batch = count
    if across is not None:
        summed = across(torch.cat([errors_of_pairs.flatten(), count.reshape(1)]))
        errors_of_batch = summed[:-1].reshape(errors_of_pairs.shape)
        count_of_batch = summed[-1]
    costs = (errors_of_batch / count_of_batch.clamp(min=1)).cpu().double()
    flow = transport_flow(costs, student_weights, teacher_weights)

    # The right side of the formula, without its constants: the right gradient, but another value.
    layer_losses: list[Tensor] = []
    for layer, moved_weights in enumerate(flow.tolist()):
        weight = math.fsum(moved_weights)
        shares = _barycentre_shares(moved_weights, weight)
        layer_losses.append(weight * error_to_mean(layer, shares))
    loss_with_gradient = torch.stack(layer_losses).sum()
    # The left side is the value of the loss. It is above the sum so far by the constants.
    loss = (flow.to(errors_of_pairs.device, errors_of_pairs.dtype) * errors_of_pairs).sum()
    constants = (loss - loss_with_gradient).detach()
    return EmdTerm(loss_with_gradient + constants, count, costs, flow)


def _barycentre_shares(moved_weights: Sequence[float], weight: float) -> list[float]:
    """Return the share of each teacher layer in the barycentre of a student layer.

    Args:
        moved_weights: What the flow moves from the student layer to each teacher layer.
        weight: Their sum.
    """
    if weight > 0:
        return [moved / weight for moved in moved_weights]
    # With weight 0 any barycentre will do. The layer stays in the graph with gradient 0, so that the same layers get a
    # gradient in every batch.
    return [1.0] + [0.0] * (len(moved_weights) - 1)


def _named(name: str, layers: Sequence[_Layer]) -> dict[str, _Layer]:
    """Return a model's layers under names for messages, such as `student_layers[0]`."""
    if not layers:
        raise KernelError(f"{name} is empty; give at least one layer of each model.")
    return {f"{name}[{number}]": layer for number, layer in enumerate(layers)}


def _named_pairs(name: str, layers: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return the queries and keys of a model's layers under names for messages, all queries before all keys."""
    for number, layer in enumerate(layers):
        if len(layer) != 2:
            raise KernelError(
                f"{name}[{number}] holds {len(layer)} tensors; give each layer a pair of tensors (query, key)."
            )

    queries: dict[str, Tensor] = {}
    keys: dict[str, Tensor] = {}
    for layer_name, (query, key) in _named(name, layers).items():
        queries[f"{layer_name} query"] = query
        keys[f"{layer_name} key"] = key
    return queries | keys


def _check_layers(student: dict[str, Tensor], teacher: dict[str, Tensor], valid: Tensor | None) -> terms.Inputs:
    """Check the vectors of all layers of both models, and that the layers of each model are equally wide."""
    inputs = terms.check_inputs("[B, L, width]", {**student, **teacher}, units=2, valid=valid)
    for layers in (student, teacher):
        (first_name, first), *rest = layers.items()
        for name, x in rest:
            if x.shape[-1] != first.shape[-1]:
                raise KernelError(
                    f"{name} is {x.shape[-1]} wide and {first_name} {first.shape[-1]}; all layers of one model "
                    "must be equally wide."
                )
    return inputs
