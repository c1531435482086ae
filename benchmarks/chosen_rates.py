"""Learning rates for the recipe that `limbeck distill` chooses for a classifier.

    python benchmarks/chosen_rates.py --data DATA --work runs/rates
    python benchmarks/chosen_rates.py --table

all-MiniLM-L6-v2 is fine-tuned on 1,000 rows of SST-2 and of MRPC, and becomes students of three layers by the chosen
recipe, on the same rows, in two stages of 60 steps. Only the rate, the start and the taught layers differ. Starts:

- `copied`: layers 1, 3 and 6; they learn from the teacher's layers 2, 4 and 6, which are the method's own mapping;
- `fitted`: the same, fitted to the teacher;
- `as taught`: layers 2, 4 and 6, which learn from the teacher's layers 2, 4 and 6;
- `taught as copied`: layers 1, 3 and 6, which learn from the teacher's layers 1, 3 and 6.

They are compared by the accuracy on 400 other training rows of the task. The accuracy on its development rows is only
reported. Both accuracies have 95 % intervals.

DATA has `SST-2` and `MRPC` of GLUE. A row is added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embedding_ablation import TEACHER, add_row, find, read_rows, read_table
from harness import made_with, run_script, table

RESULTS = Path(__file__).parent / "results" / "chosen_rates.jsonl"
SETTINGS = (
    *((2e-5, "copied"), (1e-4, "copied"), (3e-4, "copied"), (1e-4, "fitted"), (3e-4, "fitted")),
    *((3e-4, "as taught"), (3e-4, "taught as copied")),
)
"""Learning rates and starts."""
SEEDS = (1, 2)
STEPS = 60
TRAINING_ROWS = 1_000
CHOICE_ROWS = 400
COLUMNS = {"SST-2": ("sentence", None, "label"), "MRPC": ("#1 String", "#2 String", "Quality")}
"""The columns of a task: text, second text and class."""
TEACHER_SETTINGS = ("epochs=3", "batch_size=32", "learning_rates=1e-4")


def write_task(task: str, data: Path, folder: Path) -> Path:
    """Write the rows of a task as three tables, and its task file; return the file."""
    file = folder / f"{task}.yaml"
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    training = read_table(find(data, f"{task}/train.tsv"))
    random.Random(0).shuffle(training)
    splits = {
        "train": training[:TRAINING_ROWS],
        "validation": training[TRAINING_ROWS : TRAINING_ROWS + CHOICE_ROWS],
        "test": read_table(find(data, f"{task}/dev.tsv")),
    }
    text, pair, label = COLUMNS[task]
    for split, rows in splits.items():
        with (folder / f"{task}-{split}.csv").open("w", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(["text", "pair", "label"])
            for row in rows:
                writer.writerow([row[text], row[pair] if pair else "", "yes" if row[label] == "1" else "no"])
    columns = "{text: text, pair: pair, label: label}" if pair else "{text: text, label: label}"
    files = ", ".join(f"{split}: {task}-{split}.csv" for split in splits)
    lines = [f"name: {task}", "type: classification", f"columns: {columns}", "labels: ['no', 'yes']"]
    file.write_text("\n".join([*lines, f"files: {{{files}}}"]) + "\n", encoding="utf-8")
    return file


def scored(model: str, task: Path, output: Path) -> dict[str, Any]:
    """Score a classifier as it is, on the rows to choose by and on the rows to report."""
    import limbeck

    result = limbeck.evaluate(model, str(task), output=output, data=task.parent, as_is=True)
    if result.failed:
        raise SystemExit(f"{model} cannot be scored: {result.summary['notes']}")
    found = {}
    columns = result.summary["models"][0]["columns"].values()
    for name, column in zip(("choice", "reported"), columns, strict=True):
        interval = [round(end, 2) for end in column["interval"]]
        found[name] = {"accuracy": round(column["mean"], 2), "interval": interval}
    return found


def measure(data: Path, work: Path, minutes: float) -> None:
    """Make and score the models that have no row, until the minutes are over."""
    import limbeck

    began = time.monotonic()
    # Rows of an earlier time have no start: their layers are copied.
    measured = {(row["task"], row["rate"], row.get("start", "copied"), row["seed"]) for row in read_rows(RESULTS)}
    for task in COLUMNS:
        file = write_task(task, data, work / "rows")
        output = work / f"{task}-teacher"
        teacher = str(limbeck.finetune(TEACHER, file, output=output, preset="quick", overrides=TEACHER_SETTINGS).model)
        if (task, 0.0, "copied", 0) not in measured:
            row = {"task": task, "rate": 0.0, "seed": 0, "model": "teacher"}
            add_row(row | scored(teacher, file, work / f"{task}-teacher-scores") | made_with(), RESULTS)
        for seed in SEEDS:
            for rate, start in SETTINGS:
                if (task, rate, start, seed) in measured:
                    continue
                if time.monotonic() - began > 60 * minutes:
                    print("The time is over; the same command goes on.", flush=True)
                    return
                student: dict[str, Any] = {"shape": "3x384", "initialise": {"layers": "ends"}}
                # A chosen recipe teaches each layer by the layer that it is a copy of.
                overrides = [] if start == "taught as copied" else ["stages.0.method.mapping=uniform"]
                if start == "fitted":
                    student["initialise"]["fit"] = {}
                elif start == "as taught":
                    student["initialise"]["layers"] = "uniform"
                output = work / f"{task}-{rate:g}-{start.replace(' ', '-')}-{seed}"
                result = limbeck.distill(
                    teacher=teacher,
                    student=student,
                    corpus=str(file),
                    steps=STEPS,
                    learning_rate=rate,
                    seed=seed,
                    evaluation={"enabled": False},
                    overrides=overrides,
                    output=output,
                    overwrite=True,
                )
                row = {"task": task, "rate": rate, "seed": seed, "start": start, "model": "student", "steps": STEPS}
                found = scored(str(result.student), file, work / f"{output.name}-scores")
                add_row(row | found | made_with(), RESULTS)


def tables() -> Iterator[str]:
    """Go through the one table of the rows."""
    lines = []
    for row in read_rows(RESULTS):
        cells = []
        for name in ("choice", "reported"):
            low, high = row[name]["interval"]
            cells.append(f"{row[name]['accuracy']:.1f} ({low:.1f} to {high:.1f})")
        rate = f"{row['rate']:g}" if row["rate"] else ""
        start = row.get("start", "copied") if row["model"] == "student" else ""
        lines.append([f"{row['task']}, {row['model']}", rate, start, row["seed"] or "", *cells])
    yield table(["model", "rate", "start", "seed", "accuracy to choose by", "accuracy reported"], lines)


if __name__ == "__main__":
    run_script(__doc__ or "", "SST-2 and MRPC", measure, tables)
