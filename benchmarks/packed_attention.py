"""Times attention over the samples of a batch on a CPU in bfloat16, beside PyTorch's over the padded batch.

    OMP_NUM_THREADS=1 python benchmarks/packed_attention.py --output benchmarks/results/packed_attention.json

Twelve heads of 32; lengths are drawn once. PyTorch gets the padded batch with its mask, limbeck the real tokens, which
it takes out of the batch and puts back within the time. Both take turns; times are the processor's, and ratios those
of one round, by their median. Errors are those of the result and of the gradients against float64, as norms relative to
PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.machine import git_commit, hardware, versions
from limbeck.kernels.packed_attention import packed_attention

HEADS, WIDTH = 12, 32
BATCHES = {"64 x 5-60": (64, 5, 60), "16 x 35-70": (16, 35, 70), "16 x 120-192": (16, 120, 192)}
"""Samples, and the shortest and longest."""
ROUNDS = 9


class Batch:
    """Operands `[B, L, A, D]` of ragged samples."""

    def __init__(self, samples: int, shortest: int, longest: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.lengths: list[int] = torch.randint(shortest, longest + 1, (samples,), generator=generator).tolist()
        self.mask = torch.arange(max(self.lengths)) < torch.tensor(self.lengths)[:, None]
        self.places = self.mask.flatten().nonzero().flatten()
        shape = (samples, max(self.lengths), HEADS, WIDTH)
        self.operands = [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for _ in range(3)]

    def of_pytorch(self, operands: list[Tensor], dropout: float) -> Tensor:
        """PyTorch's attention over the padded batch; rows of padding are 0."""
        query, key, value = (x.transpose(1, 2) for x in operands)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask[:, None, None], dropout_p=dropout)
        return found.transpose(1, 2) * self.mask[:, :, None, None]

    def of_limbeck(self, operands: list[Tensor], dropout: float) -> Tensor:
        """limbeck's over the real tokens."""
        query, key, value = (x.flatten(0, 1).index_select(0, self.places).transpose(0, 1) for x in operands)
        found = packed_attention(query, key, value, self.lengths, scale=WIDTH**-0.5, dropout=dropout)
        return torch.zeros_like(operands[0]).flatten(0, 1).index_copy(0, self.places, found).view_as(operands[0])


def with_gradients(batch: Batch, side: str, operands: list[Tensor], dropout: float = 0.0) -> list[Tensor]:
    """A side's result, and the gradients of its sum weighted by fixed numbers."""
    found = getattr(batch, f"of_{side}")(operands, dropout)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)).to(found.dtype)
    return [found, *torch.autograd.grad(found, operands, weights * batch.mask[:, :, None, None])]


def measure(name: str) -> dict[str, Any]:
    """Measure one batch, with and without dropout."""
    batch = Batch(*BATCHES[name])
    row: dict[str, Any] = {"batch": name, "tokens": len(batch.places)}
    for dropout in (0.0, 0.1):
        for backward in (False, True):
            times: dict[str, list[float]] = {"pytorch": [], "limbeck": []}
            for _ in range(ROUNDS + 1):
                for side, taken in times.items():
                    began = time.process_time()
                    if backward:
                        with_gradients(batch, side, batch.operands, dropout)
                    else:
                        with torch.no_grad():
                            getattr(batch, f"of_{side}")(batch.operands, dropout)
                    taken.append(1e3 * (time.process_time() - began))
            ratios = [a / b for a, b in zip(times["pytorch"][1:], times["limbeck"][1:], strict=True)]
            row[f"{'forward and backward' if backward else 'forward'}, dropout {dropout}"] = {
                **{f"{side}_ms": round(statistics.median(taken[1:]), 2) for side, taken in times.items()},
                "ratio": round(statistics.median(ratios), 2),
                "ratio_lowest": round(min(ratios), 2),
                "ratio_highest": round(max(ratios), 2),
            }
    exact = with_gradients(batch, "pytorch", [x.detach().double().requires_grad_() for x in batch.operands])
    errors = {}
    for side in ("pytorch", "limbeck"):
        found = with_gradients(batch, side, batch.operands)
        errors[side] = [float((a.double() - b).detach().norm()) for a, b in zip(found, exact, strict=True)]
    row["error_of_pytorchs"] = [round(a / b, 3) for a, b in zip(errors["limbeck"], errors["pytorch"], strict=True)]
    return row


def main() -> None:
    """Measure all batches and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    asked = parser.parse_args()
    rows = [measure(name) for name in BATCHES]
    made_with = {"commit": git_commit(), "hardware": hardware(), "versions": versions()}
    asked.output.write_text(json.dumps({"rows": rows, **made_with}, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
