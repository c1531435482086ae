"""A self-test of a few seconds: each kernel is compared with float64, and a small run is made in a temporary folder.

An *objective* is a function that computes a loss, by one of several *backends*, such as plain PyTorch or a kernel.
"""

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

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
"""Training steps of the small run."""
_REPORT = "report it, with all lines of this examination"
"""The way out of a failure that a user can do nothing about."""
_CACHE_VARIABLE = "LIMBECK_CACHE"
"""The environment variable that names the folder of built corpora."""


def find_self_test() -> Iterator[Finding]:
    """Yield the findings on the errors of the kernels, then those on the small run."""
    for device_type in device_types():
        for objective in measured_objectives():
            yield find_error(objective, device_type)
    yield from find_run()


def find_error(objective: str, device_type: str) -> Finding:
    """Compare the value and the gradient of an objective with those of plain PyTorch in float64.

    Every backend that can run on the type of device is compared.
    """
    # Small sizes, which take no time, with samples of different lengths and so with padding.
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

    # Of each backend, the larger one of the errors of value and gradient.
    error_by_backend = {backend: max(errors) for backend, errors in errors_of(case, backends).items()}
    # Written with `not`, the condition holds for an error of NaN too.
    wrong_backends = [backend for backend, error in error_by_backend.items() if not error <= TOLERANCE]
    name = f"{objective} on {device_type}"
    shown = ", ".join(f"{backend} {error:.0e}" for backend, error in error_by_backend.items())
    text = f"relative errors against float64: {shown}"
    if wrong_backends:
        way_out = f"choose a backend other than {', '.join(wrong_backends)}, and {_REPORT}"
        return Finding(name, "failed", text, way_out=way_out, facts=error_by_backend)
    return Finding(name, "ok", text, facts=error_by_backend)


def find_run() -> Iterator[Finding]:
    """Distil a random teacher for two steps, and check the corpus, the losses and the saved student.

    An error of the run is raised: the examination makes a finding of it.
    """
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
        # The weights are read while the folder is there; it is removed at the end of the block.
        trained_weights = student.state_dict()
        loaded_weights = load_model(run.student_folder, pooler=True).state_dict()

    if _are_equal(loaded_weights, trained_weights):
        seconds = time.monotonic() - started
        yield Finding("student", "ok", f"saved, and loaded back unchanged; {seconds:.1f} s in all")
    else:
        yield Finding("student", "failed", "the loaded model differs from the saved one", way_out=_REPORT)


def _are_equal(loaded: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> bool:
    """Whether weights on the CPU have the names and the values of others, on any device."""
    if loaded.keys() != trained.keys():
        return False
    return all(torch.equal(loaded[name], trained[name].cpu()) for name in loaded)


def _judge_losses(output: Path) -> Finding:
    """Check the losses of the small run: every step has one, and all are finite.

    Args:
        output: The folder of the run.
    """
    # Each stage writes its log into the folder `stages/NUMBER-NAME`. The small run has one stage.
    [log] = output.glob("stages/1-*/log.jsonl")
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    # Every step is logged with its loss. Other entries, such as that of the end of the training, have none.
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    every_step_has_a_loss = len(losses) == _STEPS
    losses_are_finite = all(map(math.isfinite, losses))

    shown = ", ".join(f"{loss:.3g}" for loss in losses)
    text = f"{_STEPS} steps of minilmv2, losses {shown}"
    if every_step_has_a_loss and losses_are_finite:
        return Finding("training", "ok", text, facts={"losses": losses})
    return Finding("training", "failed", text, way_out=_REPORT)


def _recipe(folder: Path) -> dict[str, Any]:
    """Return the recipe of the small run.

    Args:
        folder: The folder with the teacher and the text; the run goes to its folder `run`.
    """
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
    """Make a temporary folder, and set the cache of corpora to a folder in it, so that the user's cache is not touched.

    At the end, the folder is removed, and the environment is as it was.
    """
    cache_before = os.environ.get(_CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="limbeck-self-test-", ignore_cleanup_errors=True) as folder:
        os.environ[_CACHE_VARIABLE] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            del os.environ[_CACHE_VARIABLE]
            if cache_before is not None:
                os.environ[_CACHE_VARIABLE] = cache_before
