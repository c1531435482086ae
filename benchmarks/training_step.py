"""Measures a whole MiniLMv2 training step on a CPU against peers: time, peak memory and the value of the loss.

A step is the forward of teacher and student, the loss, backward, clipping, fused AdamW and clearing the gradients: the
same for all sides but for the loss, see `peer_steps.py`. A BERT-base teacher (12x768) teaches 6x384 with
48 relation heads and Q-Q, K-K and V-V, from random weights that are the same on every side, on the same batch of ragged
lengths within [L/2, L]. The student has BERT's dropout, as in training.

    pip install --no-deps --target PEER bertdistiller==0.1.2 loguru evaluate
    python benchmarks/training_step.py --bertdistiller PEER --output benchmarks/results/training_step.json

`--no-deps`, since that release asks for transformers below 5; it runs on 5.23 all the same. A side that cannot run has
a row that says why.

Every side has a process of its own, started once, which waits while others are measured. Each round gives every side
its turn of a few steps, in the opposite order every other round; ratios are those of one round, and their median
counts. Peak memory is the highest resident size over all steps minus that before the models were built, which leaves
out what the imports take; the absolute one stands beside it. Before anything is timed, the losses of all float32 sides
have to agree, without dropout, by the mean over all rows of the batch and by the mean of each example's mean: both are
made of each side's own losses of single examples.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# As limbeck's command line has it, and for all sides alike: spinning threads take the cores from whose turn it is.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch

from harness import made_with, resident_megabytes
from peer_steps import PEERS, Batch, Setting, Side, make_batch, make_side

LENGTHS = {128: 8, 512: 4}
TOLERANCE = 1e-4
LEARNING_RATE, WEIGHT_DECAY, MAX_NORM = 6e-4, 0.01, 1.0


@torch.no_grad()
def losses_of(side: Side, batch: Batch) -> dict[str, float]:
    """The loss without dropout: by the side's own definition, over all rows, and as the mean of examples' means."""
    side.student.eval()
    rows = [{key: value[i : i + 1] for key, value in batch.items()} for i in range(len(batch["input_ids"]))]
    each = torch.tensor([float(side.compute(row)) for row in rows], dtype=torch.float64)
    lengths = batch["attention_mask"].sum(1)
    found = {
        "own": float(side.compute(batch)),
        "mean_of_rows": float((each * lengths).sum() / lengths.sum()),
        "mean_of_examples": float(each.mean()),
    }
    side.student.train()
    return found


class Stepper:
    """Trains one side on one batch."""

    def __init__(self, side: Side, batch: Batch) -> None:
        self.side, self.batch = side, batch
        self.parameters = [p for p in side.student.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
        side.student.train()

    def step(self) -> float:
        """One step; its seconds."""
        start = time.perf_counter()
        self.side.compute(self.batch).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start


def child(arguments: argparse.Namespace) -> None:
    """One side: an answer for each line of the input, which holds a number of steps, and a last one at its end."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What packages print is no answer.
    name, dtype, values = json.loads(arguments.child)
    setting = Setting(**values)
    try:
        tiny = setting.tiny()
        Stepper(make_side(name, dtype, tiny, arguments.bertdistiller), make_batch(tiny)).step()
        before = resident_megabytes()
        side, batch = make_side(name, dtype, setting, arguments.bertdistiller), make_batch(setting)
    except Exception as error:
        if name not in PEERS:
            raise
        print(json.dumps({"obstacle": f"{type(error).__name__}: {error}"}), file=answers)
        return
    print(json.dumps({"version": side.version, "loss": losses_of(side, batch)}), file=answers)
    stepper = Stepper(side, batch)
    for line in sys.stdin:
        print(json.dumps([stepper.step() for _ in range(int(line))]), file=answers)
    peak = resident_megabytes(highest=True)
    print(json.dumps({"peak_mb": round(peak - before), "peak_absolute_mb": round(peak)}), file=answers)


class Worker:
    """The process of one side.

    Args:
        name: The side.
        dtype: Its number format.
        setting: What all sides have in common.
        arguments: Of the command line.
    """

    def __init__(self, name: str, dtype: str, setting: Setting, arguments: argparse.Namespace) -> None:
        self.name, self.dtype = name, dtype
        command = [sys.executable, __file__, "--child", json.dumps([name, dtype, setting.__dict__])]
        command += ["--threads", str(arguments.threads)]
        if arguments.bertdistiller:
            command += ["--bertdistiller", arguments.bertdistiller]
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)
        self.facts = {"side": name, "dtype": dtype, **self._answer()}
        self.seconds: list[list[float]] = []

    @property
    def runs(self) -> bool:
        return "obstacle" not in self.facts

    def _answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} {self.dtype} ended with status {self.process.wait()}")
        return json.loads(line)

    def run(self, steps: int) -> list[float]:
        """Let it run some steps; the seconds of each."""
        print(steps, file=self.process.stdin, flush=True)
        return self._answer()

    def finish(self) -> None:
        """End it, with its peak memory as the last of its facts."""
        self.process.stdin.close()
        if self.runs:
            self.facts |= self._answer()
        self.process.wait()


def spread(found: Iterable[float], digits: int = 3) -> dict[str, float]:
    """Median, and the tenth and ninetieth percentile."""
    ordered = sorted(found)
    tenths = statistics.quantiles(ordered, n=10, method="inclusive") if len(ordered) > 1 else ordered * 9
    figures = {"median": statistics.median(ordered), "p10": tenths[0], "p90": tenths[-1]}
    return {name: round(value, digits) for name, value in figures.items()}


