"""Kills real processes at random moments, has the same call go on, and compares the end with an undisturbed job's.

Five kinds of jobs: building a corpus with several processes; whole runs of `distill` (two stages with accumulation,
dropout, replaced tokens and learned maps; a mixed stream; masks that are drawn); evaluating and comparing; searching
layer mappings and teacher layers; storing a teacher's vectors. Models are tiny and random, text is generated, and every
process has one thread.

Each attempt is a process. It dies by SIGKILL after a random time (it alone, with all of its processes as when a
machine is lost, or one of its workers), or at a random one of its operations that change a file. The next attempt is
the same call. A round ends with the attempt that outlives its own kill, and its end is compared with that of a job that
was never killed: files, weights, logs, scores and values, bit for bit, without what a clock says. Stored vectors are
compared within 0.02, since a process that goes on computes them in other batches. After every kill the results on disk
are noted; one that is not there later, or was made again, is lost. Only kills that ended an attempt before its end
count.

After half of the kills of runs, evaluations, comparisons and searches, the folder with its cache is moved to another
place, and teacher and text are copied to another one, without their dates.

Recovery is the time from the next attempt's start to its first progress: a batch of documents that was read or
tokenised, a trained step, a finished cell or trial, a batch of vectors. Attempts are forked, so that imports are paid
once; what importing costs a new process is measured apart, and comes on top.

    python benchmarks/chaos_kills.py --kills 60 --seed 1 --output benchmarks/results/chaos_kills.json
    python benchmarks/chaos_kills.py --output benchmarks/results/chaos_kills.json --table

The exit code is 1 if anything was lost, differed or failed, or a process was left behind.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import argparse
import gc
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from kills import corpus_jobs, evaluation_jobs, search_jobs, teaching_jobs, training_jobs
from kills.job import Job
from kills.rounds import MOST_IN_A_ROUND, Case, Found, Reference, never_killed, run_round
from kills.tables import kills_table, recovery_table
from limbeck.version import __version__

#: The first job of each kind is the one that stands for the others.
KINDS: dict[str, tuple[Job, ...]] = {
    "corpus": corpus_jobs.JOBS,
    "training": training_jobs.JOBS,
    "evaluation": evaluation_jobs.JOBS,
    "search": search_jobs.JOBS,
    "teaching": teaching_jobs.JOBS,
}
BAD = ("results_lost", "differing_final_states", "processes_left", "failures")
_START = "import limbeck.api, limbeck.search.mapping"
_STARTS = 3


def kill_jobs(jobs: Sequence[Job], kills: int, dice: random.Random, work: Path) -> tuple[Found, dict[str, Reference]]:
    """Run rounds of some jobs in turn until so many kills have landed."""
    found = Found()
    cases = [Case(job, work / job.name, never_killed(job, work / job.name), dice) for job in jobs]
    rounds = 0
    while len(found.kills) < kills and not found.failures:
        most = min(kills - len(found.kills), MOST_IN_A_ROUND)
        run_round(cases[rounds % len(cases)], rounds, most, found, _tell)
        rounds += 1
    return found, {case.job.name: case.reference for case in cases}


def summarise(found: Found, references: dict[str, Reference]) -> dict[str, Any]:
    recoveries = [row["recovery_seconds"] for row in found.kills if row["recovery_seconds"] is not None]
    return {
        "kills": len(found.kills),
        "by_file_operation": sum(row["way"] == "file operation" for row in found.kills),
        "moved": sum(row.get("moved", False) for row in found.kills),
        "of_a_worker": sum(row["killed"] == "worker" for row in found.kills),
        "rounds": found.endings,
        "results_lost": len(found.lost),
        "differing_final_states": len({one.split(":")[0] for one in found.differences}),
        "processes_left": found.strays,
        "failures": len(found.failures),
        "recovery_seconds": {
            "measured": len(recoveries),
            "median": round(statistics.median(recoveries), 2) if recoveries else None,
            "longest": max(recoveries, default=None),
        },
        "never_killed": {
            name: {"seconds": round(one.seconds, 2), "first_progress": round(one.first_progress, 2),
                   "file_operations": one.operations}
            for name, one in references.items()
        },
        "problems": [*found.lost, *found.differences, *found.failures],
    }  # fmt: skip


def with_others(result: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """Add the kinds of an earlier result that were not asked for again."""
    kept = {kind: found for kind, found in earlier["kinds"].items() if kind not in result["kinds"]}
    rows = [row for row in earlier["rows"] if row["kind"] in kept] + result["rows"]
    bad = sum(found[name] for found in kept.values() for name in BAD)
    sums = {"kills": len(rows), "problems": bad + result["problems"], "seconds": earlier["seconds"] + result["seconds"]}
    kinds = {kind: {**kept, **result["kinds"]}[kind] for kind in KINDS if kind in kept or kind in result["kinds"]}
    return {**result, **sums, "kinds": kinds, "rows": rows}


def start_seconds() -> float:
    """The median of what starting Python and importing takes."""
    took = []
    for _ in range(_STARTS):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", _START], check=True)
        took.append(time.monotonic() - began)
    return round(statistics.median(took), 2)


def _tell(row: dict[str, Any]) -> None:
    how = row["operation"] or f"{row['after_seconds']} s"
    place = f"{row['kind']}, {row['job']}, round {row['round']}"
    print(f"{place}: {row['killed']} at {how}; last: {row['where']}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60, help="Kills that are to land, an equal part in each kind.")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS),
                        help="Only these; what --output holds of the others stays.")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="One job of each kind, and no look at imports.")
    parser.add_argument("--work", type=Path, help="Keeps what the jobs leave; default: a temporary folder.")
    parser.add_argument("--output", type=Path, help="Where to write the result.")
    parser.add_argument("--table", action="store_true", help="Only print the tables of what --output holds.")
    asked = parser.parse_args(arguments)
    if asked.table:
        result = json.loads(asked.output.read_text(encoding="utf-8"))
        print(kills_table(result), recovery_table(result), sep="\n\n")
        return 0
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-kills-") as temporary:
        work = asked.work or Path(temporary)
        summaries, kills = {}, []
        for kind in asked.kinds:
            jobs = KINDS[kind][:1] if asked.short else KINDS[kind]
            part = -(-asked.kills // len(asked.kinds))
            found, references = kill_jobs(jobs, part, random.Random(f"{asked.seed} {kind}"), work / kind)
            summaries[kind] = summarise(found, references)
            kills += found.kills
            print(kind, json.dumps(summaries[kind]), flush=True)
    result = {
        "what": "jobs killed by SIGKILL at random moments; seconds from restart to the first progress",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limbeck": __version__,
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "seed": asked.seed,
        "kills": len(kills),
        "problems": sum(summary[name] for summary in summaries.values() for name in BAD),
        "process_start_seconds": None if asked.short else start_seconds(),
        "seconds": round(time.monotonic() - began, 1),
        "kinds": summaries,
        "rows": kills,
    }
    if asked.output is not None and asked.output.exists() and set(asked.kinds) < set(KINDS):
        result = with_others(result, json.loads(asked.output.read_text(encoding="utf-8")))
    if asked.output is not None:
        asked.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: result[name] for name in ("kills", "problems", "seconds")}))
    return int(result["problems"] > 0 or len(kills) < asked.kills)


if __name__ == "__main__":
    gc.freeze()  # Trainings collect garbage: forked processes would look at all that was imported, and copy it.
    code = main()
    gc.unfreeze()
    raise SystemExit(code)
