"""Tiny runs of every registered method, on text and on labelled rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from limbeck.methods import METHODS

#: Methods that compare vectors without a learned map.
EQUAL_WIDTHS = ("distilbert", "bert_pkd")
#: What a method needs beside its defaults so that a tiny run shows what it does.
OPTIONS = {
    "reranker": {"loss": "listwise_kl", "temperature": 0.1, "hidden_weight": 1, "relation_weight": 1},
    "minilmv2": {"relation_heads": 4},
    "bert_pkd": {"patient_weight": 1.0, "temperature": 2.0},
}
TRAINING = {
    "per_device_train_batch_size": 8,
    "learning_rate": 3e-3,
    "warmup_steps": 0,
    "bf16": False,
    "logging_steps": 1,
    "eval_strategy": "no",
    "save_strategy": "no",
}


def stages_of(name: str, **training) -> list[dict]:
    """The stages that make a method up, with tiny training arguments."""
    stages = METHODS[name].stages or ({"name": name},)
    return [
        {
            "name": f"stage-{number}",
            "method": {**stage, **OPTIONS.get(stage["name"], {})},
            "training": {**TRAINING, **training},
        }
        for number, stage in enumerate(stages, start=1)
    ]


def tiny_run(name: str, teacher: Path, corpus: dict, output: Path, **training) -> dict:
    """A recipe of a method for a tiny teacher."""
    width, heads = (48, 4) if name in EQUAL_WIDTHS else (24, 4)
    return {
        "output": str(output),
        "seed": 3,
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": 2, "hidden": width, "heads": heads, "ffn": 48}, "dropout": 0.0},
        "corpus": corpus,
        "stages": stages_of(name, **training),
        "evaluation": {"enabled": False},
    }


def write_rows(folder: Path, task: str, rows: int = 48) -> dict:
    """Write labelled rows in a usual layout, and return the recipe's `corpus`."""
    folder.mkdir(parents=True, exist_ok=True)
    if task == "question_answering":
        return _write_questions(folder, rows)
    if task == "ranking":
        return write_queries(folder, rows // 3)
    if task == "token_classification":
        return _write_sentences(folder, rows)
    header = ["sentence1", "sentence2", "label"]
    path = folder / f"{task}.tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
        writer.writerow(header)
        for number in range(rows):
            labels = {"classification": number % 3, "multi_label": ("", "0", "2", "0|1")[number % 4]}
            label = labels.get(task, number % 11 / 2)
            words = ["the", "teacher", "student", "model", "layer", "text"]
            writer.writerow([f"{words[number % 6]} is {number}", f"{words[number % 5]} of {number}", label])
    spec = {"kind": task, "pair_column": "sentence2"}
    return {"sources": [str(path)], "length": 24, "text_column": "sentence1", "held_out": 0.1, "task": spec}


def _write_sentences(folder: Path, rows: int) -> dict:
    path = folder / "sentences.conll"
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            words = [*("the", "teacher", "student", "model", "layer", "text")[number % 4 :], str(number)]
            file.write("".join(f"{word} {(number + place) % 3}\n" for place, word in enumerate(words)) + "\n")
    spec = {"kind": "token_classification"}
    return {"sources": [str(path)], "length": 24, "held_out": 0.1, "task": spec}


def _write_questions(folder: Path, rows: int) -> dict:
    path = folder / "questions.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            context = f"the text {number} is for the student and the teacher of layer {number % 7}"
            answer = "the teacher"
            row = {
                "question": f"who is with student {number}?",
                "context": context,
                "answers": {"text": [answer], "answer_start": [context.index(answer)]},
            }
            file.write(json.dumps(row) + "\n")
    spec = {"kind": "question_answering", "stride": 8}
    return {"sources": [str(path)], "length": 48, "held_out": 0.1, "task": spec}


def write_queries(folder: Path, queries: int, documents: int = 3) -> dict:
    """Write queries with a relevant document and others, and return the recipe's `corpus`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "queries.jsonl"
    words = ["teacher", "student", "model", "layer", "text"]
    with path.open("w", encoding="utf-8") as file:
        for number in range(queries):
            others = [f"the {words[(number + n) % 5]} is {n}" for n in range(1, documents)]
            row = {
                "query": f"who is {number}?",
                "positive": f"the {words[number % 5]} is {number}",
                "negatives": others,
            }
            file.write(json.dumps(row) + "\n")
    spec = {"kind": "ranking", "document_columns": ["positive", "negatives"]}
    return {"sources": [str(path)], "length": 24, "held_out": 0.1, "task": spec}


def run_card(student: Path) -> list:
    """Run the code of a student's model card, and return what it prints."""
    printed: list = []
    code = (student / "README.md").read_text().split("```python\n")[1].split("```")[0]
    exec(compile(code.replace("path/to/student", str(student)), "card", "exec"), {"print": printed.append})
    return printed
