"""Times whole MiniLMv2 steps on a CPU with and without each kernel written by hand: what decides whether it stays.

    OMP_NUM_THREADS=1 python benchmarks/kernel_steps.py --output benchmarks/results/kernel_steps.json

Without a kernel the step runs by what PyTorch has for it: its dropout, fast attention sample by sample, and relations
as logits of all heads. Steps of both take turns on the same batch; a step is both forward passes, the loss, backward,
clipping and fused AdamW. Times of one thread are core seconds, which other work on the machine disturbs least, and of
several by the clock; ratios are those of neighbours. Students have BERT's dropout; everything is in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from harness import milliseconds, ratio_of, take_turns, write_rows
from limbeck.kernels.cpu import relation
from limbeck.kernels.dispatch import RELATION_KL
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.models import tap_points
from peer_steps import Setting, Side, make_batch, make_side

COMMON = {"heads": 12, "relation_heads": 48, "vocabulary": 30_522, "dropout": 0.1, "seed": 0}
SETTINGS = {
    "12x768 to 6x384, 8 x 128": Setting(teacher=(12, 768), student=(6, 384), batch=8, length=128, **COMMON),
    "6x384 to 3x384, 32 x 64": Setting(teacher=(6, 384), student=(3, 384), batch=32, length=64, **COMMON),
}
ROUNDS = 12


def attend_by_sample(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], *, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attention over packed samples as PyTorch has it."""
    contexts = []
    first = 0
    for length in lengths:
        tokens = slice(first, first + length)
        sample = (query[None, :, tokens], key[None, :, tokens], value[None, :, tokens])
        context = F.scaled_dot_product_attention(*sample, dropout_p=dropout, scale=scale)
        contexts.append(context[0].transpose(0, 1))
        first += length
    return torch.cat(contexts)


@contextmanager
def without_packed_attention() -> Iterator[None]:
    with mock.patch.object(tap_points, "packed_attention", attend_by_sample):
        yield


@contextmanager
def without_relation_kernels() -> Iterator[None]:
    plain = dict.fromkeys(RELATION_KL.backends, relation_kl_reference)
    with mock.patch.dict(RELATION_KL.backends, plain):
        yield


@contextmanager
def without_compiled_relation() -> Iterator[None]:
    with mock.patch.object(relation, "kernel_or_reason", lambda: "left out"):
        yield


@contextmanager
def without_dropout() -> Iterator[None]:
    with mock.patch.object(tap_points, "fast_dropout", F.dropout):
        yield


LEFT_OUT = {
    "packed_attention": without_packed_attention,
    "relations in C and in blocks": without_relation_kernels,
    "relations in C": without_compiled_relation,
    "dropout": without_dropout,
}


class Stepper:
    """Trains one side on one batch."""

    def __init__(self, side: Side, setting: Setting) -> None:
        self.side = side
        # Threads that wait for each other use their cores all the same.
        self.clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        self.batch = make_batch(setting)
        self.parameters = [parameter for parameter in side.student.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=5e-4, weight_decay=0.01, fused=True)
        side.student.train()

    def step(self) -> float:
        """Train a step, and return its core seconds."""
        start = self.clock()
        self.side.compute(self.batch).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.clock() - start


def measure(name: str, setting: Setting, kernel: str, leave_out: Callable[[], Any]) -> dict[str, Any]:
    """Time steps with and without a kernel in turns."""
    with_kernel = Stepper(make_side("limbeck", "bfloat16", setting, None), setting)
    with leave_out():
        without = Stepper(make_side("limbeck", "bfloat16", setting, None), setting)

    def step_without() -> float:
        with leave_out():
            return without.step()

    seconds = take_turns({"with": with_kernel.step, "without": step_without}, ROUNDS)
    return {
        "step": name,
        "threads": torch.get_num_threads(),
        "kernel": kernel,
        "with_ms": milliseconds(seconds["with"], 1),
        "without_ms": milliseconds(seconds["without"], 1),
        **ratio_of(seconds["without"], seconds["with"], digits=3),
    }


def main() -> None:
    """Measure the kernels that are asked for, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", choices=LEFT_OUT, default=list(LEFT_OUT))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name, setting in SETTINGS.items():
        for kernel in arguments.kernels:
            rows.append(measure(name, setting, kernel, LEFT_OUT[kernel]))
            print(json.dumps(rows[-1]), flush=True)
    write_rows(arguments.output, rows, seed=COMMON["seed"])


if __name__ == "__main__":
    main()
