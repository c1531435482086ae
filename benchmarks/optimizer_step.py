"""AdamW with moments in bfloat16 beside PyTorch's fused one: time and memory of an update, and what students come to.

    OMP_NUM_THREADS=1 python benchmarks/optimizer_step.py --output benchmarks/results/optimizer_step.json
    OMP_NUM_THREADS=1 python benchmarks/optimizer_step.py --data DATA --texts DATA/wikipedia-en --work DIR --output FILE

The first command takes updates of a BERT of 6x384 in turns: medians of the processor's and of the clock's time, ratios
to PyTorch's of one round, and the bytes of the state. The side `pytorch` is limbeck's without a compiler.

The second trains the quickstart's student (see `embedding_ablation.py`) with float32 moments and with bfloat16 ones,
embeddings too, and scores it: the loss of its last ten steps, that on held-out text, and Spearman of cosines with human
relatedness on SICK's training split. A row is added as soon as it is measured; a stopped command goes on where it was.
Each command keeps what the other has measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch
from transformers import AutoModel, BertConfig

from embedding_ablation import CHANGES, SEEDS, find, read_table, recipe_of, spearman, training
from limbeck.core.files import atomic_text
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.memory import keep_freed_memory
from limbeck.kernels import rounded_adamw
from limbeck.kernels.rounded_adamw import RoundedAdamW

ROUNDS = 21
"""Of updates."""
CHANGE = "embeddings trained"
"""To the quickstart's student: else the rows of words, whose gradients are seldom other than 0, would be left out."""


def weights() -> list[torch.nn.Parameter]:
    """Weights of a BERT of 6x384, with gradients."""
    with torch.device("meta"):
        config = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
        shapes = [weight.shape for weight in AutoModel.from_config(config).parameters()]
    generator = torch.Generator().manual_seed(0)
    made = [torch.nn.Parameter(torch.randn(shape, generator=generator) * 0.02) for shape in shapes]
    for weight in made:
        weight.grad = torch.randn(weight.shape, generator=generator) * 1e-3
    return made


def without_compiler(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step that finds no kernel."""

    def run() -> None:
        found, rounded_adamw.kernel = rounded_adamw.kernel, lambda: "left out"
        try:
            step()
        finally:
            rounded_adamw.kernel = found

    return run


def now() -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    return time.process_time(), time.perf_counter()


def measure_update() -> dict[str, Any]:
    """Take updates of all sides in turns."""
    keep_freed_memory()
    optimizers = {
        "float32": torch.optim.AdamW(weights(), fused=True),
        "bfloat16": RoundedAdamW(weights()),
        "bfloat16, pytorch": RoundedAdamW(weights()),
    }
    steps = {side: optimizer.step for side, optimizer in optimizers.items()}
    steps["bfloat16, pytorch"] = without_compiler(steps["bfloat16, pytorch"])
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in steps}
    for turn in range(ROUNDS + 1):
        for side in steps if turn % 2 else reversed(steps):
            began = now()
            steps[side]()
            taken = [1e3 * (end - then) for end, then in zip(now(), began, strict=True)]
            if turn:  # The first makes the state.
                times[side].append((taken[0], taken[1]))
    rows = []
    for side, optimizer in optimizers.items():
        trained = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])
        state = sum(x.nbytes for own in optimizer.state.values() for x in own.values())
        row: dict[str, Any] = {"moments": side, "weights": trained, "state_mb": round(state / 1e6, 1)}
        for place, kind in enumerate(("processor", "clock")):
            ratios = sorted(own[place] / base[place] for own, base in zip(times[side], times["float32"], strict=True))
            tenth = len(ratios) // 10
            row[f"{kind}_ms"] = round(statistics.median(own[place] for own in times[side]), 2)
            row[f"{kind}_ratio"] = round(statistics.median(ratios), 2)
            row[f"{kind}_ratio_p10_p90"] = [round(ratios[tenth], 2), round(ratios[-1 - tenth], 2)]
        rows.append(row)
        print(json.dumps(row), flush=True)
    return {"threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 2), "rows": rows, **made_with()}


def made_with() -> dict[str, Any]:
    """Commit, machine and versions."""
    return {"commit": git_commit(), "hardware": hardware(), "versions": versions()}


def measure_run(text: str, seed: int, steps: int, moments: str, data: Path, output: Path) -> dict[str, Any]:
    """Train and score a student."""
    from sentence_transformers import SentenceTransformer

    import limbeck
    from limbeck.recipe.load import apply_overrides

    recipe = recipe_of(CHANGES[CHANGE], text, seed, steps, output)
    asked = training(optim_args="moments=bfloat16") if moments == "bfloat16" else []
    made = limbeck.distill(apply_overrides(recipe, asked), overwrite=True)
    stage = made.record["stages"][-1]
    rows = read_table(find(data, "SICK_train.txt"))
    model = SentenceTransformer(str(made.student), device="cpu")
    first, second = (
        model.encode([row[side] for row in rows], batch_size=64, convert_to_tensor=True, normalize_embeddings=True)
        for side in ("sentence_A", "sentence_B")
    )
    shutil.rmtree(output)
    return {
        "text": Path(text).name, "change": CHANGE, "steps": steps, "seed": seed, "moments": moments,
        "precision": stage["precision"], "loss": stage["final_loss"], "held_out": stage["held_out"]["loss"],
        "sick": spearman((first * second).sum(-1), [float(row["relatedness_score"]) for row in rows]),
    }  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with SICK; trains students instead of timing updates")
    parser.add_argument("--texts", default="installed-docs", help="source of text to train on")
    parser.add_argument("--work", type=Path, default=Path("runs/optimizer"), help="folder for students")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    asked = parser.parse_args()
    found: dict[str, Any] = {"update": None, "runs": []}
    if asked.output.is_file():
        found = json.loads(asked.output.read_text(encoding="utf-8"))

    def keep() -> None:
        atomic_text(asked.output, json.dumps(found, indent=1) + "\n")

    if asked.data is None:
        found["update"] = measure_update()
        keep()
        return
    names = ("text", "steps", "seed", "moments")
    done = [tuple(row[name] for name in names) for row in found["runs"]]
    for seed in SEEDS:
        for moments in ("float32", "bfloat16"):
            if (Path(asked.texts).name, asked.steps, seed, moments) in done:
                continue
            row = measure_run(asked.texts, seed, asked.steps, moments, asked.data, asked.work / f"{seed}-{moments}")
            print(json.dumps(row), flush=True)
            found["runs"].append(row | made_with())
            keep()


if __name__ == "__main__":
    main()
