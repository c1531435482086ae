"""A student that learns German from parallel text: do German and English sentences find each other, before and after?

    python benchmarks/parallel_text.py --teacher MINILM --xnli XNLI --tatoeba TATOEBA
    python benchmarks/parallel_text.py --table

The teacher is an English embedding model. The student starts as a copy of it, and learns the teacher's vectors of
English sentences for these sentences and for their German translations (Reimers and Gurevych 2020). XNLI is a folder
with `dev-en.tsv` and `dev-de.tsv`, whose distinct premises and hypotheses are the parallel text. TATOEBA has
`tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`, which are only tested on. Sentences of Tatoeba that are also in XNLI
are counted in the result.

Scores are in percent: the share of sentences whose nearest sentence is a translation (accuracy at 1), and MRR@10. The
rows are the teacher, which is also the start, and the student after `--steps` steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import limbeck
from harness import table, write_rows

RESULTS = Path(__file__).parent / "results" / "parallel_text.json"
BATCH, RATE, LENGTH = 64, 3e-4, 64
"""Sentences of a step, peak learning rate, most tokens of a sentence."""
DIRECTIONS = ("de-en", "en-de")
TASK = "tatoeba_de"


def distinct_pairs(xnli: Path) -> dict[str, str]:
    """Return the distinct English sentences of XNLI, each with its first German translation."""
    translations: dict[str, str] = {}
    rows_of_language = []
    for language in ("en", "de"):
        lines = (xnli / f"dev-{language}.tsv").read_text(encoding="utf-8").splitlines()
        rows_of_language.append([line.split("\t") for line in lines])
    for english_row, german_row in zip(*rows_of_language, strict=True):
        # A row has a premise, a hypothesis and a label.
        for english, german in zip(english_row[:2], german_row[:2], strict=True):
            translations.setdefault(english.strip(), german.strip())
    return translations


def write_pairs(pairs: dict[str, str], folder: Path) -> dict[str, str]:
    """Write aligned lines of both languages, and return the file of each."""
    files = {"en": folder / "xnli.en", "de": folder / "xnli.de"}
    files["en"].write_text("".join(f"{sentence}\n" for sentence in pairs), encoding="utf-8")
    files["de"].write_text("".join(f"{sentence}\n" for sentence in pairs.values()), encoding="utf-8")
    return {language: str(file) for language, file in files.items()}


def recipe(teacher: str, files: dict[str, str], output: Path, steps: int) -> dict[str, Any]:
    """Return the recipe of the student."""
    return {
        "output": str(output),
        "teacher": {"model": teacher},
        "student": {"shape": "6x384", "initialise": {"layers": "uniform"}},
        "corpus": {"sources": [{"parallel": files}], "length": LENGTH, "minimum_tokens": 1, "held_out": 0.05},
        "stages": [
            {
                "method": {"name": "aligned_embedding"},
                "training": {
                    "max_steps": steps,
                    "per_device_train_batch_size": BATCH,
                    "learning_rate": RATE,
                    "warmup_steps": 0.1,
                    "weight_decay": 0.01,
                    "save_strategy": "no",
                },
            }
        ],
        "evaluation": {"enabled": False},
    }


def scores_of(model: str, task: Path, tatoeba: Path, output: Path) -> dict[str, float]:
    """Return the accuracy at 1 and MRR@10 of a model, both ways, in percent."""
    shutil.rmtree(output, ignore_errors=True)
    result = limbeck.evaluate(model, str(task), data=tatoeba, output=output)
    [evaluated] = result.evaluation.models
    scores: dict[str, float] = {}
    for direction in DIRECTIONS:
        metrics = evaluated.columns[f"{TASK}.{direction}"].metrics
        for metric in ("accuracy_at_1", "mrr_at_10"):
            scores[f"{direction} {metric}"] = round(float(metrics[metric].mean or 0.0), 2)
    return scores


def measure(teacher: str, xnli: Path, tatoeba: Path, work: Path, steps: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of teacher and student, and the number of English test sentences that were trained on."""
    work.mkdir(parents=True, exist_ok=True)
    pairs = distinct_pairs(xnli)
    files = write_pairs(pairs, work)
    task = work / f"{TASK}.yaml"
    test_files = {"en": "tatoeba.deu-eng.eng", "de": "tatoeba.deu-eng.deu"}
    task.write_text(json.dumps({"name": TASK, "parallel": test_files}), encoding="utf-8")
    test_sentences = (tatoeba / test_files["en"]).read_text(encoding="utf-8").splitlines()
    seen = len({sentence.strip() for sentence in test_sentences} & pairs.keys())

    output = work / "run"
    rows: list[dict[str, Any]] = [{"model": "teacher, before", **scores_of(teacher, task, tatoeba, work / "before")}]
    shutil.rmtree(output, ignore_errors=True)
    result = limbeck.distill(recipe(teacher, files, output, steps))
    [stage] = result.record["stages"]
    rows.append(
        {
            "model": f"student, after {stage['steps']:,} steps",
            **scores_of(str(result.student), task, tatoeba, work / "after"),
            "held-out loss": round(stage["held_out"]["loss"], 4),
        }
    )
    return rows, seen


def main() -> None:
    """Measure, or print what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", help="Folder of the teacher.")
    parser.add_argument("--xnli", type=Path)
    parser.add_argument("--tatoeba", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--work", type=Path, default=Path("runs/parallel-text"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        rows, seen = measure(arguments.teacher, arguments.xnli, arguments.tatoeba, arguments.work, arguments.steps)
        settings = {"batch": BATCH, "learning rate": RATE, "length": LENGTH}
        write_rows(arguments.output, rows, settings=settings, test_sentences_trained_on=seen)
    rows = json.loads(arguments.output.read_text(encoding="utf-8"))["rows"]
    names = [name for name in rows[-1] if name != "model"]
    print(table(["model", *names], [[row["model"], *(row.get(name, "") for name in names)] for row in rows]))


if __name__ == "__main__":
    main()
