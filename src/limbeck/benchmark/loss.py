"""`limbeck benchmark loss`: what a loss costs by each of its backends, and how exact each is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.benchmark.measuring import (
    BYTES_PER_MEGABYTE,
    Peak,
    check_length,
    check_memory,
    free_megabytes,
    peak_in_child,
    speedup,
    stopwatch,
    summarise,
    take_turns,
    watch_peak,
)
from limbeck.benchmark.rows import Row, tidy
from limbeck.core.progress import Count, Report, part_of, quietly
from limbeck.core.registry import Registry
from limbeck.errors import RecipeError, suggestion
from limbeck.kernels.precision import compute_dtype
from limbeck.models.loading import as_dtype
from limbeck.objectives import attention_score_mse, relation_kl, soft_label_kl
from limbeck.objectives.labels import soft_label_kl_from_hidden

# The losses that can be measured: their inputs, and the ways to compute each, the plainest first.


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


# Errors are measured on less: float64 by the plain way takes many times the memory.
ERROR_BATCH, ERROR_MEGABYTES = 2, 2000
# Of the free memory that a plain backend may be expected to take.
FREE_SHARE = 0.7
_TIMED = 0.7  # Share of a case's progress that the timing is given.


def measure_losses(
    cases: Sequence[LossCase],
    backends: Sequence[str] = (),
    *,
    seconds: float = 30.0,
    memory: bool = True,
    report: Report = quietly,
) -> list[Row]:
    """Measure forward and backward of a loss by each backend.

    The backends of a case take turns; the first is what `speedup` refers to. Errors are relative, against the plain
    backend in float64 on the same numbers: |value − exact| / |exact|, and ‖gradient − exact‖ / ‖exact‖. A plain
    backend that would not fit into the free memory has a row that says so.

    Args:
        cases: What to measure.
        backends: Names in the objective's `Contest`; empty means all that can run on the device.
        seconds: For all timings together; at least five rounds are made of each case.
        memory: Measure peak memory too, on a CPU in a process of its own for each backend.
        report: Is told how far it is.

    Returns:
        One row a case and backend.

    Raises:
        LimbeckError: if a backend is unknown or cannot run here, heads do not divide widths, or a case is too large.
    """
    # Found before anything is measured: what cannot run at all.
    chosen = [_check(case, backends) for case in cases]
    rows: list[Row] = []
    for index, (case, names) in enumerate(zip(cases, chosen, strict=True)):
        here = part_of(report, index / len(cases), (index + 1) / len(cases))
        rows += _measure(case, names, seconds / len(cases), memory, here)
    return rows


def errors_of(contest: Contest, backends: Sequence[str], case: LossCase) -> dict[str, tuple[float, float]]:
    """Return the relative errors of value and gradient of each backend, see `measure_losses`."""
    inputs = make_inputs(case)
    double = inputs.double()
    exact = run_loss(contest, contest.exact, case, double)
    exact_gradient = _gradient(double, exact.device)
    found = {}
    for backend in backends:
        value = run_loss(contest, backend, case, inputs).to(exact.device).double()
        gradient = _gradient(inputs, exact.device)
        difference = (gradient - exact_gradient).norm() / exact_gradient.norm()
        found[backend] = (float((value - exact).abs() / exact.abs()), float(difference))
    return found


def error_case(contest: Contest, case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, shorter ones where float64 takes too much."""
    small = replace(case, batch=min(case.batch, ERROR_BATCH))
    while 2 * megabytes_needed(contest, small) > ERROR_MEGABYTES and (small.batch, small.length) != (1, 1):
        small = replace(small, batch=1, length=small.length if small.batch > 1 else small.length // 2)
    return small


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """The student's gradients, joined, in float64."""
    return torch.cat([x.grad.flatten().to(device).double() for x in inputs.leaves if x.grad is not None])


def _check(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends of a case, each of which has run on a very small one."""
    contest, dtype = CONTESTS[case.objective], as_dtype(case.dtype)
    check_length("--lengths", [case.length])
    check_memory(
        f"--batch {case.batch} and --lengths {case.length}", _bytes_of_inputs(case, dtype), torch.device(case.device)
    )
    names = contest.choose(backends)
    if not names:
        # Triton's interpreter is for tests alone.
        names = [name for name in contest.backends if name != "triton" or torch.device(case.device).type == "cuda"]
    small = smaller(case)
    inputs = make_inputs(small)
    for name in names:
        run_loss(contest, name, small, inputs)
    return names


def _bytes_of_inputs(case: LossCase, dtype: torch.dtype) -> int:
    """What the streams take, the student's with their gradient; soft labels have output weights too."""
    rows = case.batch * case.length + (case.classes if case.objective == "soft_label_kl" else 0)
    return rows * (2 * case.student_width + case.teacher_width) * dtype.itemsize


def _measure(case: LossCase, backends: Sequence[str], seconds: float, memory: bool, report: Report) -> list[Row]:
    contest, device = CONTESTS[case.objective], torch.device(case.device)
    what = f"{case.objective}, {case.batch} x {case.length} tokens, {case.heads} heads"
    notes = {name: _obstacle(contest, name, case, device) for name in backends}
    fit = [name for name in backends if not notes[name]]
    report(0.0, what)
    inputs = make_inputs(case)
    runs = {name: stopwatch(partial(run_loss, contest, name, case, inputs), device) for name in fit}
    timing = part_of(report, 0.0, _TIMED)

    def tell(share: float, rounds: int) -> None:
        timing(share, what, Count(rounds, "rounds"))

    times = take_turns(runs, seconds=seconds, tell=tell) if fit else {}
    tokens = int(inputs.valid.sum())
    del inputs, runs
    errors = errors_of(contest, fit, error_case(contest, case)) if fit else {}
    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _describe(case, name)
        rows.append(row)
        if name not in fit:
            row["note"] = notes[name]
            continue
        report(_TIMED + (1 - _TIMED) * index / len(backends), f"{what}: memory of {name}", Count(index, "backends"))
        peak = _peak(case, name, device) if memory else Peak()
        spread = summarise(times[name])
        row |= {
            "rounds": len(times[name]),
            "median_ms": spread.median_ms,
            "p10_ms": spread.p10_ms,
            "p90_ms": spread.p90_ms,
            "speedup": speedup(times[fit[0]], times[name]) if fit[0] == backends[0] else None,
            "tokens_per_second": tokens / spread.median_ms * 1000,
            "peak_extra_mb": peak.extra_mb,
            "value_error": errors[name][0],
            "gradient_error": errors[name][1],
            "note": peak.note,
        }
    report(1.0, what)
    return [tidy(row) for row in rows]


def _peak(case: LossCase, backend: str, device: torch.device) -> Peak:
    spec = {"case": asdict(case), "backend": backend}
    return peak_in_child("loss", spec) if device.type == "cpu" else peak_of(spec)


def _obstacle(contest: Contest, backend: str, case: LossCase, device: torch.device) -> str:
    """Say why a plain backend should not be tried; empty where it fits."""
    if backend not in contest.plain:
        return ""
    needed = megabytes_needed(contest, case)
    if needed <= FREE_SHARE * free_megabytes(device):
        return ""
    return f"not measured: needs about {needed / 1000:.0f} GB of memory"


def _describe(case: LossCase, backend: str) -> Row:
    """Return a row with what is measured, and no figure yet; soft labels have classes instead of heads."""
    labels = case.objective == "soft_label_kl"
    return {
        "objective": case.objective,
        "backend": backend,
        "batch": case.batch,
        "length": case.length,
        "heads": None if labels else case.heads,
        "classes": case.classes if labels else None,
        "teacher_width": case.teacher_width,
        "student_width": case.student_width,
        "mask": case.mask,
        "relation": case.relation if case.objective == "relation_kl" else None,
        "dtype": case.dtype,
        "device_type": torch.device(case.device).type,
        "rounds": None,
        "median_ms": None,
        "p10_ms": None,
        "p90_ms": None,
        "speedup": None,
        "tokens_per_second": None,
        "peak_extra_mb": None,
        "value_error": None,
        "gradient_error": None,
        "note": None,
    }
