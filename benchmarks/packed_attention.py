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
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harness import milliseconds, ratio_of, take_turns, write_rows
from limbeck.kernels.packed_attention import packed_attention

HEADS = 12
WIDTH = 32
BATCHES = {"64 x 5-60": (64, 5, 60), "16 x 35-70": (16, 35, 70), "16 x 120-192": (16, 120, 192)}
"""Samples, and the shortest and longest."""
SIDES = ("pytorch", "limbeck")
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
        mask = self.mask[:, None, None]
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return context.transpose(1, 2) * self.mask[:, :, None, None]

    def of_limbeck(self, operands: list[Tensor], dropout: float) -> Tensor:
        """limbeck's over the real tokens."""
        query, key, value = (x.flatten(0, 1).index_select(0, self.places).transpose(0, 1) for x in operands)
        context = packed_attention(query, key, value, self.lengths, scale=WIDTH**-0.5, dropout=dropout)
        return torch.zeros_like(operands[0]).flatten(0, 1).index_copy(0, self.places, context).view_as(operands[0])

    def attend(self, side: str, operands: list[Tensor], dropout: float) -> Tensor:
        """The context by a side."""
        if side == "pytorch":
            return self.of_pytorch(operands, dropout)
        return self.of_limbeck(operands, dropout)


def with_gradients(batch: Batch, side: str, operands: list[Tensor], dropout: float = 0.0) -> list[Tensor]:
    """A side's context, and the gradients of its sum weighted by fixed numbers."""
    context = batch.attend(side, operands, dropout)
    weights = torch.randn(context.shape, generator=torch.Generator().manual_seed(2)).to(context.dtype)
    return [context, *torch.autograd.grad(context, operands, weights * batch.mask[:, :, None, None])]


def core_seconds(batch: Batch, side: str, dropout: float, backward: bool) -> float:
    """Core seconds of one side's attention."""
    start = time.process_time()
    if backward:
        with_gradients(batch, side, batch.operands, dropout)
    else:
        with torch.no_grad():
            batch.attend(side, batch.operands, dropout)
    return time.process_time() - start


def measure(name: str) -> dict[str, Any]:
    """Measure one batch, with and without dropout."""
    batch = Batch(*BATCHES[name])
    row: dict[str, Any] = {"batch": name, "tokens": len(batch.places)}
    for dropout in (0.0, 0.1):
        for backward in (False, True):
            sides = {side: partial(core_seconds, batch, side, dropout, backward) for side in SIDES}
            seconds = take_turns(sides, ROUNDS)
            passes = "forward and backward" if backward else "forward"
            row[f"{passes}, dropout {dropout}"] = {
                "pytorch_ms": milliseconds(seconds["pytorch"]),
                "limbeck_ms": milliseconds(seconds["limbeck"]),
                **ratio_of(seconds["pytorch"], seconds["limbeck"]),
            }

    # Errors of the context and of the three gradients, beside PyTorch's.
    exact = with_gradients(batch, "pytorch", [x.detach().double().requires_grad_() for x in batch.operands])
    errors: dict[str, list[float]] = {}
    for side in SIDES:
        results = with_gradients(batch, side, batch.operands)
        errors[side] = [float((x.double() - y).detach().norm()) for x, y in zip(results, exact, strict=True)]
    row["error_of_pytorchs"] = [round(a / b, 3) for a, b in zip(errors["limbeck"], errors["pytorch"], strict=True)]
    return row


def main() -> None:
    """Measure all batches and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    rows = [measure(name) for name in BATCHES]
    write_rows(arguments.output, rows)
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
