"""The tables of `docs/results/reliability.md`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any


def kills_table(result: dict[str, Any]) -> str:
    """What was killed, and what came of it."""
    names = ("kills", "by_time", "by_file_operation", "of_a_worker", "rounds", "results_lost", "differing_final_states")
    kinds = {
        kind: {**found, "by_time": found["kills"] - found["by_file_operation"]}
        for kind, found in result["kinds"].items()
    }
    rows = [[kind, *(found[name] for name in names)] for kind, found in kinds.items()]
    rows.append(["all", *(sum(found[name] for found in kinds.values()) for name in names)])
    heads = ["kills", "by time", "at a file operation", "of a worker", "ends compared", "results lost"]
    return _table(["jobs", *heads, "ends that differ"], rows)


def recovery_table(result: dict[str, Any]) -> str:
    """How long each job took to get on again."""
    rows = []
    for kind, found in result["kinds"].items():
        for job, whole in found["never_killed"].items():
            seconds = [
                row["recovery_seconds"]
                for row in result["rows"]
                if (row["kind"], row["job"]) == (kind, job) and row["recovery_seconds"] is not None
            ]
            median, longest = (f"{part(seconds):.1f} s" if seconds else "–" for part in (statistics.median, max))
            took = f"{whole['first_progress']:.1f} s of {whole['seconds']:.1f} s"
            rows.append([f"{kind}: {job}", len(seconds), median, longest, took])
    return _table(["job", "measured", "median", "longest", "from nothing, never killed"], rows)


def _table(heads: list[str], rows: Iterable[list[Any]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
