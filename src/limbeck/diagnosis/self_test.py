"""A self-test of a few seconds: each kernel against float64, and a whole small run in a temporary folder."""

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from limbeck.benchmark.loss_case import LossCase, measured_objectives
from limbeck.benchmark.loss_errors import errors_of
from limbeck.diagnosis.devices import device_types
from limbeck.diagnosis.findings import Finding
from limbeck.diagnosis.tiny_teacher import random_text, write_teacher
from limbeck.kernels.relation_triton import triton_obstacle
from limbeck.models.loading import load_model
from limbeck.models.quiet import quiet
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.output_folder import claimed_output
from limbeck.training.record import RunRecord
from limbeck.training.run import Run

TOLERANCE = 1e-4
"""Relative error against float64 that float32 stays far below, on numbers of any machine."""
_STEPS = 2
_REPORT = "report it, with all lines of this examination"
_CACHE_VARIABLE = "LIMBECK_CACHE"


def find_self_test() -> Iterator[Finding]:
    """Yield how exact the kernels are, and how a run goes."""
    for device_type in device_types():
        for objective in measured_objectives():
            yield find_error(objective, device_type)
    yield from find_run()


def find_error(objective: str, device_type: str) -> Finding:
    """Compare every backend that can run on a type of device with float64 in plain PyTorch: value and gradient."""
    case = LossCase(
        objective,
        batch=2,
        length=24,
        heads=4,
        teacher_width=32,
        student_width=16,
        classes=97,
        mask="ragged",
        device=device_type,
    )
    backends = list(measured_objectives()[objective].backends)
    # Without a GPU, Triton runs by its interpreter alone, which is for tests.
    has_triton = device_type == "cuda" and triton_obstacle(device_type, torch.float32) is None
    if not has_triton and "triton" in backends:
        backends.remove("triton")

    # The larger error of value and gradient.
    errors = {name: max(backend_errors) for name, backend_errors in errors_of(case, backends).items()}
    # NaN is no error within the tolerance either.
    wrong = [name for name, error in errors.items() if not error <= TOLERANCE]
    name = f"{objective} on {device_type}"
    shown = ", ".join(f"{backend} {error:.0e}" for backend, error in errors.items())
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
        trained = student.state_dict()
        saved = load_model(run.student_folder, pooler=True).state_dict()

    is_same = saved.keys() == trained.keys() and all(torch.equal(saved[key], trained[key].cpu()) for key in saved)
    if is_same:
        seconds = time.monotonic() - started
        yield Finding("student", "ok", f"saved, and loaded back unchanged; {seconds:.1f} s in all")
    else:
        yield Finding("student", "failed", "the loaded model differs from the saved one", _REPORT)


def _judge_losses(output: Path) -> Finding:
    """Check that every step has a loss, and a finite one."""
    [log] = output.glob("stages/1-*/log.jsonl")
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    shown = ", ".join(f"{loss:.3g}" for loss in losses)
    text = f"{_STEPS} steps of minilmv2, losses {shown}"
    if len(losses) == _STEPS and all(map(math.isfinite, losses)):
        return Finding("training", "ok", text, facts={"losses": losses})
    return Finding("training", "failed", text, _REPORT)


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
    cache_before = os.environ.get(_CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="limbeck-self-test-", ignore_cleanup_errors=True) as folder:
        os.environ[_CACHE_VARIABLE] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            del os.environ[_CACHE_VARIABLE]
            if cache_before is not None:
                os.environ[_CACHE_VARIABLE] = cache_before
