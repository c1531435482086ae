"""Times a teacher's linear maps in bfloat16 on a CPU with a matrix unit: limbeck's kernel beside oneDNN's.

    OMP_NUM_THREADS=2 python benchmarks/tile_linear.py --output benchmarks/results/amx/tile_linear.json

Maps are those of a layer of BERT-base and of one of width 384, on 825 tokens (8 texts of up to 128) and on 1,461 (4 of
up to 512); weights are laid out before. Both take turns, several calls each; times are by the clock, and ratios those
of one round, by their median. Errors are norms of the difference from float64, relative to oneDNN's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from limbeck.core.machine import git_commit, hardware, versions
from limbeck.kernels import tile_linear
from limbeck.models.packed_linear import PackedLinear

MAPS = [(768, 768), (768, 3072), (3072, 768), (384, 384), (384, 1536), (1536, 384)]
"""Inputs and outputs."""
TOKENS = [825, 1461]
ROUNDS, CALLS = 15, 10


def measure(inputs: int, outputs: int, tokens: int) -> dict[str, Any]:
    """Measure one map."""
    torch.manual_seed(0)
    linear = nn.Linear(inputs, outputs, dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn(1, tokens, inputs, dtype=torch.bfloat16)
    with mock.patch.object(tile_linear, "can_map", lambda _: False):
        sides = {"onednn": PackedLinear(linear)}
    sides["limbeck"] = PackedLinear(linear)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(ROUNDS + 1):
        for side, packed in sides.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                packed(x)
            times[side].append((time.perf_counter() - began) / CALLS)
    ratios = [a / b for a, b in zip(times["onednn"][1:], times["limbeck"][1:], strict=True)]
    exact = nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
    errors = {side: float((packed(x).double() - exact).norm()) for side, packed in sides.items()}
    return {
        "map": [inputs, outputs],
        "tokens": tokens,
        **{f"{side}_ms": round(1e3 * statistics.median(taken[1:]), 3) for side, taken in times.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratio_lowest": round(min(ratios), 2),
        "ratio_highest": round(max(ratios), 2),
        "error_of_onednns": round(errors["limbeck"] / errors["onednn"], 3),
    }


def main() -> None:
    """Measure all maps and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    asked = parser.parse_args()
    if isinstance(obstacle := tile_linear.kernel(), str):
        sys.exit(f"Nothing to compare: {obstacle}.")
    rows = []
    for tokens in TOKENS:
        for inputs, outputs in MAPS:
            rows.append(measure(inputs, outputs, tokens))
            print(json.dumps(rows[-1]), flush=True)
    made_with = {"commit": git_commit(), "hardware": hardware(), "versions": versions()}
    asked.output.write_text(json.dumps({"rows": rows, **made_with}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
