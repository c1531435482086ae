"""What scripts of measurements share: sides timed in turns, ratios of neighbours, peak memory, rows with their machine.

Machines that others use too are as fast as the others let them be. So two sides are compared in turns, in the opposite
order in every other round, and only ratios of one round are worth comparing between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def take_turns(sides: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Measure sides in turns.

    Args:
        sides: What measures once and returns a figure, such as seconds, by the name of its side.
        rounds: Rounds that count.
        warm_up: Rounds before them, which compile, map memory or read files.

    Returns:
        The figures of each side, a round each.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        names = list(sides)
        if number % 2 == 1:
            names.reverse()
        for name in names:
            figure = sides[name]()
            if number >= warm_up:
                figures[name].append(figure)
    return figures


def ratio_of(slow: Sequence[float], fast: Sequence[float], name: str = "ratio", digits: int = 2) -> dict[str, float]:
    """Return median, lowest and highest of the ratios of each round, `NAME`, `NAME_lowest` and `NAME_highest`."""
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return {
        name: round(statistics.median(ratios), digits),
        f"{name}_lowest": round(min(ratios), digits),
        f"{name}_highest": round(max(ratios), digits),
    }


def milliseconds(seconds: Sequence[float], digits: int = 2) -> float:
    """Return the median of some seconds, in milliseconds."""
    return round(1e3 * statistics.median(seconds), digits)


def resident_megabytes(highest: bool = False) -> float:
    """Return the resident size of this process, now or at its highest."""
    label = "VmHWM:" if highest else "VmRSS:"
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(label):
            kilobytes = int(line.split()[1])
            return kilobytes / 1024
    raise OSError(f"/proc/self/status has no {label}")


def made_with(**more: Any) -> dict[str, Any]:
    """Return what rows were made with: commit, hardware, versions and load of the machine, and what is given."""
    # Processes that measure a peer do not load limbeck.
    from limbeck.core.machine import git_commit, hardware, versions

    load = [round(average, 2) for average in os.getloadavg()]
    return {"commit": git_commit(), "hardware": hardware(), "versions": versions(), "load": load, **more}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Write rows to a JSON file, with what they were made with.

    Args:
        path: The file; its folder is made.
        rows: The rows.
        **more: Settings and seeds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"rows": list(rows), **made_with(**more)}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown, its first column of text and the others of numbers."""
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def run_script(
    description: str,
    data: str,
    measure: Callable[..., None],
    tables: Callable[[], Iterator[str]],
    parts: Sequence[str] = (),
) -> None:
    """Read the command line of a script whose measurement goes on where it was stopped, and do what it asks for.

    Args:
        description: What the script is for.
        data: The data sets that it reads, in words.
        measure: Measures what has no row: receives the folder of data, that of its runs, and for how many minutes it
            may begin further work; with `parts`, also the parts that it measures.
        tables: Goes through the tables of the rows.
        parts: Parts of the measurement, of which `--only` takes one or several; by default all.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help=f"folder with {data}")
    parser.add_argument("--work", type=Path, help="folder for runs")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin nothing after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as tables")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="parts of the measurement")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n\n".join(tables()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    elif parts:
        measure(arguments.data, arguments.work, arguments.minutes, arguments.only)
    else:
        measure(arguments.data, arguments.work, arguments.minutes)
