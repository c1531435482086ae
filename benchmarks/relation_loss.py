"""Measures `relation_kl`, blocked against materialised PyTorch: time, peak extra memory, error against float64.

Both sides run in one process, turn by turn, on the same inputs with the same valid tokens; only ratios are worth
comparing between machines. Peak extra memory is read in a fresh process each: the highest resident size during
forward and backward minus the resident size before.

    python benchmarks/relation_loss.py --output benchmarks/results/relation_loss.json
    python benchmarks/relation_loss.py --dtype bfloat16 --output benchmarks/results/relation_loss_bfloat16.json

In bfloat16 there is a third side, the kernel in C: "blocked" is PyTorch's alone there, as without a C compiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch

from harness import made_with, resident_megabytes, take_turns, write_rows
from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from limbeck.kernels.relation_blocked import CPU_BLOCK

BACKENDS = {"reference": relation_kl_reference, "blocked": relation_kl_blocked}
CASES = ((16, 128), (8, 512))
MASKS = ("full", "ragged")


def make_inputs(batch, length, mask, symmetric, arguments):
    """`(student_a, student_b, teacher_a, teacher_b)` and the mask; ragged lengths lie in [L/2, L]."""
    torch.manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    student = [torch.randn(batch, length, arguments.student).to(dtype).requires_grad_()]
    teacher = [torch.randn(batch, length, arguments.teacher).to(dtype)]
    if not symmetric:
        student.append(torch.randn(batch, length, arguments.student).to(dtype).requires_grad_())
        teacher.append(torch.randn(batch, length, arguments.teacher).to(dtype))
    lengths = torch.randint(length // 2, length + 1, (batch, 1))
    valid = None if mask == "full" else torch.arange(length) < lengths
    return [student[0], student[-1], teacher[0], teacher[-1]], valid


def run(backend, tensors, valid, heads):
    """Forward and backward; the value, and the gradient of the student's tensors joined."""
    for x in tensors[:2]:
        x.grad = None
    value = BACKENDS[backend](*tensors, heads, valid)
    value.backward()
    own = tensors[:1] if tensors[0] is tensors[1] else tensors[:2]
    return value.detach(), torch.cat([x.grad.flatten() for x in own]).double()


def seconds(backend, tensors, valid, heads):
    start = time.perf_counter()
    run(backend, tensors, valid, heads)
    return time.perf_counter() - start


def errors(tensors, valid, heads):
    """Relative error of value and gradient of each backend against the reference in float64."""
    doubles = {id(x): x.detach().double().requires_grad_(x.requires_grad) for x in tensors}
    exact, exact_gradient = run("reference", [doubles[id(x)] for x in tensors], valid, heads)
    found = {}
    for backend in BACKENDS:
        value, gradient = run(backend, tensors, valid, heads)
        found[f"{backend}_value_error"] = ((value - exact).abs() / exact).item()
        found[f"{backend}_gradient_error"] = ((gradient - exact_gradient).norm() / exact_gradient.norm()).item()
    return found


def peak_megabytes(backend, batch, length, mask, symmetric, arguments):
    """Peak extra memory, from a process that does nothing else."""
    command = [sys.executable, __file__, "--child", json.dumps([backend, batch, length, mask, symmetric])]
    for name in ("heads", "student", "teacher", "threads", "dtype"):
        command += [f"--{name}", str(getattr(arguments, name))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def child(arguments):
    backend, batch, length, mask, symmetric = json.loads(arguments.child)
    run(backend, *make_inputs(1, 8, mask, symmetric, arguments), arguments.heads)  # loads what is loaded once
    tensors, valid = make_inputs(batch, length, mask, symmetric, arguments)
    before = resident_megabytes()
    run(backend, tensors, valid, arguments.heads)
    print(resident_megabytes(highest=True) - before)


def measure(batch, length, mask, symmetric, arguments):
    tensors, valid = make_inputs(batch, length, mask, symmetric, arguments)
    sides = {backend: partial(seconds, backend, tensors, valid, arguments.heads) for backend in BACKENDS}
    times = take_turns(sides, arguments.repeats)
    memory = {}
    for backend in BACKENDS:
        memory[backend] = peak_megabytes(backend, batch, length, mask, symmetric, arguments)
    ratios = sorted(a / b for a, b in zip(times["reference"], times["blocked"], strict=True))
    tokens = batch * length if valid is None else int(valid.sum())
    return {
        "relation": "symmetric" if symmetric else "pair",
        "batch": batch,
        "length": length,
        "mask": mask,
        "time_ratio": round(statistics.median(ratios), 2),
        "time_ratio_range": [round(ratios[0], 2), round(ratios[-1], 2)],
        "memory_ratio": round(memory["reference"] / memory["blocked"], 1),
        "blocked_tokens_per_second": round(tokens / statistics.median(times["blocked"])),
        "reference_peak_mb": round(memory["reference"]),
        "blocked_peak_mb": round(memory["blocked"], 1),
        **(compiled(times, memory) if "compiled" in BACKENDS else {}),
        **errors(*make_inputs(2, length, mask, symmetric, arguments), arguments.heads),
    }


def compiled(times, memory):
    """Facts of the kernel in C, its ratio of times to PyTorch's blocks."""
    ratios = sorted(a / b for a, b in zip(times["blocked"], times["compiled"], strict=True))
    return {
        "compiled_time_ratio": round(statistics.median(ratios), 2),
        "compiled_time_ratio_range": [round(ratios[0], 2), round(ratios[-1], 2)],
        "compiled_peak_mb": round(memory["compiled"], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=48)
    parser.add_argument("--student", type=int, default=384)
    parser.add_argument("--teacher", type=int, default=768)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", type=json.loads, default=CASES, help="[[batch, length], ...]")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.dtype == "bfloat16":
        BACKENDS.update(blocked=partial(relation_kl_blocked, block=CPU_BLOCK), compiled=relation_kl_blocked)
    if arguments.child:
        child(arguments)
        return
    settings = {name: getattr(arguments, name) for name in ("heads", "student", "teacher", "threads", "dtype")}
    print(json.dumps(made_with(**settings)))
    rows = []
    for batch, length in arguments.cases:
        for mask in MASKS:
            for symmetric in (True, False):
                rows.append(measure(batch, length, mask, symmetric, arguments))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        write_rows(arguments.output, rows, settings=settings, seed=0)


if __name__ == "__main__":
    main()
