"""Measures limbeck on a GPU, part by part, in under nine minutes: `make gpu`, or `python -m benchmarks.gpu`.

It runs from the source tree by the packages that are there; --wheels names a folder with wheels of those that are not.
Every part has a process and a time of its own, and imports while the one before measures. What fails, or finds no time,
is said, and stops nothing else. The file of the device below `benchmarks/results/gpu` is written anew after each part.
--dry runs the same code at toy sizes on the CPU, into `build/gpu`; --parts measures some parts again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import PARTS, Part, Row, run_part
from benchmarks.gpu.tables import render
from benchmarks.gpu.wheels import install_missing

ROOT = Path(__file__).parents[2]
RESULTS, DRY_RESULTS = ROOT / "benchmarks" / "results" / "gpu", ROOT / "build" / "gpu"
LEAST = 10.0
"""Seconds below which no part is begun."""
LEFT_OUT: Row = {"status": "left out", "seconds": 0, "problem": "no time was left", "rows": []}


@dataclass(frozen=True)
class Started:
    """A part's process, which imports what it needs and then waits for its time."""

    part: Part
    process: subprocess.Popen[str]
    rows: Path
    log: Path


def start_part(part: Part, dry: bool, folder: Path, environment: dict[str, str]) -> Started:
    """Start a part's process: its imports take as long as some measurements, and run beside the part before."""
    rows, log = folder / f"{part.name}.jsonl", folder / f"{part.name}.log"
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part.name, "--rows", str(rows)]
    command += ["--dry"] if dry else []
    rows.touch()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return Started(part, process, rows, log)


def stop(started: Started) -> None:
    """End a part's process, and what it has started, if it still runs."""
    if started.process.poll() is None:
        os.killpg(started.process.pid, signal.SIGKILL)
        started.process.communicate()


def measure_part(started: Started, seconds: float) -> Row:
    """Let a part measure, and end it when its time is up.

    Returns:
        The part's name, status, seconds, problem and rows.
    """
    began, process = time.monotonic(), started.process
    try:
        process.communicate(f"{began + seconds}\n", timeout=seconds)
        status = "failed" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        status = "out of time"
        stop(started)
    rows = [json.loads(line) for line in started.rows.read_text(encoding="utf-8").splitlines()]
    problem = rows.pop()["problem"] if status == "failed" and rows and set(rows[-1]) == {"problem"} else None
    if status != "done":
        sys.stderr.write(started.log.read_text(encoding="utf-8", errors="replace")[-4000:])
    if status == "failed":
        problem = problem or f"the process ended with {process.returncode}"
    took = round(time.monotonic() - began, 1)
    return {"part": started.part.name, "status": status, "seconds": took, "problem": problem, "rows": rows}


def measure_all(arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> int:
    """Run the parts within the time of all; returns 1 if there is no device to measure."""
    deadline = time.monotonic() + 60 * arguments.minutes
    found: dict[str, Any] = {"dry": arguments.dry, "minutes": arguments.minutes, "parts": []}
    chosen = [part for part in PARTS if part.name in ("device", *arguments.parts) or not arguments.parts]
    measured: dict[str, Row] = {}
    path = None
    with ExitStack() as begun:

        def start(part: Part) -> Started:
            started = start_part(part, arguments.dry, folder, environment)
            begun.callback(stop, started)
            return started

        ahead = start(chosen[0])
        for part, following in zip(chosen, [*chosen[1:], None], strict=True):
            left, started = deadline - time.monotonic(), ahead
            if following is not None:
                ahead = start(following)
            if left < LEAST:
                done = {"part": part.name, **LEFT_OUT}
            else:
                done = measure_part(started, left if arguments.dry else min(part.seconds, left))
            print(f"{part.name}: {done['status']} in {done['seconds']} s {done['problem'] or ''}".rstrip(), flush=True)
            if path is None:
                if not done["rows"]:
                    print(f"The device could not be measured: {done['problem'] or done['status']}", file=sys.stderr)
                    return 1
                machine = done["rows"][0]["machine"]
                name = re.sub(r"[^a-z0-9]+", "-", machine["device"].lower()).strip("-")
                path = (arguments.output or (DRY_RESULTS if arguments.dry else RESULTS)) / f"{name}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                if arguments.parts and path.is_file():
                    measured = {row["part"]: row for row in json.loads(path.read_text(encoding="utf-8"))["parts"]}
            if done["rows"] or part.name not in measured:
                measured[part.name] = done | {"commit": machine["commit"], "created": machine["created"]}
            found["parts"] = [measured[known.name] for known in PARTS if known.name in measured]
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\n{render(found)}\n\nWritten to {path}")
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="toy sizes on the CPU")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="wheels of packages that are not installed")
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=8.5, help="for all parts together")
    names = [part.name for part in PARTS]
    parser.add_argument("--parts", nargs="+", default=[], choices=names, help="only these; rows of others are kept")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the tables of a result file")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        return run_part(arguments.part, arguments.dry, arguments.rows)
    if arguments.table:
        print(render(json.loads(arguments.table.read_text(encoding="utf-8"))))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.wheels:
            print("installed:", ", ".join(install_missing(arguments.wheels, folder / "packages")) or "nothing")
        paths = [ROOT / "src", ROOT / "benchmarks", folder / "packages", os.environ.get("PYTHONPATH")]
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if arguments.dry else {}
        environment = {**os.environ, **offline, **hidden, "PYTHONPATH": os.pathsep.join(str(x) for x in paths if x)}
        return measure_all(arguments, folder, environment)


if __name__ == "__main__":
    sys.exit(main())
