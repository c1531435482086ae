"""Students of stored targets beside students of a live teacher: speed of storing, of a step, and what a format costs.

    python benchmarks/stored_targets.py teach --teacher MPNET --name mpnet --text TEXT
    python benchmarks/stored_targets.py step --teacher MPNET --name mpnet --text TEXT
    python benchmarks/stored_targets.py step --teacher MINILM --name minilm --text TEXT
    python benchmarks/stored_targets.py formats --teacher MINILM --name minilm --text TEXT --data DATA
    python benchmarks/stored_targets.py students --teacher MINILM --other MPNET --name both --text TEXT --data DATA
    python benchmarks/stored_targets.py --table

- `teach`: `limbeck.teach` and `SentenceTransformer.encode` read the same sentences in turns, 32 at once; tokens a
  second, and the ratio with the faster type of numbers of the two that encoding can use.
- `step`: runs of a student with the live teacher and with the store take turns, each in a process of its own; seconds
  of a step and the highest memory of the process, from the records of the runs. A CPU without fast bfloat16 takes its
  steps in float32, which `--float32` does anywhere.
- `students`: students of the same steps by what teaches them: all-MiniLM's store, that of another teacher (`--other`)
  with another width and another tokenizer, both stores together, and all-MiniLM's store for a student with 8,000
  WordPieces of its own. Scores are Spearman on SICK's test split and MRR@10 on SQuAD, in percent; milliseconds are of
  a sentence in a batch of 32.
- `formats`: one student of the live teacher and one of each format of numbers, from the same start in the same order,
  and their Spearman on SICK's test split, in percent.

TEXT is a folder of texts, DATA has SICK as `limbeck evaluate` finds it. A part replaces its own
rows in the result file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch

from harness import made_with, ratio_of, take_turns

RESULTS = Path(__file__).parent / "results" / "stored_targets.json"
FORMATS = ("float32", "float16", "int8")
SHAPE = {"layers": 3, "hidden": 384, "heads": 12}
BATCH, RATE, LENGTH = 64, 1e-3, 64
"""Sentences of a step, peak learning rate, most tokens of a sentence."""
UNCUT = 512
"""Most tokens of a sentence for students of several teachers, none of whose stores may hold a text in parts."""
TAUGHT_AT_ONCE = 32
WORD_PIECES = 8000
"""Vocabulary of a student that has its own."""
LOGGED = 5
"""Steps between two entries of a log; the first of them load, map memory and compile, and are not counted."""


def recipe(
    teacher: Mapping[str, Any], text: Path, output: Path, steps: int, *, length: int = LENGTH, **student: Any
) -> dict[str, Any]:
    """Return the recipe of a student of finished sentence vectors, without its evaluation."""
    return {
        "output": str(output),
        "teacher": dict(teacher),
        "student": {"shape": SHAPE, "dropout": 0.0, **student},
        "corpus": {"sources": [str(text)], "held_out": 0.01},
        "stages": [
            {
                "method": {"name": "aligned_embedding"},
                "text": {"unit": "sentence", "length": length},
                "training": {
                    "max_steps": steps,
                    "per_device_train_batch_size": BATCH,
                    "learning_rate": RATE,
                    "warmup_steps": 0.05,
                    "weight_decay": 0.01,
                    "eval_strategy": "no",
                    "save_strategy": "no",
                    "logging_steps": LOGGED,
                },
            }
        ],
        "evaluation": {"enabled": False},
    }


def run_limbeck(*arguments: str) -> None:
    """Run a command of limbeck in a process of its own; a failed one ends the script with its output."""
    command = [sys.executable, "-m", "limbeck", *arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{finished.stdout}")


def distil(settings: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """Distil a recipe anew and return the record of the run."""
    output = Path(settings["output"])
    shutil.rmtree(output, ignore_errors=True)
    path = work / f"{output.name}.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    run_limbeck("distill", str(path))
    return json.loads((output / "run.json").read_text(encoding="utf-8"))


def store_targets(settings: Mapping[str, Any], folder: Path, number_format: str, work: Path) -> Path:
    """Store the targets of a recipe in a folder, which is kept for the next call."""
    path = work / f"teach-{folder.name}.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    run_limbeck("teach", str(path), "--output", str(folder), "--format", number_format)
    return folder


def measure_teach(teacher: str, text: Path, work: Path, rounds: int) -> dict[str, Any]:
    """Return tokens a second of `limbeck.teach` and of sentence-transformers on the same sentences."""
    from sentence_transformers import SentenceTransformer

    import limbeck

    settings = recipe({"model": teacher}, text, work / "none", steps=1)
    models: dict[torch.dtype, SentenceTransformer] = {}
    for dtype in (torch.float32, torch.bfloat16):
        models[dtype] = SentenceTransformer(teacher, device="cpu", model_kwargs={"dtype": dtype})
        models[dtype].max_seq_length = LENGTH
    sentences, tokens = sentences_of(settings)

    def teach() -> float:
        folder = work / "store-of-speed"
        shutil.rmtree(folder, ignore_errors=True)
        result = limbeck.teach(settings, output=folder, batch_size=TAUGHT_AT_ONCE)
        return float(result.figures["tokens per second"])

    def encode(dtype: torch.dtype) -> float:
        began = time.perf_counter()
        models[dtype].encode(sentences, batch_size=TAUGHT_AT_ONCE, show_progress_bar=False)
        return tokens / (time.perf_counter() - began)

    sides: dict[str, Callable[[], float]] = {"teach": teach}
    for dtype in models:
        sides[f"encode in {str(dtype).removeprefix('torch.')}"] = partial(encode, dtype)
    speeds = take_turns(sides, rounds)
    fastest = max(list(sides)[1:], key=lambda name: statistics.median(speeds[name]))
    row: dict[str, Any] = {"sentences": len(sentences), "tokens": tokens}
    for name in sides:
        row[f"{name}, tokens a second"] = round(statistics.median(speeds[name]))
    return {
        **row,
        "compared with": fastest,
        **ratio_of(speeds["teach"], speeds[fastest], "teach_to_encode"),
        "rounds": rounds,
    }


def sentences_of(settings: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the training sentences of a recipe, decoded from their tokens, and the number of these tokens."""
    from transformers import AutoTokenizer

    import limbeck

    rows = limbeck.plan(settings).stage(0).trainer.train_dataset
    tokenizer = AutoTokenizer.from_pretrained(settings["teacher"]["model"])
    sentences: list[str] = []
    tokens = 0
    for row in rows:
        sentences.append(tokenizer.decode(row["input_ids"], skip_special_tokens=True))
        tokens += len(row["input_ids"])
    return sentences, tokens


