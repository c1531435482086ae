"""How much of its teacher a student's last layer has: token relations, and what a linear map finds in its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.methods.layer_mapping import stream_width
from limbeck.methods.minilmv2 import relation_heads_for
from limbeck.models.families import Shape, depth, family_of
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl

_PARTS = ("query", "key", "value")
_PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""Of the ridge regression, in units of the mean variance of the student's features."""


def common_relation_heads(teacher: Shape, students: Sequence[Shape]) -> int:
    """Return the number of relation heads for all students of a comparison: MiniLMv2's, or the nearest below that
    divides every width."""
    widths = {stream_width(shape, part) for shape in (teacher, *students) for part in _PARTS}
    return relation_heads_for(teacher, widths)


@torch.no_grad()
def compare_last_layers(
    student: PreTrainedModel, teacher: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], *, heads: int
) -> tuple[float, float | None]:
    """Compare the last layers of two models on text that neither sees as training text.

    Args:
        student: In eval mode.
        teacher: In eval mode, on the same device.
        batches: `input_ids` and `attention_mask`, `[B, L]`.
        heads: Relation heads; divides the widths of queries, keys and values of both.

    Returns:
        The mean divergence of the student's query-query, key-key and value-value relations from the teacher's, in nats
        (0 at equality; MiniLMv2 section 3.1). And the share of the variance of the teacher's last hidden states that a
        linear map of the student's explains (1: all of it), by a ridge regression on the first two thirds of the
        batches, measured on the last; None of fewer than three. Its penalty is the one that does best on the second
        third when fitted on the first: a few thousand tokens are little for as many features.
    """
    total = count = 0.0
    causal = family_of(teacher.config).causal
    thirds = _Moments(), _Moments(), _Moments()
    with StreamTap(student, _keys(student)) as of_student, StreamTap(teacher, _keys(teacher)) as of_teacher:
        device = next(student.parameters()).device
        for number, batch in enumerate(batches):
            inputs = batch["input_ids"].to(device), batch["attention_mask"].to(device)
            ours, theirs = _by_kind(of_student(*inputs)), _by_kind(of_teacher(*inputs))
            valid = inputs[1].bool()
            for part in _PARTS:
                vectors = ours[part], ours[part], theirs[part], theirs[part]
                term = relation_kl(*vectors, heads=heads, valid=valid, causal=causal)
                total, count = total + float(term.total), count + float(term.count)
            thirds[3 * number // len(batches)].add(ours["hidden"][valid], theirs["hidden"][valid])
    return total / count, _explained(*thirds) if len(batches) >= 3 else None


def _explained(first: _Moments, second: _Moments, third: _Moments) -> float:
    best = max(_PENALTIES, key=lambda penalty: second.explained(*first.regression(penalty)))
    return third.explained(*(first + second).regression(best))


class _Moments:
    """Sums over rows x `[n, X]` and y `[n, Y]`, in float64: all that a linear regression needs of them."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums: tuple[Tensor, ...] = ()

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows."""
        x, y = x.double().cpu(), y.double().cpu()
        new = x.sum(0), y.sum(0), x.T @ x, x.T @ y, y.square().sum()
        self._rows += len(x)
        self._sums = tuple(a + b for a, b in zip(self._sums, new, strict=True)) if self._sums else new

    def __add__(self, other: _Moments) -> _Moments:
        joined = _Moments()
        joined._rows = self._rows + other._rows
        joined._sums = tuple(a + b for a, b in zip(self._sums, other._sums, strict=True))
        return joined

    def regression(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Return weight `[X, Y]` and offset `[Y]` of the ridge regression of y on x."""
        sum_x, sum_y, xx, xy, _ = self._sums
        mean_x, mean_y = sum_x / self._rows, sum_y / self._rows
        covariance = xx - self._rows * torch.outer(mean_x, mean_x)
        covariance += torch.eye(len(covariance), dtype=covariance.dtype) * covariance.diagonal().mean() * penalty
        # A pseudo-inverse, since vectors that are all alike have no covariance.
        inverse = torch.linalg.pinv(covariance, hermitian=True)
        weight = inverse @ (xy - self._rows * torch.outer(mean_x, mean_y))
        return weight, mean_y - mean_x @ weight

    def explained(self, weight: Tensor, offset: Tensor) -> float:
        """Return 1 - (squared error of x W + b) / (variance of y)."""
        sum_x, sum_y, xx, xy, yy = self._sums
        # |xW + b - y|^2 summed over rows, written out so that the rows need not be kept.
        error = ((xx @ weight) * weight).sum() + self._rows * offset @ offset + yy
        error += 2 * (sum_x @ weight) @ offset - 2 * (xy * weight).sum() - 2 * sum_y @ offset
        return float(1 - error / (yy - sum_y @ sum_y / self._rows))


def _keys(model: PreTrainedModel) -> list[StreamKey]:
    last = depth(model.config)
    return [StreamKey(kind, last) for kind in (*_PARTS, "hidden")]


def _by_kind(streams: Streams) -> dict[str, Tensor]:
    return {key.kind: tensor for key, tensor in streams.items()}
