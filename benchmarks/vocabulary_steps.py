"""Measures DistilBERT's training step over a vocabulary with and without the logits of all tokens, on a CPU.

Paths: `logits` makes them; `from_hidden` is a run's own, which makes a chunk at a time; `without` leaves the two terms
over the vocabulary out, so that what the others hold beyond it is the loss's own. Times are of whole steps of the first
two, in turns in one process. Peaks have a process each: the highest resident size of two steps above the one before
them, when both models' weights are there; gradients, AdamW's moments and activations count. Where logits of all tokens
do not fit into the memory that is free, that path is measured at fewer, and the other at both. What the output has
already is kept, so that a measurement may be made in parts.

    python benchmarks/vocabulary_steps.py --output benchmarks/results/vocabulary_steps.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from limbeck.benchmark.rows import describe_machine
from limbeck.benchmark.step import Step
from limbeck.benchmark.step_setup import StepRequest, set_up_step
from limbeck.core.memory import release_freed_memory
from limbeck.core.timing import summarise
from limbeck.models import taps

PATHS = ("logits", "from_hidden", "without")
LENGTH = 128
# Bytes that the step with logits takes for each of them, a little more than were seen; of the free memory, its share.
BYTES_OF_A_LOGIT, FREE_SHARE = 40, 0.6
# On a busy machine fewer rounds are made than asked for, beside the first, which is not counted.
LEAST_ROUNDS, LONGEST_SECONDS = 3, 300


@contextmanager
def path(name: str) -> Iterator[None]:
    """Take steps by a path."""
    before = taps.logits_at_once
    if name == "logits":
        taps.logits_at_once = lambda _: 1 << 62
    try:
        yield
    finally:
        taps.logits_at_once = before


def make_step(name: str, words: int, tokens: int, arguments: argparse.Namespace) -> Step:
    shapes = {"teacher": arguments.teacher, "student": arguments.student, "vocabulary": words}
    sizes = {"batch": tokens // LENGTH, "length": LENGTH, "dtype": arguments.dtype}
    request = StepRequest(method="distilbert", device="cpu", **shapes, **sizes)
    setup = set_up_step(request)
    if name == "without":
        kept = tuple(term for term in setup.terms if not term.reads_logits)
        setup = type(setup)(**{**vars(setup), "terms": kept})
    return Step(setup)


def resident(field: str) -> float:
    """Megabytes of this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def peak(name: str, words: int, tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """In a process that does nothing else: the peak of two steps, the second with the moments."""
    with path(name):
        make_step(name, 64, LENGTH, arguments).run()  # Loads what is loaded once.
        step = make_step(name, words, tokens, arguments)
        release_freed_memory()
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins here.
        before = resident("VmRSS:")
        step.run()
        step.run()
    facts = {"dtype": str(step.student_dtype).removeprefix("torch."), "resident_mb": round(before)}
    return {**facts, "peak_mb": round(resident("VmHWM:") - before)}


def times(words: int, tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of steps by both paths in turns, and the ratio of each turn."""
    step, found = make_step("from_hidden", words, tokens, arguments), {name: [] for name in PATHS[:2]}
    began = time.perf_counter()
    for turn in range(arguments.rounds + 1):
        if turn > LEAST_ROUNDS and time.perf_counter() - began > LONGEST_SECONDS:
            break
        for name in PATHS[:2] if turn % 2 else PATHS[1::-1]:
            with path(name):
                start = time.perf_counter()
                step.run()
                found[name].append(time.perf_counter() - start)
    kept = {name: seconds[1:] for name, seconds in found.items()}
    ratios = sorted(own / plain for plain, own in zip(*kept.values(), strict=True))
    spread = {"median": ratios[len(ratios) // 2], "least": ratios[0], "greatest": ratios[-1]}
    milliseconds = {f"{name}_ms": round(summarise(seconds)["median_ms"]) for name, seconds in kept.items()}
    return {**milliseconds, "time_ratio": {name: round(x, 3) for name, x in spread.items()}, "rounds": len(ratios)}


def in_child(kind: str, name: str, words: int, tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", json.dumps([kind, name, words, tokens])]
    for option in ("teacher", "student", "dtype", "threads", "rounds"):
        command += [f"--{option}", str(getattr(arguments, option))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(words: int, tokens: int, with_logits: bool, arguments: argparse.Namespace) -> dict[str, Any]:
    """A row: peaks of the paths that were asked for and fit, and times."""
    row: dict[str, Any] = {"words": words, "tokens": tokens}
    for name in arguments.paths:
        if name != "logits" or with_logits:
            facts = in_child("peak", name, words, tokens, arguments)
            row |= {f"{name}_peak_mb": facts["peak_mb"], f"{name}_resident_mb": facts["resident_mb"]}
            row["dtype"] = facts["dtype"]
    if not with_logits:
        row["logits"] = f"not measured: needs about {words * tokens * BYTES_OF_A_LOGIT / 1e9:.0f} GB"
    elif arguments.rounds:
        row |= in_child("times", "", words, tokens, arguments)
    return row | {"load": round(os.getloadavg()[0], 2)}


def with_ratios(row: dict[str, Any]) -> dict[str, Any]:
    """Add what the loss alone holds, and its ratio and that of the whole step, where all paths have a peak."""
    if not all(f"{name}_peak_mb" in row for name in PATHS):
        return row
    logits, own, without = (row[f"{name}_peak_mb"] for name in PATHS)
    return row | {
        "step_ratio": round(own / logits, 4),
        "logits_loss_mb": logits - without,
        "from_hidden_loss_mb": own - without,
        "loss_ratio": round((own - without) / (logits - without), 4),
    }


def tokens_that_fit(words: int, tokens: int) -> int:
    """Tokens, halved until their logits fit into the memory that is free."""
    while tokens > LENGTH and words * tokens * BYTES_OF_A_LOGIT > FREE_SHARE * psutil.virtual_memory().available:
        tokens //= 2
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[30_522, 250_002])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--teacher", default="12x768")
    parser.add_argument("--student", default="6x768")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7, help="0 leaves times out")
    parser.add_argument("--paths", nargs="*", choices=PATHS, default=list(PATHS), help="whose peaks are measured")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.child:
        kind, name, words, tokens = json.loads(arguments.child)
        found = peak(name, words, tokens, arguments) if kind == "peak" else times(words, tokens, arguments)
        print(json.dumps(found))
        return
    setting = {name: getattr(arguments, name) for name in ("teacher", "student", "dtype", "threads")}
    machine = {**describe_machine("cpu"), "setting": setting | {"method": "distilbert", "length": LENGTH}}
    print(json.dumps(machine))
    for words in arguments.words:
        fit = tokens_that_fit(words, arguments.tokens)
        for tokens in sorted({fit, arguments.tokens}):
            row = measure(words, tokens, tokens == fit, arguments)
            print(json.dumps(with_ratios(row)), flush=True)
            if arguments.output:
                write(arguments.output, machine, row)


def write(output: Path, machine: dict[str, Any], row: dict[str, Any]) -> None:
    """Add a row to a file, or its measurements to the row of its size."""
    before = json.loads(output.read_text())["rows"] if output.is_file() else []
    rows = {(one["words"], one["tokens"]): one for one in before}
    size = row["words"], row["tokens"]
    rows[size] = with_ratios(rows.get(size, {}) | row)
    text = json.dumps({"machine": machine, "rows": [rows[key] for key in sorted(rows)]}, indent=2, ensure_ascii=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text + "\n")


if __name__ == "__main__":
    main()