def measure_steps(teacher: str, text: Path, work: Path, rounds: int, steps: int, *, is_float32: bool) -> dict[str, Any]:
    """Return seconds of a step and highest memory with the live teacher and with its store."""
    live = recipe({"model": teacher}, text, work / "live", steps)
    store = store_targets(live, work / "store-of-steps", "float32", work)
    stored = recipe({"stored": str(store)}, text, work / "stored", steps)
    if is_float32:
        for settings in (live, stored):
            settings["stages"][0]["training"]["bf16"] = False
    memory: dict[str, list[int]] = {"live": [], "stored": []}

    def measure(side: str, settings: Mapping[str, Any]) -> float:
        record = distil(settings, work)
        memory[side].append(record["peak_memory_bytes"])
        return seconds_of_a_step(Path(settings["output"]))

    sides = {"live": lambda: measure("live", live), "stored": lambda: measure("stored", stored)}
    seconds = take_turns(sides, rounds)
    return {
        "numbers": "float32" if is_float32 else "as the machine chooses",
        "steps": steps,
        "live_milliseconds_a_step": round(1e3 * statistics.median(seconds["live"]), 1),
        "stored_milliseconds_a_step": round(1e3 * statistics.median(seconds["stored"]), 1),
        **ratio_of(seconds["live"], seconds["stored"], "faster"),
        "live_megabytes": round(statistics.median(memory["live"]) / 2**20),
        "stored_megabytes": round(statistics.median(memory["stored"]) / 2**20),
        "rounds": rounds,
    }


def seconds_of_a_step(run: Path) -> float:
    """Return the seconds of a training step, from the first entry of the log to the last one."""
    [log] = run.glob("stages/*/log.jsonl")
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [entry for entry in entries if "loss" in entry]
    first, last = steps[0], steps[-1]
    return float(last["seconds"] - first["seconds"]) / (last["step"] - first["step"])


def measure_formats(teacher: str, text: Path, data: Path, work: Path, steps: int) -> list[dict[str, Any]]:
    """Return SICK's Spearman of a student of the live teacher and of one of each format of numbers."""
    initialise = {"layers": "ends"}
    settings = recipe({"model": teacher}, text, work / "format-live", steps, initialise=initialise)
    rows = [format_row("live", settings, data, work)]
    for number_format in FORMATS:
        store = store_targets(settings, work / f"store-{number_format}", number_format, work)
        start = {"from": teacher, **initialise}
        output = work / f"format-{number_format}"
        stored = recipe({"stored": str(store)}, text, output, steps, initialise=start)
        rows.append(format_row(number_format, stored, data, work))
    for row in rows:
        row["difference"] = round(row["sick"] - rows[0]["sick"], 5)
    return rows


def format_row(name: str, settings: Mapping[str, Any], data: Path, work: Path) -> dict[str, Any]:
    """Distil a recipe and score its student."""
    record = distil(settings, work)
    [stage] = record["stages"]
    student = Path(settings["output"]) / "student"
    return {"targets": name, "steps": stage["steps"], "sick": score(student, data, work)["sick_cosine"]}


