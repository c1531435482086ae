"""The losses that can be measured: their inputs, and the ways to compute each, the plainest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.benchmark.memory import BYTES_PER_MEGABYTE, Peak, watch_peak
from limbeck.core.registry import Registry
from limbeck.errors import RecipeError, suggestion
from limbeck.kernels.precision import compute_dtype
from limbeck.objectives import attention_score_mse, relation_kl, soft_label_kl
from limbeck.objectives.labels import soft_label_kl_from_hidden


@dataclass(frozen=True)
class LossCase:
    """One loss on inputs of one size; every field is fit for JSON.

    Attributes:
        objective: One of `CONTESTS`.
        batch: Samples B.
        length: Tokens L of the longest sample.
        heads: Relation or attention heads; of no meaning for soft labels.
        teacher_width: Width of the teacher's streams.
        student_width: Width of the student's streams.
        classes: Vocabulary V; of meaning for soft labels alone.
        mask: `"full"`, or `"ragged"` with lengths drawn from [L/2, L].
        relation: `"symmetric"` (a stream with itself) or `"pair"` (two streams); of meaning for `relation_kl` alone.
        dtype: Of the streams.
        device: Where they are.
        seed: Of the random numbers.
    """

    objective: str = "relation_kl"
    batch: int = 8
    length: int = 128
    heads: int = 48
    teacher_width: int = 768
    student_width: int = 384
    classes: int = 30_522
    mask: str = "full"
    relation: str = "symmetric"
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Inputs:
    """Random streams of a case.

    Attributes:
        student: Two tensors that carry gradient; one and the same where the relation is symmetric.
        teacher: Two constant tensors, likewise.
        valid: Real tokens, bool `[B, L]`.
    """

    student: tuple[Tensor, Tensor]
    teacher: tuple[Tensor, Tensor]
    valid: Tensor

    @property
    def leaves(self) -> list[Tensor]:
        """The student's tensors, each once."""
        first, second = self.student
        return [first] if first is second else [first, second]

    def double(self) -> Inputs:
        """Return the same numbers in float64, on the CPU where the device has none."""
        device = torch.device("cpu") if self.valid.device.type == "mps" else self.valid.device
        found = {
            id(x): x.detach().to(device).double().requires_grad_(x.requires_grad)
            for x in (*self.student, *self.teacher)
        }
        student, teacher = ((found[id(a)], found[id(b)]) for a, b in (self.student, self.teacher))
        return Inputs(student, teacher, self.valid.to(device))


Backend: TypeAlias = Callable[[LossCase, Inputs], Tensor]


@dataclass(frozen=True)
class Contest:
    """The ways to compute one objective.

    Attributes:
        backends: By name; each gives the summed loss.
        exact: The plain one, which in float64 is what errors are measured against.
        plain: Those that hold everything at once.
        numbers_at_once: How many float32 numbers those hold at their highest, a little more than was seen.
    """

    backends: Mapping[str, Backend]
    exact: str
    plain: tuple[str, ...]
    numbers_at_once: Callable[[LossCase], int]

    def choose(self, names: Sequence[str]) -> list[str]:
        """Check names of backends.

        Raises:
            RecipeError: for one that there is not.
        """
        for name in names:
            if name not in self.backends:
                raise RecipeError(f"Unknown backend '{name}' for this objective.{suggestion(name, self.backends)}")
        return list(dict.fromkeys(names))


