"""Measures `relation_kl` on a GPU, Triton against materialised PyTorch: error, time and peak memory.

First the Triton kernels are held to the reference in float64 at several shapes, masks and formats; nothing is timed
if one of them is wrong. Then forward and backward of both are timed turn by turn, on the same inputs.

    python benchmarks/relation_loss_gpu.py --output benchmarks/results/relation_loss_gpu.json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from limbeck.kernels import relation_kl_reference, relation_kl_triton

BACKENDS = {"reference": relation_kl_reference, "triton": relation_kl_triton}
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# (batch, length, heads, student head size, teacher head size, causal)
CHECKS = (
    (2, 128, 48, 8, 16, False),
    (2, 512, 12, 8, 16, False),
    (3, 37, 4, 4, 12, True),
    (2, 200, 3, 20, 64, True),
    (2, 100, 1, 384, 768, False),
)


def make_inputs(batch, length, heads, sizes, dtype, symmetric, ragged, seed=0):
    """`(student_a, student_b, teacher_a, teacher_b)` and the mask; ragged lengths lie in [L/2, L]."""
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(size):
        return torch.randn(batch, length, heads * size, generator=generator, device="cuda").to(dtype)

    student = [normal(sizes[0]).requires_grad_() for _ in range(1 if symmetric else 2)]
    teacher = [normal(sizes[1]) for _ in range(1 if symmetric else 2)]
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=generator, device="cuda")
    valid = torch.arange(length, device="cuda") < lengths if ragged else None
    return [student[0], student[-1], teacher[0], teacher[-1]], valid


def run(backend, tensors, valid, heads, causal=False):
    """Forward and backward; the value, and the gradient of the student's tensors joined."""
    for x in tensors[:2]:
        x.grad = None
    value = BACKENDS[backend](*tensors, heads, valid, causal)
    value.backward()
    own = tensors[:1] if tensors[0] is tensors[1] else tensors[:2]
    return value.detach(), torch.cat([x.grad.flatten() for x in own])


def errors(tensors, valid, heads, causal=False):
    """Relative error of value and gradient of each backend against the reference in float64."""
    doubles = {id(x): x.detach().double().requires_grad_(x.requires_grad) for x in tensors}
    exact, exact_gradient = run("reference", [doubles[id(x)] for x in tensors], valid, heads, causal)
    found = {}
    for backend in BACKENDS:
        value, gradient = run(backend, tensors, valid, heads, causal)
        found[f"{backend}_value_error"] = ((value - exact).abs() / exact).item()
        found[f"{backend}_gradient_error"] = ((gradient - exact_gradient).norm() / exact_gradient.norm()).item()
    return found


def check():
    """Error of every shape, format and mask; says which are more than twice plain PyTorch's."""
    rows = []
    for batch, length, heads, student, teacher, causal in CHECKS:
        for name, dtype in DTYPES.items():
            for symmetric in (True, False):
                given = make_inputs(batch, length, heads, (student, teacher), dtype, symmetric, ragged=True)
                found = errors(*given, heads, causal)
                # One rounding of a value is not an error where plain PyTorch is right by luck.
                right = found["triton_gradient_error"] <= 2 * found["reference_gradient_error"]
                right &= found["triton_value_error"] <= 2 * found["reference_value_error"] + 1e-6
                rows.append(
                    {
                        "batch": batch,
                        "length": length,
                        "heads": heads,
                        "head_sizes": [student, teacher],
                        "dtype": name,
                        "relation": "symmetric" if symmetric else "pair",
                        "causal": causal,
                        "right": right,
                        **found,
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    return rows


def milliseconds(backend, tensors, valid, heads):
    """Time on the device of one forward and backward pass."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run(backend, tensors, valid, heads)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def peak_megabytes(backend, tensors, valid, heads):
    """Peak memory of one forward and backward pass, inputs not counted, gradients counted."""
    for x in tensors[:2]:
        x.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(backend, tensors, valid, heads)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(batch, length, dtype, symmetric, arguments):
    heads = arguments.heads
    sizes = arguments.student // heads, arguments.teacher // heads
    tensors, valid = make_inputs(batch, length, heads, sizes, DTYPES[dtype], symmetric, ragged=False)
    times = {backend: [] for backend in BACKENDS}
    for turn in range(arguments.repeats + 3):
        for backend, seen in times.items():
            took = milliseconds(backend, tensors, valid, heads)
            if turn >= 3:
                seen.append(took)
    row = {"relation": "symmetric" if symmetric else "pair", "batch": batch, "length": length, "dtype": dtype}
    for backend, seen in times.items():
        tenths = statistics.quantiles(seen, n=10)
        row[f"{backend}_milliseconds"] = {
            "median": round(statistics.median(seen), 4),
            "p10": round(tenths[0], 4),
            "p90": round(tenths[-1], 4),
        }
        row[f"{backend}_peak_mb"] = round(peak_megabytes(backend, tensors, valid, heads), 1)
    ratios = [a / b for a, b in zip(times["reference"], times["triton"], strict=True)]
    row["time_ratio"] = round(statistics.median(ratios), 2)
    row["memory_ratio"] = round(row["reference_peak_mb"] / row["triton_peak_mb"], 1)
    # The reference in float64 takes a lot of memory: two samples are enough to tell an error.
    small = make_inputs(2, length, heads, sizes, DTYPES[dtype], symmetric, ragged=False)
    return row | errors(*small, heads)


def describe(arguments):
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return {
        "device": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": importlib.metadata.version("triton"),
        "commit": commit.stdout.strip(),
        "heads": arguments.heads,
        "widths": [arguments.student, arguments.teacher],
        "repeats": arguments.repeats,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=48)
    parser.add_argument("--student", type=int, default=384)
    parser.add_argument("--teacher", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--cases", type=json.loads, default=((32, 128), (32, 512)), help="[[batch, length], ...]")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device")
        return 2
    machine = describe(arguments)
    print(json.dumps(machine))
    checks = check()
    wrong = sum(not row["right"] for row in checks)
    if wrong:
        print(f"{wrong} of {len(checks)} checks have an error of more than twice plain PyTorch's; nothing is timed")
        return 1
    rows = []
    for batch, length in arguments.cases:
        for dtype in DTYPES:
            for symmetric in (True, False):
                rows.append(measure(batch, length, dtype, symmetric, arguments))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        written = {"machine": machine, "checks": checks, "rows": rows}
        arguments.output.write_text(json.dumps(written, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
