"""Which layer moves to which at least cost, and how that cost changes the weights of the layers."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.errors import KernelError
from limbeck.objectives.arguments import check_temperature

# How far a sum of weights in float32 may be from 1.
_ROUNDING = 1e-5
# Weights below this move too little for their cost to be read off the flow.
_LEAST_WEIGHT = 1e-9
# Lowest unit cost, as a share of the sum of all: its inverse is still a number that a softmax can take.
_LEAST_SHARE = 1e-12


def uniform_weights(layers: int) -> Tensor:
    """Return equal weights that sum to 1, what BERT-EMD starts from.

    Args:
        layers: How many, 1 or more.

    Returns:
        `[layers]`, float64 on the CPU.

    Raises:
        KernelError: if there is no layer.
    """
    if layers < 1:
        raise KernelError(f"layers is {layers}; weights need at least 1 layer.")
    return torch.full((layers,), 1.0 / layers, dtype=torch.float64)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def transport_flow(costs: Tensor, student_weights: Tensor, teacher_weights: Tensor) -> Tensor:
    """Solve the transportation problem between the layers of two models.

    flow = argmin Σ_ij f_ij D_ij, with f_ij ≥ 0, Σ_j f_ij = w^S_i and Σ_i f_ij = w^T_j.

    At most M + N − 1 entries are above 0. Where several flows cost the same, one of them is returned. Costs that are
    not finite have no cheapest flow: every layer then moves to every layer, f_ij = w^S_i w^T_j, so that the loss shows
    what happened.

    Source: BERT-EMD §3 (Li et al., EMNLP 2020), where total weights are equal and so nothing is left over. Solved
    exactly by the network simplex of POT (`ot.emd`), on the CPU.

    Args:
        costs: D, `[M, N]`, M student and N teacher layers, 0 or more; on another device it is copied to the CPU.
        student_weights: w^S, `[M]`, 0 or more, summing to 1.
        teacher_weights: w^T, `[N]`, likewise.

    Returns:
        `[M, N]`, float64 on the CPU, summing to 1, without gradient.

    Raises:
        KernelError: if costs are not a matrix, or weights are negative, do not sum to 1 or have another length.
    """
    costs = _as_costs(costs)
    own = _as_weights("student_weights", student_weights, costs.shape[0])
    other = _as_weights("teacher_weights", teacher_weights, costs.shape[1])
    if not costs.isfinite().all():
        return torch.outer(own, other)
    # Importing POT takes seconds and loads whatever array libraries are installed: only those who solve pay for it.
    import ot

    # The solver's stopping rule is not free of scale: costs of 1e-30 would all count as 0.
    scaled = costs / costs.amax().clamp(min=torch.finfo(costs.dtype).tiny)
    return torch.from_numpy(ot.emd(own.numpy(), other.numpy(), scaled.numpy()))


def cost_attention(
    costs: Tensor, flow: Tensor, student_weights: Tensor, teacher_weights: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Give more weight to the layers that are moved cheaply: the layer weights for the next batch.

    C^S_i = Σ_j f_ij D_ij / w^S_i (unit transferring cost), ŵ_i = Σ_k C^S_k / C^S_i (inverse ratio),
    w_i = exp(ŵ_i / τ) / Σ_k exp(ŵ_k / τ); teacher layers likewise, with C^T_j = Σ_i f_ij D_ij / w^T_j.

    The inverse ratio of m layers of equal cost is m, whatever the cost; the scale of the losses does not matter. At
    τ = 1 few layers get all the weight, others in each batch, even where the costs stay; at τ = 10 they settle.
    Corners that the formulas leave open: a layer of cost 0 takes its limit, all the weight (shared with others of
    cost 0); where all costs are 0, or one is not finite, the weights stay; a layer of weight 0 moves nothing and
    counts its cheapest pair, so that it can come back.

    Source: BERT-EMD §3, update of the weights with cost attention. The formulas are recalled, not read again, and
    agree with public implementations of the paper; its equation numbers and τ could not be verified. One version of
    the authors' code divides ŵ by its sum instead of the softmax, and gives a layer of cost 0 no weight.

    Args:
        costs: D, `[M, N]`, 0 or more, as given to `transport_flow`.
        flow: f, `[M, N]`, what it returned for these weights.
        student_weights: w^S, `[M]`, those the flow was solved for.
        teacher_weights: w^T, `[N]`, likewise.
        temperature: τ, above 0; the higher, the more equal the weights.

    Returns:
        The new student weights `[M]` and teacher weights `[N]`, each float64 on the CPU and summing to 1.

    Raises:
        KernelError: if the temperature is not above 0, the weights do not fit the costs, or the flow the weights.
    """
    check_temperature(temperature)
    costs = _as_costs(costs)
    own = _as_weights("student_weights", student_weights, costs.shape[0])
    other = _as_weights("teacher_weights", teacher_weights, costs.shape[1])
    if flow.shape != costs.shape:
        raise KernelError(f"flow has shape {list(flow.shape)} and costs {list(costs.shape)}; pass those of one batch.")
    flow = flow.detach().cpu().double()
    for name, weights, axis in (("student_weights", own, 1), ("teacher_weights", other, 0)):
        gap = (flow.sum(axis) - weights).abs().max().item()
        if not gap <= _ROUNDING:
            raise KernelError(f"flow misses {name} by {gap:.3g}; pass the weights that the flow was solved for.")
    return _attend(costs, flow, own, temperature), _attend(costs.T, flow.T, other, temperature)


def _attend(costs: Tensor, flow: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return the new weights of the layers along the first axis."""
    moved = (flow * costs).sum(1) / weights.clamp(min=_LEAST_WEIGHT)
    unit = torch.where(weights > _LEAST_WEIGHT, moved, costs.amin(1))
    total = unit.sum()
    if not (total > 0 and total.isfinite()):
        return weights
    return torch.softmax(1.0 / (unit / total).clamp(min=_LEAST_SHARE) / temperature, 0)


def _as_costs(costs: Tensor) -> Tensor:
    """Return the costs in float64 on the CPU."""
    if costs.dim() != 2 or 0 in costs.shape:
        raise KernelError(f"costs has shape {list(costs.shape)}; it has to be [student layers, teacher layers].")
    return costs.detach().cpu().double()


def _as_weights(name: str, weights: Tensor, layers: int) -> Tensor:
    """Return weights in float64 on the CPU, summing to 1 in that precision."""
    if weights.shape != (layers,):
        raise KernelError(f"{name} has shape {list(weights.shape)}; it has to be [{layers}], one weight per layer.")
    weights = weights.detach().cpu().double()
    # Written so that nan is refused too.
    if not (weights >= 0).all():
        raise KernelError(f"{name} is {weights.tolist()}; no weight may be negative or nan.")
    total = weights.sum()
    if not abs(total.item() - 1) <= _ROUNDING:
        raise KernelError(f"{name} sums to {total.item():.6g}; it has to sum to 1: divide it by its sum.")
    return weights / total