def make_inputs(case: LossCase) -> Inputs:
    """Draw the random streams of a case; nothing larger than them is ever resident."""
    generator = torch.Generator().manual_seed(case.seed)
    make = partial(_draw, dtype=getattr(torch, case.dtype), device=case.device, generator=generator)
    rows = (case.batch, case.length)
    widths = case.student_width, case.teacher_width
    if case.objective == "soft_label_kl":
        # An output weight scaled so that logits are about 1, as a trained model's differences are.
        student, teacher = ((make((*rows, w)), make((case.classes, w), deviation=w**-0.5)) for w in widths)
    else:
        symmetric = case.objective == "relation_kl" and case.relation == "symmetric"
        firsts = [make((*rows, w)) for w in widths]
        student, teacher = ((x, x if symmetric else make(tuple(x.shape))) for x in firsts)
    for x in student:
        x.requires_grad_()
    lengths = torch.full((case.batch, 1), case.length)
    if case.mask == "ragged":
        lengths = torch.randint(max(1, case.length // 2), case.length + 1, (case.batch, 1), generator=generator)
    return Inputs(student, teacher, (torch.arange(case.length) < lengths).to(case.device))


def _draw(
    shape: Sequence[int], *, dtype: torch.dtype, device: str, generator: torch.Generator, deviation: float = 1.0
) -> Tensor:
    return torch.empty(shape, dtype=dtype).normal_(std=deviation, generator=generator).to(device)


def _relation(backend: str, case: LossCase, inputs: Inputs) -> Tensor:
    return relation_kl(*inputs.student, *inputs.teacher, heads=case.heads, valid=inputs.valid, backend=backend).total


def _score_gram(case: LossCase, inputs: Inputs) -> Tensor:
    return attention_score_mse(*inputs.student, *inputs.teacher, heads=case.heads, valid=inputs.valid).total


def _score_materialised(case: LossCase, inputs: Inputs) -> Tensor:
    """Σ (Q Kᵀ/√d − Q'K'ᵀ/√d')² over pairs of valid tokens, every score held at once."""
    dtype = compute_dtype(*inputs.student, *inputs.teacher)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        q, k = (x.to(dtype).unflatten(-1, (case.heads, -1)).transpose(1, 2) for x in (q, k))
        return q @ k.mT / math.sqrt(q.shape[-1])

    valid = inputs.valid[:, None, :, None] & inputs.valid[:, None, None, :]
    return (scores(*inputs.student) - scores(*inputs.teacher)).masked_fill(~valid, 0.0).square().sum()


def _labels_materialised(case: LossCase, inputs: Inputs) -> Tensor:
    return soft_label_kl(F.linear(*inputs.student), F.linear(*inputs.teacher), valid=inputs.valid).total


def _labels_from_hidden(case: LossCase, inputs: Inputs) -> Tensor:
    return soft_label_kl_from_hidden(*inputs.student, *inputs.teacher, valid=inputs.valid).total


def _scores_at_once(copies: int, case: LossCase) -> int:
    return copies * case.batch * case.heads * case.length**2


def _logits_at_once(case: LossCase) -> int:
    return 8 * case.batch * case.length * case.classes


CONTESTS: Registry[Contest] = Registry("objective")
CONTESTS.register(
    "relation_kl",
    Contest(
        {name: partial(_relation, name) for name in ("reference", "blocked", "triton")},
        exact="reference",
        plain=("reference",),
        numbers_at_once=partial(_scores_at_once, 7),
    ),
)
CONTESTS.register(
    "attention_score_mse",
    Contest(
        {"materialised": _score_materialised, "gram": _score_gram},
        exact="materialised",
        plain=("materialised",),
        numbers_at_once=partial(_scores_at_once, 6),
    ),
)
CONTESTS.register(
    "soft_label_kl",
    Contest(
        {"materialised": _labels_materialised, "from_hidden": _labels_from_hidden},
        exact="materialised",
        plain=("materialised",),
        numbers_at_once=_logits_at_once,
    ),
)


def run_loss(contest: Contest, backend: str, case: LossCase, inputs: Inputs) -> Tensor:
    """Run forward and backward of the summed loss; return its value, and leave the gradients on the leaves."""
    for x in inputs.leaves:
        x.grad = None
    value = contest.backends[backend](case, inputs)
    value.backward()
    return value.detach()


def smaller(case: LossCase) -> LossCase:
    """Return a very small case of the same kind, on which everything is loaded that is loaded once."""
    return replace(case, batch=1, length=min(case.length, 8), classes=min(case.classes, 64))


def megabytes_needed(contest: Contest, case: LossCase) -> float:
    """Return about how much memory a plain backend takes, in megabytes."""
    return contest.numbers_at_once(case) * 4 / BYTES_PER_MEGABYTE


def peak_of(spec: Mapping[str, Any]) -> Peak:
    """Measure the peak memory of one forward and backward, the gradients included.

    Args:
        spec: `backend`, and `case` with the fields of `LossCase`.
    """
    case, contest = LossCase(**spec["case"]), CONTESTS[spec["case"]["objective"]]
    backend = str(spec["backend"])
    small = smaller(case)
    run_loss(contest, backend, small, make_inputs(small))  # Loads what is loaded once.
    inputs = make_inputs(case)
    return watch_peak(lambda: run_loss(contest, backend, case, inputs), torch.device(case.device))
