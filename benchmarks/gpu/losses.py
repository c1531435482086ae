"""Losses: Triton's `relation_kl` beside materialised PyTorch, and soft labels from hidden states beside plain logits.

Both are held to the plain backend in float64, by value and gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.gpu.parts import Request, Row

from limbeck.benchmark.loss import measure_losses
from limbeck.benchmark.loss_case import LossCase
from limbeck.benchmark.loss_errors import errors_of

# Batch, length, heads, widths of teacher and student: heads of several sizes, texts that fill no tile.
SHAPES = ((2, 128, 48, 768, 384), (2, 200, 3, 192, 60))
LENGTHS, TOY_LENGTHS = (128, 512), (8, 16)
CLASSES, TOY_CLASSES = (30_522, 250_002), (50, 90)
OF_RELATION = {True: ("reference", "blocked"), False: ("reference", "triton")}
"""Backends, by whether the run is dry: Triton needs a GPU."""


def measure_relation(request: Request) -> Iterator[Row]:
    """Errors at several shapes, then time and memory of 32 samples with 48 heads."""
    backends = OF_RELATION[request.dry]
    for batch, length, heads, teacher, student in SHAPES:
        sizes = {"batch": batch, "length": length // 8 if request.dry else length, "heads": heads}
        widths = {"teacher_width": teacher, "student_width": student}
        for dtype in ("bfloat16", "float32"):
            case = LossCase(**sizes, **widths, dtype=dtype, device=request.device, mask="ragged")
            for relation in ("symmetric", "pair"):
                found = errors_of(replace(case, relation=relation), backends)
                for backend, (value, gradient) in found.items():
                    errors = {"value_error": value, "gradient_error": gradient}
                    yield (
                        {"errors_only": True, "backend": backend, "relation": relation, "dtype": dtype} | sizes | errors
                    )
    common = LossCase(batch=2 if request.dry else 32, dtype="bfloat16", device=request.device)
    cases = [replace(common, length=length) for length in (TOY_LENGTHS if request.dry else LENGTHS)]
    for case in [replace(case, relation=relation) for case in cases for relation in ("symmetric", "pair")]:
        yield from measure_losses([case], backends, **_effort(request, 3))


def measure_soft_labels(request: Request) -> Iterator[Row]:
    """Time and memory of 4,096 tokens; plain logits that would not fit have a row that says so."""
    case = LossCase("soft_label_kl", batch=2 if request.dry else 32, dtype="bfloat16", device=request.device)
    case = replace(case, length=8) if request.dry else case
    for classes in TOY_CLASSES if request.dry else CLASSES:
        yield from measure_losses([replace(case, classes=classes)], **_effort(request, 4))


def _effort(request: Request, seconds: float) -> dict[str, Any]:
    """Of a measurement; on a CPU its memory would be measured in a process for each backend."""
    return {"seconds": 0.1, "memory": False} if request.dry else {"seconds": seconds}
