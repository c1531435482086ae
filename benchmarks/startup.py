"""Measure what commands cost before they work: start-up, refusals, `validate`, `status` and `report`, in core seconds.

`python benchmarks/startup.py --before DIR` compares the working tree with another checkout of limbeck, alternately, and
writes `benchmarks/results/startup.json`: user and system seconds of each round, least and median, the least by the
clock, and the CPU's name.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from limbeck.core.machine import hardware
from limbeck.recipe.shipped import read_shipped

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "startup.json"
LIBRARIES = """\
import torch
from transformers import PreTrainedModel, Trainer
from transformers.models.bert import modeling_bert
"""
COMMANDS = {
    "import limbeck": ["-c", "import limbeck"],
    "the libraries of a run alone": ["-c", LIBRARIES],
    "--help": ["-m", "limbeck", "--help"],
    "methods": ["-m", "limbeck", "methods"],
    "schema": ["-m", "limbeck", "schema"],
    "distill, recipe not there": ["-m", "limbeck", "distill", "none.yaml"],
    "distill, unknown key": ["-m", "limbeck", "distill", "recipe.yaml", "--set", "studnt.shape=3"],
    "distill, teacher not there": ["-m", "limbeck", "distill", "recipe.yaml", "--set", "teacher.model=/none"],
    "distill, wrong type": ["-m", "limbeck", "distill", "recipe.yaml", "--set", "stages.0.training.learning_rate=fast"],
    "distill, unknown option": ["-m", "limbeck", "distill", "--zzz"],
    "validate, seven mistakes": ["-m", "limbeck", "validate", "wrong.yaml"],
    "validate, a table as text": ["-m", "limbeck", "validate", "recipe.yaml", "--set", "corpus.sources=[table.tsv]"],
    "evaluate, no such name": ["-m", "limbeck", "evaluate", "nothing", "--tasks", "rte", "--output", "out"],
    "export, no such name": ["-m", "limbeck", "export", "nothing", "--format", "onnx"],
    "inspect, no such name": ["-m", "limbeck", "inspect", "similarity", "nothing"],
    "benchmark model, no such name": ["-m", "limbeck", "benchmark", "model", "nothing"],
    "evaluate, unknown task": ["-m", "limbeck", "evaluate", "a/b", "--tasks", "rtee", "--output", "out"],
    "search, no steps": ["-m", "limbeck", "search", "mapping", "recipe.yaml", "--steps", "0", "--output", "out"],
    "inspect, model not there": ["-m", "limbeck", "inspect", "similarity", "/none"],
    "export, unknown format": ["-m", "limbeck", "export", "a/b", "--format", "onx"],
    "report, folder not there": ["-m", "limbeck", "report", "none"],
    "status, folder not there": ["-m", "limbeck", "status", "none"],
    "validate, the quickstart's recipe": ["-m", "limbeck", "validate", "recipe.yaml"],
}


WRONG = """\
teacher: ./gone
student: 6by384
sed: 4
corpus: {sources: [./nowhere.txt], held_out: many}
stages:
- {method: minilm2, training: {learning_rate: fast}}
"""
RESUMED = "distill --resume, to its first step"
LOG = Path("run", "stages", "2-sentence-vectors", "log.jsonl")


def environment_of(source: Path) -> dict[str, str]:
    """Return the variables under which a checkout's package is run; Python keeps what it compiles, as if installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(source / "src"), "HF_HUB_OFFLINE": "1"}


def seconds_of(source: Path, run: Callable[[Path], object]) -> tuple[float, float]:
    """Run something of a checkout's package; returns user and system seconds of its processes, and the clock's."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(source)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - began


def call(source: Path, *, arguments: list[str], folder: Path) -> None:
    """Run Python to its end."""
    environment = environment_of(source)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)


def train_until(source: Path, *, folder: Path, lines: int, stop: signal.Signals, resume: bool = False) -> None:
    """Distil by `tiny.yaml` until its second stage has logged so many lines."""
    command = [sys.executable, "-m", "limbeck", "distill", "tiny.yaml", "--quiet", *(["--resume"] if resume else [])]
    process = subprocess.Popen(command, cwd=folder, env=environment_of(source), stderr=subprocess.PIPE)
    while process.poll() is None and _lines(folder) < lines:
        time.sleep(0.01)
    process.send_signal(stop)
    _, error = process.communicate()
    if _lines(folder) < lines:
        raise SystemExit(f"no step was logged: {error.decode()}")


def _lines(folder: Path) -> int:
    return (folder / LOG).read_text(encoding="utf-8").count("\n") if (folder / LOG).is_file() else 0


def resume(source: Path, *, folder: Path) -> None:
    """Resume the stopped run until it has logged another line."""
    shutil.rmtree(folder / "run")
    shutil.copytree(folder / "stopped", folder / "run")
    train_until(source, folder=folder, lines=_lines(folder) + 1, stop=signal.SIGKILL, resume=True)


def write_files(folder: Path) -> None:
    """Write the recipes, and stop a run."""
    quickstart = read_shipped("quickstart")
    (folder / "recipe.yaml").write_text(quickstart, encoding="utf-8")
    (folder / "wrong.yaml").write_text(WRONG, encoding="utf-8")
    (folder / "table.tsv").write_text("text\tlabel\n", encoding="utf-8")
    tiny = quickstart.replace("runs/quickstart", "run").replace("max_steps: 680", "max_steps: 40")
    tiny = tiny.replace("    training:\n", "    training:\n      logging_steps: 1\n")
    tiny = tiny.replace("  held_out: 0.03", "  held_out: 0.03\n  max_documents: 3000")
    (folder / "tiny.yaml").write_text(tiny, encoding="utf-8")
    train_until(ROOT, folder=folder, lines=12, stop=signal.SIGTERM)
    shutil.copytree(folder / "run", folder / "stopped")


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="another checkout of limbeck")
    parser.add_argument("--run", type=Path, help="the folder of a finished run, to report and to look at")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    commands = dict(COMMANDS)
    if given.run is not None:
        place = str(given.run.resolve())
        commands["status of a run"] = ["-m", "limbeck", "status", place]
        commands["report of a run"] = ["-m", "limbeck", "report", place, "--output", "page.html"]
    commits = {
        side: subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=source, capture_output=True, text=True, check=True
        ).stdout.strip()
        for side, source in (("before", given.before), ("after", ROOT))
    }
    machine = {key: hardware()[key] for key in ("cpu", "cores")}
    found = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_files(folder)
        calls = {name: partial(call, arguments=arguments, folder=folder) for name, arguments in commands.items()}
        for name, run in {**calls, RESUMED: partial(resume, folder=folder)}.items():
            seconds: dict[str, list[float]] = {"before": [], "after": []}
            clock: dict[str, list[float]] = {"before": [], "after": []}
            for source in (given.before, ROOT):  # Compiles, and lets `validate` compare vectors once.
                seconds_of(source, run)
            for _ in range(given.rounds):
                for side, source in (("before", given.before), ("after", ROOT)):
                    took, passed = seconds_of(source, run)
                    seconds[side].append(round(took, 3))
                    clock[side].append(round(passed, 3))
            found[name] = {
                side: {
                    "least": min(all_),
                    "median": statistics.median(all_),
                    "rounds": all_,
                    "least_by_the_clock": min(clock[side]),
                }
                for side, all_ in seconds.items()
            }
            print(name, found[name]["before"]["least"], found[name]["after"]["least"], flush=True)
            content = {"machine": machine, "commits": commits, "unit": "core seconds", "commands": found}
            RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
