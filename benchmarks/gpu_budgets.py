"""What a hundred million tokens buy: students of `budgets.py` that are trained on a GPU without a network.

    python benchmarks/gpu_budgets.py pack --data DATA --folder build/packed
    python benchmarks/gpu_budgets.py run --folder build/packed --output OUT --only "3x384, 100 M"    # where the GPU is
    python benchmarks/gpu_budgets.py run --folder build/packed --output build/gpu-budgets --dry

`pack` writes what travels: the teacher in float16, text, and the rows of SICK and SQuAD, all of them compressed. It
prints the megabytes, which should be at most 48 beside the files of the repository where a machine takes 64.

`run` trains students of 3x384 and 3x192 in many passes over that text, and scores them there by the measures of
`budgets.py`. It adds a row as soon as a student is scored, and writes the trained weights in float16, which fit into 16
megabytes: embeddings that were not trained are left out. `--dry` runs the same code with a few small steps on the CPU.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import budgets
from budgets import Budget, Scores, Texts, half_as_wide, steps_for, training
from embedding_ablation import TEACHER, add_row, find
from harness import made_with
from own_figures import Student

SCORED = ("SICK_test_annotated.txt", "SICK_train.txt", "v1.1-dev.json", "v1.1-train.json")
WIKIPEDIA_FILES = 24
"""Of a megabyte each, some 6 million tokens with the everyday sentences: what has room beside the teacher."""
TEACHER_FOLDER = "teacher"
WEIGHTS = "model.safetensors"
BATCH = 512
RATE = 2e-3
"""Batches are larger than on a CPU, so that a GPU is busy, and the rate with them."""
TOKENS_A_STEP = 27 * BATCH
"""Both kinds of text in proportion to their sizes: half of so many tokens would be the same few everyday sentences."""
_LARGE = (
    "corpus.mix=null",
    *training(per_device_train_batch_size=BATCH, learning_rate=RATE, dataloader_num_workers=8),
)


def student_for(tokens: float, *, is_narrow: bool = False) -> Budget:
    """A student and its training on so many tokens."""
    steps = steps_for(tokens, TOKENS_A_STEP)
    if is_narrow:
        return half_as_wide(steps, (1, 3, 6), _LARGE, part="gpu")
    return Budget("gpu", Student(steps), overrides=_LARGE)


STUDENTS = {
    "3x384, 100 M": student_for(100e6),
    "3x192, 100 M": student_for(100e6, is_narrow=True),
    "3x384, 300 M": student_for(300e6),
}


def pack(data: Path, folder: Path) -> None:
    """Write what travels, and print the megabytes of each file."""
    from safetensors.torch import load_file, save_file

    from limbeck.models.locating import resolve_model

    shutil.rmtree(folder, ignore_errors=True)
    source = Path(resolve_model(TEACHER))
    shutil.copytree(source, folder / TEACHER_FOLDER, ignore=shutil.ignore_patterns(WEIGHTS, "*.bin", "*.onnx"))
    half = {name: tensor.half() for name, tensor in load_file(source / WEIGHTS).items()}
    save_file(half, folder / TEACHER_FOLDER / WEIGHTS, metadata={"format": "pt"})
    compress(folder / TEACHER_FOLDER / WEIGHTS)

    for name in SCORED:
        shutil.copyfile(find(data, name), folder / name)
        compress(folder / name)

    # Both kinds of text travel as the files that `budgets.py` would write, so that they are not made again there.
    texts = Texts(data, folder / "text", wikipedia_files=WIKIPEDIA_FILES)
    for kind in budgets.BOTH:
        compress(Path(texts.source(kind)))
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in files:
        print(f"{path.stat().st_size / 2**20:7.2f} MiB  {path.relative_to(folder)}")
    print(f"{sum(path.stat().st_size for path in files) / 2**20:7.2f} MiB  in all")


def compress(path: Path) -> None:
    """Replace a file by one that is compressed."""
    content = lzma.compress(path.read_bytes(), preset=9)
    path.with_name(f"{path.name}.xz").write_bytes(content)
    path.unlink()


def unpack(packed: Path, folder: Path, dry: bool) -> None:
    """Write the packed files as they were, the teacher with weights of full length."""
    from safetensors.torch import load_file, save_file

    for path in packed.rglob("*"):
        target = folder / path.relative_to(packed)
        if path.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            target.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, target)
    weights = folder / TEACHER_FOLDER / WEIGHTS
    save_file({name: tensor.float() for name, tensor in load_file(weights).items()}, weights, metadata={"format": "pt"})
    if dry:
        for kind in budgets.BOTH:
            path = folder / "text" / f"{kind}.txt"
            path.write_text(path.read_text(encoding="utf-8")[:100_000], encoding="utf-8")


def run(packed: Path, output: Path, only: Sequence[str], minutes: float, dry: bool) -> None:
    """Train and score students, until the minutes are over."""
    import limbeck

    began = time.monotonic()
    work = output / "work"
    unpack(packed, work, dry)
    teacher = str(work / TEACHER_FOLDER)
    texts = Texts(work, work / "text")
    rows = output / "gpu_budgets.jsonl"
    scores = Scores(work, teacher)
    for name in only:
        if time.monotonic() - began > 60 * minutes:
            print(f"The time is over before {name}.", flush=True)
            break
        budget = STUDENTS[name]
        if dry:
            small = training(per_device_train_batch_size=4, dataloader_num_workers=0)
            student = replace(budget.student, steps=3)
            budget = replace(budget, student=student, overrides=(*budget.overrides, *small))
        folder = work / name.replace(" ", "-").replace(",", "")
        recipe = budget.recipe(texts, folder, seed=1)
        recipe["teacher"]["model"] = teacher
        result = limbeck.distill(recipe, overwrite=True)
        [stage] = result.record["stages"]
        row: dict[str, Any] = {"student": name, "part": "gpu", "seed": 1, "dry": dry}
        row |= {key: stage[key] for key in ("steps", "tokens", "seconds")}
        add_row(row | scores.of(str(result.student)) | made_with(), rows)
        save_trained(Path(result.student), output / f"{folder.name}.safetensors", budget)
    shutil.rmtree(work)


def save_trained(student: Path, path: Path, budget: Budget) -> None:
    """Write the weights that were trained, in float16."""
    from safetensors.torch import load_file, save_file

    has_frozen_embeddings = "stages.0.freeze=[]" not in budget.overrides
    trained: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(student / WEIGHTS).items():
        if has_frozen_embeddings and name.startswith("embeddings."):
            continue
        trained[name] = tensor.half()
    save_file(trained, path)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("--data", type=Path, required=True, help="folder with wikipedia-en, tatoeba, SICK and SQuAD")
    packing.add_argument("--folder", type=Path, required=True, help="folder that travels; it is written anew")
    running = commands.add_parser("run")
    running.add_argument("--folder", type=Path, required=True, help="folder that `pack` wrote")
    running.add_argument("--output", type=Path, required=True, help="folder for rows and weights")
    running.add_argument("--only", help=f"students, between semicolons: {'; '.join(STUDENTS)}")
    running.add_argument("--minutes", type=float, default=8.0, help="begin no student after so many")
    running.add_argument("--dry", action="store_true", help="a few small steps on the CPU")
    arguments = parser.parse_args()
    if arguments.command == "pack":
        pack(arguments.data, arguments.folder)
        return
    only = arguments.only.split(";") if arguments.only else list(STUDENTS)
    unknown = [name for name in only if name not in STUDENTS]
    if unknown:
        parser.error(f"no student {', '.join(unknown)}; known: {'; '.join(STUDENTS)}")
    run(arguments.folder, arguments.output, only, arguments.minutes, arguments.dry)


if __name__ == "__main__":
    main()
