"""A self-test of a few seconds: each kernel against float64, and a whole small run in a temporary folder."""

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import BertConfig, BertModel, BertTokenizer

from limbeck.benchmark.loss_case import LossCase, measured_objectives
from limbeck.benchmark.loss_errors import errors_of
from limbeck.diagnosis.checks import Finding
from limbeck.diagnosis.machine import accelerator_kind
from limbeck.errors import ModelError
from limbeck.kernels.relation_triton import triton_obstacle
from limbeck.models import vector_check
from limbeck.models.loading import load_model
from limbeck.models.quiet import quiet
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.output_folder import claimed_output
from limbeck.training.record import RunRecord
from limbeck.training.run import Run

# A teacher for a self-test: two layers at random values, with a tokenizer of a few words and text of them.


_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SUBJECTS = ("the river", "the teacher", "a still", "my student")
_VERBS = ("moves", "teaches", "makes", "learns")
_OBJECTS = ("slowly", "a layer", "a small model", "by the hour")
_LENGTH = 32


def random_text() -> str:
    """Return every sentence that the words make, each a document."""
    return "\n\n".join(f"{' '.join(words)} ." for words in product(_SUBJECTS, _VERBS, _OBJECTS))


def write_teacher(folder: Path, seed: int = 0) -> None:
    """Write a BERT, 2 layers, 32 wide, 4 heads, with its tokenizer; the random stream is left as it was."""
    words = sorted(set(random_text().split()))
    vocabulary = {token: number for number, token in enumerate((*_SPECIAL, *words))}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=_LENGTH, **sizes)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        BertTokenizer(vocab=vocabulary, model_max_length=_LENGTH).save_pretrained(folder)


TOLERANCE = 1e-4
"""Relative error against float64 that float32 stays far below, on numbers of any machine."""

_STEPS = 2
_REPORT = "report it, with all lines of this examination"


def find_self_test() -> Iterator[Finding]:
    """Yield how exact the kernels are, and how a run goes."""
    for kind in filter(None, ("cpu", accelerator_kind())):
        for objective in measured_objectives():
            yield find_error(objective, kind)
    yield from find_run()


def find_error(objective: str, kind: str) -> Finding:
    """Compare every backend that can run on a kind of device with float64 in plain PyTorch: value and gradient."""
    case = LossCase(
        objective, 2, 24, heads=4, teacher_width=32, student_width=16, classes=97, mask="ragged", device=kind
    )
    backends = measured_objectives()[objective].backends
    # Triton's interpreter is for tests alone.
    triton = kind == "cuda" and triton_obstacle(kind, torch.float32) is None
    runs = [name for name in backends if name != "triton" or triton]
    errors = {name: max(measured) for name, measured in errors_of(case, runs).items()}
    wrong = [name for name, error in errors.items() if not error <= TOLERANCE]
    shown = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    name = f"{objective} on {kind}"
    text = f"relative errors against float64: {shown}"
    if wrong:
        return Finding(name, "failed", text, f"choose a backend other than {', '.join(wrong)}, and {_REPORT}", errors)
    return Finding(name, "ok", text, facts=errors)


def find_run() -> Iterator[Finding]:
    """Distil a random teacher for two steps: the corpus, the losses, and the student that is saved."""
    started = time.monotonic()
    with _workplace() as folder, quiet():
        write_teacher(folder / "teacher")
        (folder / "text.txt").write_text(random_text(), encoding="utf-8")
        recipe = load_recipe(_recipe(folder))
        with claimed_output(recipe, resume=False, overwrite=False) as output:
            record = RunRecord(output, {"name": recipe.name})
            run = Run(plan_run(recipe), output, record, Console(quiet=True))
            student = run.train()
        tokens = run.corpora[0].tokens
        yield Finding("corpus", "ok", f"built: {tokens:,} tokens", facts={"tokens": tokens})
        yield _judge_losses(output)
        saved = load_model(run.student_folder, pooler=True).state_dict()
        trained = student.state_dict()
        same = saved.keys() == trained.keys() and all(torch.equal(saved[key], trained[key].cpu()) for key in saved)
    fine = Finding("student", "ok", f"saved, and loaded back unchanged; {time.monotonic() - started:.1f} s in all")
    yield fine if same else Finding("student", "failed", "the loaded model differs from the saved one", _REPORT)


def _judge_losses(output: Path) -> Finding:
    """Check that every step has a loss, and a finite one."""
    log = next(output.glob("stages/1-*/log.jsonl")).read_text(encoding="utf-8")
    losses = [entry["loss"] for entry in map(json.loads, log.splitlines()) if "loss" in entry]
    text = f"{_STEPS} steps of minilmv2, losses {', '.join(f'{loss:.3g}' for loss in losses)}"
    if len(losses) == _STEPS and all(map(math.isfinite, losses)):
        return Finding("training", "ok", text, facts={"losses": losses})
    return Finding("training", "failed", text, _REPORT)


def find_vectors(model: str) -> Iterator[Finding]:
    """Compare the sentence vectors of a model with those that sentence-transformers makes."""
    name = f"sentence vectors of {model}"
    try:
        difference = vector_check.compare_with_sentence_transformers(model)
    except ModelError as error:  # Of the model, not of limbeck here.
        yield Finding(name, "failed", str(error))
        return
    if difference is None:
        text = "the model's files do not define any"
        if not vector_check.is_installed():
            text = "not compared: sentence-transformers is not installed"
        yield Finding(name, "absent", text)
        return
    exact = difference <= vector_check.LARGEST_DIFFERENCE
    text = vector_check.describe_difference(difference)
    yield Finding(name, "ok" if exact else "failed", text, None if exact else _REPORT, {"difference": difference})


def _recipe(folder: Path) -> dict[str, Any]:
    training = {"max_steps": _STEPS, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "logging_steps": 1}
    return {
        "name": "self-test",
        "output": str(folder / "run"),
        "teacher": {"model": str(folder / "teacher")},
        "student": {"shape": {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32}},
        "corpus": {"sources": [str(folder / "text.txt")], "length": 16, "minimum_tokens": 1},
        "stages": [{"method": {"name": "minilmv2", "relation_heads": 4}, "training": training}],
        "evaluation": {"enabled": False},
    }


@contextmanager
def _workplace() -> Iterator[Path]:
    """Give a temporary folder that corpora are cached in too, so that the user's cache stays as it is."""
    before = {name: value for name, value in os.environ.items() if name == "LIMBECK_CACHE"}
    with tempfile.TemporaryDirectory(prefix="limbeck-self-test-", ignore_cleanup_errors=True) as folder:
        os.environ["LIMBECK_CACHE"] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            del os.environ["LIMBECK_CACHE"]
            os.environ.update(before)