def check_losses(workers: list[Worker]) -> None:
    """Add how far each loss is from limbeck's in float32; stop where two float32 sides do not agree."""
    reference = next(x for x in workers if (x.name, x.dtype) == ("limbeck", "float32")).facts["loss"]
    for worker in workers:
        if not worker.runs:
            continue
        own = worker.facts["loss"]
        kinds = ("mean_of_rows", "mean_of_examples")
        apart = {kind: own[kind] / reference[kind] - 1 for kind in kinds}
        worker.facts["own_loss_is"] = min(kinds, key=lambda kind, own=own: abs(own[kind] - own["own"]))
        worker.facts["loss_difference"] = {kind: float(f"{value:.2g}") for kind, value in apart.items()}
        if worker.dtype == "float32" and max(map(abs, apart.values())) > TOLERANCE:
            raise SystemExit(f"{worker.name}: loss {own}, but limbeck {reference}; nothing is timed")


def measure(setting: Setting, sides: list[tuple[str, str]], arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of one length; the first of `sides` is what all are compared with."""
    batch = make_batch(setting)
    workers: list[Worker] = []
    try:
        for name, dtype in sides:
            workers.append(Worker(name, dtype, setting, arguments))
        check_losses(workers)
        running = [worker for worker in workers if worker.runs]
        for turn in range(arguments.rounds + 1):
            for worker in running if turn % 2 else running[::-1]:
                seconds = worker.run(arguments.steps if turn else 1)
                if turn:  # The first round warms up.
                    worker.seconds.append(seconds)
        for worker in workers:
            worker.finish()
    finally:
        for worker in workers:
            worker.process.kill()
    lengths = batch["attention_mask"].sum(1).tolist()
    return {
        "length": setting.length,
        "batch": setting.batch,
        "padded_length": batch["input_ids"].shape[1],
        "lengths": lengths,
        "valid_tokens": sum(lengths),
        **compare(workers, sum(lengths)),
    }


def ratio(worker: Worker, base: Worker) -> dict[str, float]:
    """How many times as long as `base` a side takes for a step, round by round."""
    turns = zip(worker.seconds, base.seconds, strict=True)
    return spread((statistics.median(own) / statistics.median(other) for own, other in turns), 2)


def compare(workers: list[Worker], tokens: int) -> dict[str, Any]:
    """Each side's figures and ratios to the first, and the fastest peer of each number format.

    A ratio says how many times as much time, or memory, as the first one a side takes; that of the same dtype compares
    with limbeck in the peer's own.
    """
    first = workers[0]
    running = [worker for worker in workers if worker.runs]
    for worker in running:
        facts, seconds = worker.facts, [second for turn in worker.seconds for second in turn]
        facts["seconds"] = spread(seconds)
        facts["tokens_per_second"] = round(tokens / statistics.median(seconds), 1)
        facts["time_ratio"] = ratio(worker, first)
        facts["memory_ratio"] = round(facts["peak_mb"] / max(1, first.facts["peak_mb"]), 2)
    fastest = {}
    for own in (worker for worker in running if worker.name == "limbeck"):
        peers = [worker for worker in running if worker.dtype == own.dtype and worker.name in PEERS]
        if peers:
            best = min(peers, key=lambda worker: worker.facts["time_ratio"]["median"])
            fastest[own.dtype] = {
                **{key: best.facts[key] for key in ("side", "time_ratio", "memory_ratio")},
                "time_ratio_same_dtype": ratio(best, own),
                "memory_ratio_same_dtype": round(best.facts["peak_mb"] / max(1, own.facts["peak_mb"]), 2),
                "least_memory_ratio_of_a_peer": min(worker.facts["memory_ratio"] for worker in peers),
            }
    return {"against": f"{first.name} {first.dtype}", "fastest_peer": fastest, "sides": [x.facts for x in workers]}


def describe(arguments: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions, commit, and what the rows have in common."""
    from limbeck.core.devices import bf16_is_fast

    names = ("teacher", "student", "heads", "relation_heads", "vocabulary", "dropout", "seed", "rounds", "steps")
    machine = made_with(setting={name: getattr(arguments, name) for name in names})
    machine["hardware"] |= {"threads": arguments.threads, "bf16_is_fast": bf16_is_fast()}
    return machine


def choose_sides(peers: list[str], bf16: bool) -> list[tuple[str, str]]:
    """limbeck as a run of it would be here, and in float32; the peers in each format."""
    formats = ["bfloat16", "float32"] if bf16 else ["float32"]
    own = [("limbeck", dtype) for dtype in formats]
    return own + [(peer, dtype) for dtype in formats[::-1] for peer in peers]


def shape(text: str) -> tuple[int, int]:
    layers, width = text.split("x")
    return int(layers), int(width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bertdistiller", metavar="FOLDER", help="where it was installed to, if not here")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--batch", type=int, help=f"examples of a batch; default by length: {LENGTHS}, else 8")
    parser.add_argument("--teacher", type=shape, default=(12, 768), metavar="LAYERSxWIDTH")
    parser.add_argument("--student", type=shape, default=(6, 384), metavar="LAYERSxWIDTH")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--relation-heads", type=int, default=48)
    parser.add_argument("--vocabulary", type=int, default=30_522)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="steps of a side in a round")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--float32-only", action="store_true", help="no bfloat16, which else goes where it is fast")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.child:
        child(arguments)
        return
    machine = describe(arguments)
    print(json.dumps(machine))
    bf16 = machine["hardware"]["bf16_is_fast"] and not arguments.float32_only
    sides = choose_sides(arguments.peers, bf16)
    common = ("teacher", "student", "heads", "relation_heads", "vocabulary", "dropout", "seed")
    rows = []
    for length in arguments.lengths:
        batch = arguments.batch or LENGTHS.get(length, 8)
        setting = Setting(**{name: getattr(arguments, name) for name in common}, batch=batch, length=length)
        rows.append(measure(setting, sides, arguments))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
