"""The weights of the layers of two models, moved from one to the other at least cost: the transport of BERT-EMD.

M and N are the numbers of student and teacher layers. A *flow* says how much of each student layer's weight moves to
each teacher layer; the *cost* of a pair of layers is their distance.

Source: BERT-EMD (Li et al., EMNLP 2020, arXiv 2010.06133) §3. The formulas here were compared with its authors' code
(github.com/lxk00/BERT-EMD, commits 3d6bd37 and, later, 634df29) and the answers to issue 5 there. Each function says
where it departs from them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.workers import left_uncompiled
from limbeck.objectives.terms import check_temperature

_ROUNDING = 1e-5
"""Most that a sum of weights, which may have been float32, may differ from 1."""
_LEAST_WEIGHT = 1e-9
"""Weight from which on the cost of a layer can be computed from the flow; smaller weights move too little."""
_LEAST_SHARE = 1e-12
"""Lowest unit cost of a layer, as a share of the sum of all; the softmax can still take its inverse."""


def uniform_weights(layers: int) -> Tensor:
    """Return equal weights that sum to 1, with which BERT-EMD starts.

    Args:
        layers: How many, 1 or more.

    Returns:
        `[layers]`, float64 on the CPU.

    Raises:
        KernelError: if there is no layer.
    """
    if layers < 1:
        raise KernelError(f"layers is {layers}, but weights need at least one layer; give 1 or more.")
    return torch.full((layers,), 1.0 / layers, dtype=torch.float64)


@left_uncompiled
def transport_flow(costs: Tensor, student_weights: Tensor, teacher_weights: Tensor) -> Tensor:
    """Solve the transportation problem between the layers of two models.

    flow = argmin Σ_ij f_ij D_ij, with f_ij ≥ 0, Σ_j f_ij = w^S_i and Σ_i f_ij = w^T_j.

    At most M + N − 1 entries are above 0. If several flows have the least cost, one of them is returned. Costs that are
    not finite have no cheapest flow. Every layer then moves to every layer, f_ij = w^S_i w^T_j, so that the loss is not
    finite either and shows the problem.

    Source: BERT-EMD §3. Both models' weights sum to 1, so nothing is left over, the flow sums to 1, and the paper's
    distance Σ f_ij D_ij / Σ f_ij needs no division; the authors' code has none. Solved exactly by the network simplex
    of POT (`ot.emd`), on the CPU.

    Args:
        costs: D, `[M, N]`, M student and N teacher layers, 0 or more; on another device it is copied to the CPU.
        student_weights: w^S, `[M]`, 0 or more, summing to 1.
        teacher_weights: w^T, `[N]`, likewise.

    Returns:
        `[M, N]`, float64 on the CPU, summing to 1, without gradient.

    Raises:
        KernelError: if costs are not a matrix, or weights are negative, do not sum to 1 or have another length.
    """
    problem = _check_problem(costs, student_weights, teacher_weights)
    if not problem.costs.isfinite().all():
        return torch.outer(problem.student_weights, problem.teacher_weights)
    # Importing POT takes seconds and imports every array library that is installed, so it is done only here.
    import ot

    # The solver stops by an absolute tolerance: costs of 1e-30 would all count as 0. Scaling changes no flow.
    highest = problem.costs.amax().clamp(min=torch.finfo(problem.costs.dtype).tiny)
    scaled = problem.costs / highest
    flow = ot.emd(problem.student_weights.numpy(), problem.teacher_weights.numpy(), scaled.numpy())
    return torch.from_numpy(flow)


def cost_attention(
    costs: Tensor, flow: Tensor, student_weights: Tensor, teacher_weights: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Give more weight to the layers that are moved cheaply: the layer weights for the next batch.

    C^S_i = Σ_j f_ij D_ij / w^S_i (unit transferring cost), ŵ_i = Σ_k C^S_k / C^S_i (inverse ratio),
    w_i = exp(ŵ_i / τ) / Σ_k exp(ŵ_k / τ); teacher layers likewise, with C^T_j = Σ_i f_ij D_ij / w^T_j.

    The scale of the losses does not matter: the inverse ratio of m layers of equal cost is m, whatever the cost. At
    τ = 1 few layers get all the weight, and other layers in each batch, even where the costs stay the same. At τ = 10
    the weights settle.

    The formulas leave three cases open. A layer of cost 0 gets the limit, which is all the weight, shared with other
    layers of cost 0. Where all costs are 0, or one is not finite, the weights stay as they are. A layer of weight 0
    moves nothing; its cost is that of its cheapest pair, so that it can get weight again.

    Source: BERT-EMD §3, cost attention; the softmax is its eq. 23, as a reader says in issue 5 of the authors'
    repository. Unit costs, inverse ratios and softmax are those of the authors' code at commit 3d6bd37. That code has
    τ = 1, and applies a second softmax to the result. In the issue its authors say that their experiments had it, to
    make the weights smoother. Here τ does that, with one softmax. Their later code (634df29) divides ŵ by its sum
    instead. Neither version gives a layer of cost 0 more weight.

    Args:
        costs: D, `[M, N]`, 0 or more, as given to `transport_flow`.
        flow: f, `[M, N]`, as returned by it for these weights.
        student_weights: w^S, `[M]`, those the flow was solved for.
        teacher_weights: w^T, `[N]`, likewise.
        temperature: τ, above 0; the higher, the more equal the weights.

    Returns:
        The new student weights `[M]` and teacher weights `[N]`, each float64 on the CPU and summing to 1.

    Raises:
        KernelError: if the temperature is not above 0, the weights do not fit the costs, or the flow the weights.
    """
    check_temperature(temperature)
    problem = _check_problem(costs, student_weights, teacher_weights)
    if flow.shape != costs.shape:
        raise KernelError(
            f"flow has shape {list(flow.shape)} and costs {list(costs.shape)}, but they must be equal; pass the "
            "flow and the costs of the same batch."
        )
    flow = flow.detach().cpu().double()
    _check_flow("student_weights", moved=flow.sum(1), weights=problem.student_weights)
    _check_flow("teacher_weights", moved=flow.sum(0), weights=problem.teacher_weights)
    new_student_weights = _new_weights(problem.costs, flow, problem.student_weights, temperature)
    new_teacher_weights = _new_weights(problem.costs.T, flow.T, problem.teacher_weights, temperature)
    return new_student_weights, new_teacher_weights