def measure_students(teacher: str, other: str, text: Path, data: Path, work: Path, steps: int) -> list[dict[str, Any]]:
    """Return size, scores and speed of students that differ in their teachers, or in their vocabulary."""
    layers = {"layers": "ends"}
    none = work / "none"
    stores = []
    for name, model in (("first", teacher), ("second", other)):
        settings = recipe({"model": model}, text, none, 1, length=UNCUT)
        stores.append(str(store_targets(settings, work / name, "float16", work)))
    first, second = ({"stored": store} for store in stores)
    start = {"initialise": {"from": teacher, **layers}}
    own_words = {"vocabulary": {"train": WORD_PIECES}, **start}
    students: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "all-MiniLM": ({"teacher": first}, start),
        "the other teacher": ({"teacher": second}, start),
        "both": ({"teachers": {"first": first, "second": second}}, start),
        f"all-MiniLM, {WORD_PIECES:,} WordPieces": ({"teacher": first}, own_words),
    }
    rows = []
    for name, (taught_by, student) in students.items():
        settings = recipe({}, text, work / name.replace(" ", "-"), steps, length=UNCUT, **student)
        del settings["teacher"]
        settings |= taught_by
        if "teachers" in taught_by:
            # The combined vectors lie in a space of their own, so the student keeps a map into it.
            settings["stages"][0]["method"]["map"] = "always"
        record = distil(settings, work)
        folder = Path(settings["output"]) / "student"
        [stage] = record["stages"]
        rows.append(
            {
                "taught by": name,
                "steps": stage["steps"],
                "parameters": record["student"]["parameters"],
                **score(folder, data, work, {"sick_cosine": "spearman", "squad_retrieval": "mrr_at_10"}),
                "milliseconds_a_sentence": milliseconds_of(folder, data),
            }
        )
        print(rows[-1], flush=True)
    return rows


def milliseconds_of(student: Path, data: Path) -> float:
    """Return the milliseconds of a sentence, in batches of 32 sentences of SICK, as the least of five rounds."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(student), device="cpu")
    [path] = data.glob("**/SICK_test_annotated.txt")
    lines = path.read_text(encoding="utf-8").splitlines()[1:513]
    sentences = [line.split("\t")[1] for line in lines]
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        model.encode(sentences, batch_size=TAUGHT_AT_ONCE, show_progress_bar=False)
        seconds.append(time.perf_counter() - began)
    return round(1e3 * min(seconds) / len(sentences), 3)


def score(student: Path, data: Path, work: Path, tasks: Mapping[str, str] | None = None) -> dict[str, float]:
    """Return scores of a model on tasks, by their names."""
    import limbeck

    metrics = tasks or {"sick_cosine": "spearman"}
    output = work / "scores" / student.parent.name
    shutil.rmtree(output, ignore_errors=True)
    result = limbeck.evaluate(str(student), tasks=list(metrics), data=data, output=output)
    [model] = result.evaluation.models
    scores: dict[str, float] = {}
    for task, metric in metrics.items():
        scores[task] = float(model.columns[task].metrics[metric].mean or 0.0)
    return scores


def table(results: Mapping[str, Any]) -> str:
    """Return the results as tables in Markdown."""
    lines: list[str] = []
    for part, measured in results.items():
        rows = measured["rows"]
        names = list(rows[0])
        lines += [f"`{part}`", "", f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
        for row in rows:
            lines.append(f"| {' | '.join(str(row.get(name, '')) for name in names)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure a part, or print what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["teach", "step", "formats", "students"])
    parser.add_argument("--teacher", help="Folder of the teacher.")
    parser.add_argument("--other", help="Folder of another teacher, for `students`.")
    parser.add_argument("--name", help="Its name in the result file.")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/stored"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--float32", action="store_true", help="Take steps in float32, as a CPU without bfloat16 does.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else {}
    if arguments.part is not None:
        work = arguments.work / arguments.name
        work.mkdir(parents=True, exist_ok=True)
        common = (arguments.teacher, arguments.text, work)
        if arguments.part == "teach":
            rows = [measure_teach(*common, arguments.rounds)]
        elif arguments.part == "step":
            rows = [measure_steps(*common, arguments.rounds, arguments.steps, is_float32=arguments.float32)]
        elif arguments.part == "students":
            rows = measure_students(
                arguments.teacher, arguments.other, arguments.text, arguments.data, work, arguments.steps
            )
        else:
            rows = measure_formats(arguments.teacher, arguments.text, arguments.data, work, arguments.steps)
        part = f"{arguments.part}, {arguments.name}"
        results[part] = {"rows": rows, **made_with()}
        arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
