"""Measure what commands cost before they work: start-up, refusals, `validate`, `status` and `report`, in core seconds.

`python benchmarks/startup.py --before DIR` compares the working tree with another checkout of limbeck, alternately, and
writes `benchmarks/results/startup.json`: user and system seconds of each round, least and median, and the CPU's name.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from limbeck.core.machine import hardware
from limbeck.recipe.load import read_shipped

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "startup.json"
COMMANDS = {
    "import limbeck": ["-c", "import limbeck"],
    "--help": ["-m", "limbeck", "--help"],
    "methods": ["-m", "limbeck", "methods"],
    "schema": ["-m", "limbeck", "schema"],
    "distill, recipe not there": ["-m", "limbeck", "distill", "none.yaml"],
    "distill, unknown key": ["-m", "limbeck", "distill", "recipe.yaml", "--set", "studnt.shape=3"],
    "distill, teacher not there": ["-m", "limbeck", "distill", "recipe.yaml", "--set", "teacher.model=/none"],
    "evaluate, unknown task": ["-m", "limbeck", "evaluate", "a/b", "--tasks", "rtee", "--output", "out"],
    "search, no steps": ["-m", "limbeck", "search", "mapping", "recipe.yaml", "--steps", "0", "--output", "out"],
    "inspect, model not there": ["-m", "limbeck", "inspect", "similarity", "/none"],
    "export, unknown format": ["-m", "limbeck", "export", "a/b", "--format", "onx"],
    "report, folder not there": ["-m", "limbeck", "report", "none"],
    "status, folder not there": ["-m", "limbeck", "status", "none"],
    "validate, the quickstart's recipe": ["-m", "limbeck", "validate", "recipe.yaml"],
}


def core_seconds(source: Path, arguments: list[str], folder: Path) -> float:
    """Run Python on a checkout's package; returns user and system seconds of it and its children."""
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "HF_HUB_OFFLINE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="another checkout of limbeck")
    parser.add_argument("--run", type=Path, help="the folder of a finished run, to report and to look at")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    commands = dict(COMMANDS)
    if given.run is not None:
        run = str(given.run.resolve())
        commands["status of a run"] = ["-m", "limbeck", "status", run]
        commands["report of a run"] = ["-m", "limbeck", "report", run, "--output", "page.html"]
    commits = {
        side: subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=source, capture_output=True, text=True, check=True
        ).stdout.strip()
        for side, source in (("before", given.before), ("after", ROOT))
    }
    machine = {key: hardware()[key] for key in ("cpu", "cores")}
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "recipe.yaml").write_text(read_shipped("quickstart"), encoding="utf-8")
        for name, arguments in commands.items():
            seconds: dict[str, list[float]] = {"before": [], "after": []}
            for source in (given.before, ROOT):  # Compiles, and lets `validate` compare vectors once.
                core_seconds(source, arguments, folder)
            for _ in range(given.rounds):
                for side, source in (("before", given.before), ("after", ROOT)):
                    seconds[side].append(round(core_seconds(source, arguments, folder), 3))
            found[name] = {
                side: {"least": min(all_), "median": statistics.median(all_), "rounds": all_}
                for side, all_ in seconds.items()
            }
            print(name, found[name]["before"]["least"], found[name]["after"]["least"], flush=True)
            content = {"machine": machine, "commits": commits, "unit": "core seconds", "commands": found}
            RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
