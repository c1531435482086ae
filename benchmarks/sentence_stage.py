"""Times the quickstart's stage of sentence vectors, which it spends most of its time in, beside another checkout.

    git worktree add ../before COMMIT
    python benchmarks/sentence_stage.py --texts DATA/wikipedia-en --before ../before --output FILE.json

Runs of both sides take turns, each a process of its own on the same sentences: 64 of up to 64 tokens a step, six layers
to three at width 384, embeddings frozen. Figures are the run's own: tokens a second of the stage.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from embedding_ablation import CHANGES, recipe_of
from limbeck.core.machine import git_commit, hardware, versions

ROUNDS = 5


def run(checkout: Path, text: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Run the stage by the package of a checkout."""
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(recipe_of(CHANGES["base"], str(text), 1, steps, folder / "run")))
    command = [sys.executable, "-m", "limbeck", "distill", str(recipe), "--overwrite"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    stage = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))["stages"][0]
    return {name: stage[name] for name in ("tokens", "seconds", "tokens_per_second", "precision")}


def measure(before: Path, text: Path, steps: int) -> dict[str, Any]:
    """Run both sides in turns."""
    sides: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS + 1):
            for side, checkout in (("before", before), ("now", Path(__file__).parents[1])):
                found = run(checkout.resolve(), text.resolve(), steps, Path(folder))
                if number:  # The first reads text and compiles.
                    sides[side].append(found)
                print(json.dumps({"side": side, **found}), flush=True)
    rates = {side: [row["tokens_per_second"] for row in rows] for side, rows in sides.items()}
    ratios = [now / then for now, then in zip(rates["now"], rates["before"], strict=True)]
    return {
        "steps": steps,
        "rounds": sides,
        "tokens_per_second": {side: statistics.median(found) for side, found in rates.items()},
        "times_faster": [round(value, 2) for value in (statistics.median(ratios), min(ratios), max(ratios))],
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="folder of text")
    parser.add_argument("--before", type=Path, required=True, help="checkout of another commit")
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    found = measure(arguments.before, arguments.texts, arguments.steps)
    commit = subprocess.run(
        ["git", "-C", str(arguments.before), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    made_with = {"before": commit, "commit": git_commit(), "hardware": hardware(), "versions": versions()}
    print(json.dumps({key: value for key, value in found.items() if key != "rounds"}))
    if arguments.output:
        arguments.output.write_text(json.dumps(found | made_with, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
