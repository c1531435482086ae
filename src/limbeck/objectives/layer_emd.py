"""All student layers compared with all teacher layers at once, by the earth mover's distance: BERT-EMD.

The flow is a constant, so that only its few entries above 0 carry gradient, and those of one student layer can be
gathered: with b_i = Σ_j f_ij H_j / w_i, the layer's barycentre of the teacher,
    Σ_j f_ij ‖S_i − H_j‖² = w_i ‖S_i − b_i‖² + a constant.
The costs are computed without graph; one difference per student layer, not per pair, is kept for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import (
    Projection,
    as_mask,
    blank,
    check_alike,
    check_heads,
    check_rank,
    count_of,
    project,
)
from limbeck.objectives.attention import attention_score_mse
from limbeck.objectives.layer_distances import hidden_distances, score_distances
from limbeck.objectives.loss_term import LossTerm
from limbeck.objectives.transport import transport_flow, uniform_weights

_Layer = TypeVar("_Layer")


@dataclass(frozen=True)
class EmdParts:
    """An earth mover's distance with what it was made of, which `cost_attention` needs.

    Args:
        term: The loss.
        costs: Mean cost of each pair, `[M, N]`, float64 on the CPU, without gradient.
        flow: How much of each student layer moved to each teacher layer, `[M, N]`, float64 on the CPU.
    """

    term: LossTerm
    costs: Tensor
    flow: Tensor


def layer_emd(
    student_layers: Sequence[Tensor],
    teacher_layers: Sequence[Tensor],
    *,
    valid: Tensor | None = None,
    projection: Projection | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
) -> LossTerm:
    """Earth mover's distance between the hidden states of all layers of two models.

    total = Σ_ij f_ij Σ (H^S_i W − H^T_j)² over valid tokens and the teacher's features; f, which sums to 1, moves the
    student's layer weights to the teacher's at the least Σ_ij f_ij D_ij, with D_ij the mean squared error of a pair.
    The mean is Σ f_ij D_ij / Σ f_ij. 0 when each layer with weight has an equal one to move to.

    Gradients flow through D, not through f. The flow is solved on the CPU, which costs one copy of M × N numbers to
    the host in each call. It is that of the given batch: the sum of two halves is at most the whole.

    Source: BERT-EMD §3 (Li et al., EMNLP 2020, arXiv 2010.06133), the distance between hidden states; the equation
    numbers could not be verified. Nearest alternative: `hidden_mse`, one layer with one.

    Args:
        student_layers: M of `[B, L, width_S]`.
        teacher_layers: N of `[B, L, width_T]`; never get a gradient.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable; None needs equal widths. One for all
            layers, as in the paper.
        student_weights: w^S, `[M]`, 0 or more, summing to 1; None means 1/M each. `cost_attention` makes them.
        teacher_weights: w^T, `[N]`, likewise.

    Returns:
        The moved sum of squared errors; the count is valid tokens × width_T.

    Raises:
        KernelError: if there is no layer, or shapes, widths, mask, projection or weights do not fit.
    """
    return layer_emd_parts(
        student_layers,
        teacher_layers,
        valid=valid,
        projection=projection,
        student_weights=student_weights,
        teacher_weights=teacher_weights,
    ).term


def layer_emd_parts(
    student_layers: Sequence[Tensor],
    teacher_layers: Sequence[Tensor],
    *,
    valid: Tensor | None = None,
    projection: Projection | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
    across: Callable[[Tensor], Tensor] | None = None,
) -> EmdParts:
    """Return `layer_emd` with its costs and its flow, which update the layer weights; arguments and errors alike.

    Args:
        across: Sums a tensor over the processes that share a batch; costs and flow are then those of the whole batch,
            the loss is this process's part.
    """
    first = _check_layers(_named("student_layers", student_layers), _named("teacher_layers", teacher_layers))
    mask, dtype = as_mask(valid, first), compute_dtype(*student_layers, *teacher_layers)
    width, teacher = teacher_layers[0].shape[-1], [x.detach() for x in teacher_layers]
    count = count_of(mask, first, width).to(dtype)
    with autocast_off(first.device):
        mapped = [project(blank(x, mask, dtype), projection, width) for x in student_layers]
        totals = hidden_distances(mapped, teacher, mask, dtype)
        costs, flow = _solve(totals, count, student_weights, teacher_weights, across)
        near: list[Tensor] = []
        for x, (weight, shares) in zip(mapped, _moves(flow), strict=True):
            centre = sum(y.to(dtype) * share for y, share in zip(teacher, shares, strict=True) if share)
            near.append(weight * blank(x - centre, mask, dtype).square().sum())
        return EmdParts(LossTerm(_with_value(near, totals, flow), count), costs, flow)


def attention_layer_emd(
    student_layers: Sequence[tuple[Tensor, Tensor]],
    teacher_layers: Sequence[tuple[Tensor, Tensor]],
    *,
    heads: int,
    valid: Tensor | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
) -> LossTerm:
    """Earth mover's distance between the attention scores of all layers of two models.

    total = Σ_ij f_ij Σ (Q_i K_iᵀ/√d − Q'_j K'_jᵀ/√d')² over heads and pairs of valid tokens, with f as in `layer_emd`
    for the costs of `attention_score_mse`. Both models need the same number of attention heads.

    Source: BERT-EMD §3 (Li et al., EMNLP 2020, arXiv 2010.06133), the distance between attentions. Scores before the
    softmax, as in TinyBERT, on which the authors' code builds; the wording of the paper could not be verified. Nearest
    alternative: `attention_score_mse`, one layer with one.

    Args:
        student_layers: M pairs (query, key), each `[B, L, width_S]`, heads concatenated.
        teacher_layers: N pairs (query, key), each `[B, L, width_T]`; never get a gradient.
        heads: Attention heads of both models; divides both widths.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        student_weights: w^S, `[M]`, 0 or more, summing to 1; None means 1/M each. `cost_attention` makes them.
        teacher_weights: w^T, `[N]`, likewise.

    Returns:
        The moved sum of squared errors; the count is heads × Σ_b (valid tokens of sample b)². It has a first derivative
        only.

    Raises:
        KernelError: if there is no layer, or shapes, widths, heads, mask or weights do not fit.
    """
    return attention_layer_emd_parts(
        student_layers,
        teacher_layers,
        heads=heads,
        valid=valid,
        student_weights=student_weights,
        teacher_weights=teacher_weights,
    ).term


def attention_layer_emd_parts(
    student_layers: Sequence[tuple[Tensor, Tensor]],
    teacher_layers: Sequence[tuple[Tensor, Tensor]],
    *,
    heads: int,
    valid: Tensor | None = None,
    student_weights: Tensor | None = None,
    teacher_weights: Tensor | None = None,
    across: Callable[[Tensor], Tensor] | None = None,
) -> EmdParts:
    """Return `attention_layer_emd` with its costs and its flow; arguments and errors as of `layer_emd_parts`."""
    student, teacher = _named_pairs("student_layers", student_layers), _named_pairs("teacher_layers", teacher_layers)
    first = _check_layers(student, teacher)
    widths = {"student": first.shape[-1], "teacher": teacher_layers[0][0].shape[-1]}
    check_heads(heads, widths)
    mask, dtype = as_mask(valid, first), compute_dtype(*student.values(), *teacher.values())
    batch, length, _ = first.shape
    pairs = first.new_tensor(batch * length**2, dtype=dtype) if mask is None else mask.sum(1).to(dtype).square().sum()
    count = pairs * heads
    totals = score_distances(student_layers, teacher_layers, heads, mask, dtype)
    costs, flow = _solve(totals, count, student_weights, teacher_weights, across)
    near: list[Tensor] = []
    for own, (weight, shares) in zip(student_layers, _moves(flow), strict=True):
        centre = _score_barycentre(teacher_layers, shares, heads, dtype)
        near.append(weight * attention_score_mse(*own, *centre, heads=heads, valid=mask).total.to(dtype))
    return EmdParts(LossTerm(_with_value(near, totals, flow), count), costs, flow)


def _score_barycentre(
    layers: Sequence[tuple[Tensor, Tensor]], shares: Sequence[float], heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return a query and a key whose scores are Σ_j share_j Q_j K_jᵀ/√d: those of the layers, head beside head."""
    used = [(q, k, share) for (q, k), share in zip(layers, shares, strict=True) if share]
    # The head is as many times wider, and its scores are divided by the root of its size.
    queries = [q.detach().to(dtype).unflatten(-1, (heads, -1)) * (share * math.sqrt(len(used))) for q, _, share in used]
    keys = [k.detach().to(dtype).unflatten(-1, (heads, -1)) for _, k, _ in used]
    return torch.cat(queries, -1).flatten(-2), torch.cat(keys, -1).flatten(-2)


def _solve(
    totals: Tensor,
    count: Tensor,
    student_weights: Tensor | None,
    teacher_weights: Tensor | None,
    across: Callable[[Tensor], Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Return the mean costs, on the CPU, and the flow."""
    own = uniform_weights(totals.shape[0]) if student_weights is None else student_weights
    other = uniform_weights(totals.shape[1]) if teacher_weights is None else teacher_weights
    if across is not None:
        joined = across(torch.cat([totals.flatten(), count.reshape(1)]))
        totals, count = joined[:-1].reshape(totals.shape), joined[-1]
    costs = (totals / count.clamp(min=1)).cpu().double()
    return costs, transport_flow(costs, own, other)


def _moves(flow: Tensor) -> list[tuple[float, list[float]]]:
    """Return of each student layer how much it moves, and what share of that goes to each teacher layer."""
    moves = []
    for row in flow.tolist():
        weight = math.fsum(row)
        # A layer that moves nothing stays in the graph, with gradient 0: which layers get one is not up to the batch.
        moves.append((weight, [x / weight for x in row] if weight else [1.0] + [0.0] * (len(row) - 1)))
    return moves


def _with_value(near: Sequence[Tensor], totals: Tensor, flow: Tensor) -> Tensor:
    """Return Σ f_ij totals_ij with the gradient of the sum of `near`."""
    value = (flow.to(totals.device, totals.dtype) * totals).sum()
    carrier = torch.stack(list(near)).sum()
    return carrier + (value - carrier).detach()


def _named(name: str, layers: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"{name}[{i}]": x for i, x in enumerate(_filled(name, layers))}


def _named_pairs(name: str, layers: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for i, layer in enumerate(_filled(name, layers)):
        if len(layer) != 2:
            raise KernelError(f"{name}[{i}] holds {len(layer)} tensors; it has to be a pair (query, key).")
        named |= {f"{name}[{i}] query": layer[0], f"{name}[{i}] key": layer[1]}
    return named


def _filled(name: str, layers: Sequence[_Layer]) -> Sequence[_Layer]:
    if not layers:
        raise KernelError(f"{name} is empty; give at least one layer of each model.")
    return layers


def _check_layers(student: dict[str, Tensor], teacher: dict[str, Tensor]) -> Tensor:
    """Check the vectors of both models and return the first."""
    everything = {**student, **teacher}
    check_rank(everything, 3, "[B, L, width]")
    check_alike(everything, 2)
    for layers in (student, teacher):
        (first_name, first), *rest = layers.items()
        for name, x in rest:
            if x.shape[-1] != first.shape[-1]:
                raise KernelError(
                    f"{name} is {x.shape[-1]} wide and {first_name} {first.shape[-1]}; all of one model have to be "
                    "equally wide."
                )
    return next(iter(student.values()))