def _check_flow(name: str, *, moved: Tensor, weights: Tensor) -> None:
    """Refuse a flow that does not move the weights of a model's layers."""
    gap = (moved - weights).abs().max().item()
    # Written so that nan is refused too.
    if not gap <= _ROUNDING:
        raise KernelError(
            f"flow moves other weights than {name} (difference {gap:.3g}); pass the weights that the flow was "
            "solved for."
        )


def _new_weights(costs: Tensor, flow: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return the new weights of the layers of one model; see `cost_attention`.

    Args:
        costs: D, with the layers of that model along the first axis.
        flow: f, likewise.
        weights: Present weights of these layers.
        temperature: τ.
    """
    moved_costs = (flow * costs).sum(1) / weights.clamp(min=_LEAST_WEIGHT)
    # A layer that moves nothing has the cost of its cheapest pair.
    unit_costs = torch.where(weights > _LEAST_WEIGHT, moved_costs, costs.amin(1))
    total = unit_costs.sum()
    if total <= 0 or not total.isfinite():
        # Costs that are all 0, or not finite, say nothing about the weights.
        return weights
    # With the costs as shares of their sum, the inverse ratio Σ_k C_k / C_i is 1 / share.
    shares = (unit_costs / total).clamp(min=_LEAST_SHARE)
    inverse_ratios = 1.0 / shares
    return torch.softmax(inverse_ratios / temperature, 0)


class _Problem(NamedTuple):
    """A transportation problem, in float64 on the CPU.

    Attributes:
        costs: D, `[M, N]`.
        student_weights: w^S, `[M]`, summing to 1 in that precision.
        teacher_weights: w^T, `[N]`, likewise.
    """

    costs: Tensor
    student_weights: Tensor
    teacher_weights: Tensor


def _check_problem(costs: Tensor, student_weights: Tensor, teacher_weights: Tensor) -> _Problem:
    """Return costs and weights in float64 on the CPU, after a check of their shapes and values."""
    if costs.dim() != 2 or 0 in costs.shape:
        raise KernelError(f"costs has shape {list(costs.shape)}; it has to be [student layers, teacher layers].")
    student_layers, teacher_layers = costs.shape
    return _Problem(
        costs=costs.detach().cpu().double(),
        student_weights=_check_weights("student_weights", student_weights, student_layers),
        teacher_weights=_check_weights("teacher_weights", teacher_weights, teacher_layers),
    )


def _check_weights(name: str, weights: Tensor, layers: int) -> Tensor:
    """Return the weights of a model's layers in float64 on the CPU, summing to 1 in that precision."""
    if weights.shape != (layers,):
        raise KernelError(f"{name} has shape {list(weights.shape)}; it has to be [{layers}], one weight per layer.")
    shares = weights.detach().cpu().double()
    # Written so that nan is refused too.
    if not (shares >= 0).all():
        raise KernelError(f"{name} is {shares.tolist()}, but no weight may be negative or nan; correct the weights.")
    total = shares.sum()
    if not abs(total.item() - 1) <= _ROUNDING:
        raise KernelError(f"{name} sums to {total.item():.6g}; it has to sum to 1: divide it by its sum.")
    return shares / total
