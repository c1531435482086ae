"""The command: makes the inputs, tries them, counts verdicts by kind, and ends with 1 if there is a fault."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from benchmarks.chaos_inputs.kinds import KINDS, spread
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import FAULTS, GOOD, Verdict
from benchmarks.chaos_inputs.worker import MEMORY_LIMIT, try_all

from limbeck.version import __version__


def count(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """A row for each kind: how many inputs, and how many of each verdict."""
    rows = []
    for kind in KINDS:
        found = Counter(verdict.verdict for verdict in verdicts if verdict.kind == kind)
        if found:
            rows.append({"kind": kind, "inputs": found.total(), **{name: found[name] for name in (*GOOD, *FAULTS)}})
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows, and their sums, as a table."""
    heads = list(rows[0])
    total = {"kind": "all", **{head: sum(row[head] for row in rows) for head in heads[1:]}}
    for row in (dict(zip(heads, heads, strict=True)), *rows, total):
        print("  ".join(f"{row[head]!s:<{max(len(head), 22 if head == 'kind' else 0)}}" for head in heads))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos_inputs", description=__doc__)
    parser.add_argument("--inputs", type=int, default=3300, help="How many, about; every kind has its share.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="Only these.")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "NUMBER"), help="One input again.")
    parser.add_argument("--output", type=Path, help="Where to write the result.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    inputs = [entry for entry in spread(arguments.inputs) if arguments.kinds is None or entry[0] in arguments.kinds]
    if arguments.only:
        inputs = [(arguments.only[0], int(arguments.only[1]))]
    with tempfile.TemporaryDirectory() as work:
        os.environ["LIMBECK_CACHE"] = str(Path(work, "cache"))
        scene = Scene(Path(work, "scene"))
        scene.root.mkdir()
        scene.prepare()
        trials = Path(work, "trials")
        trials.mkdir()
        verdicts = []
        for verdict in try_all(arguments.seed, inputs, scene, trials):
            verdicts.append(verdict)
            if verdict.verdict in FAULTS or arguments.only:
                print(
                    f"{verdict.verdict}: {verdict.kind} {verdict.number} ({verdict.maker}: {verdict.what})", flush=True
                )
                print(f"    {verdict.line[:600]!r}", flush=True)
    rows = count(verdicts)
    show(rows)
    faults = [verdict for verdict in verdicts if verdict.verdict in FAULTS]
    result = {
        "what": "bad inputs, and what became of them",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limbeck": __version__,
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "seed": arguments.seed,
        "inputs": len(verdicts),
        "different_inputs": len({(verdict.kind, verdict.what) for verdict in verdicts}),
        "faults": len(faults),
        "seconds": round(time.monotonic() - began, 1),
        "slowest_seconds": round(max(verdict.seconds for verdict in verdicts), 2),
        "memory_limit_bytes": MEMORY_LIMIT,
        "rows": rows,
        "makers": {f"{kind}: {maker}": number for (kind, maker), number in Counter(
            (verdict.kind, verdict.maker) for verdict in verdicts).items()},
    }  # fmt: skip
    print(f"{len(verdicts)} inputs, {len(faults)} faults, {result['seconds']} s")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
