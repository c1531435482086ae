"""How often the training loop waits for the device, in steps of limbeck's trainer between the first and the last.

On a GPU PyTorch itself tells every operation that waits. In a dry run calls that would wait are counted by their
names, those of branches that a CPU alone takes among them, and the places that make them are listed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.parts import Request, Row
from torch.overrides import TorchFunctionMode
from transformers import TrainerCallback

from limbeck.benchmark.step_setup import StepRequest, StepSetup, set_up_step
from limbeck.corpus.batches.collating import PadCollator
from limbeck.models.students import build_student
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.trainer import DistillationTrainer

FULL = StepRequest(teacher="12x768", student="6x384", batch=64, length=128, ragged=True, dtype="bfloat16")
TOY = StepRequest(teacher="2x48", student="1x24", batch=4, length=16, ragged=True, dtype="bfloat16", vocabulary=100)
METHODS = ("minilmv2", "hidden_states", "output_distribution")
FIRST, LAST = 3, 12
"""Steps that are watched: before them everything is made that is made once, and after them the log waits."""
WAITING = {"item", "tolist", "cpu", "numpy", "nonzero", "masked_select", "__bool__", "__float__", "__int__", "unique"}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random rows in memory, with their columns by name."""

    def __init__(self, setup: StepSetup, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(setup.length // 2, setup.length + 1, (count,), generator=generator).tolist()
        words = setup.student_shape.vocabulary
        ids = [torch.randint(5, words, (length,), generator=generator).tolist() for length in lengths]
        self.rows = [{"input_ids": row, "length": len(row)} for row in ids]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        return [row[key] for row in self.rows] if isinstance(key, str) else self.rows[key]


def place() -> str:
    """The nearest caller that is neither PyTorch's nor this file's, and not within the mode."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if f"{os.sep}torch{os.sep}" not in name and name != __file__:
            break
        frame = frame.f_back
    return short(frame.f_code.co_filename, frame.f_lineno)


def short(file: str, line: int) -> str:
    """A file below its package, and a line."""
    return f"{'/'.join(Path(file).parts[-3:])}:{line}"


class Waits(TorchFunctionMode):
    """Counts calls that make a host wait for a device, by place."""

    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        by_mask = name == "__getitem__" and isinstance(args[1], torch.Tensor) and args[1].dtype == torch.bool
        if name in WAITING or by_mask:
            self.found[place()] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def told_by_cuda(found: Counter[str]) -> Iterator[None]:
    """Count the operations that PyTorch says wait, by place."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in said if "called a synchronizing" in str(one.message)]
    found.update(short(one.filename, one.lineno) for one in waits)


class Watch(TrainerCallback):
    """Watches the steps from `FIRST` to `LAST`."""

    def __init__(self, watching: AbstractContextManager[Any]) -> None:
        self._watching, self._stack = watching, ExitStack()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == FIRST:
            self._stack.enter_context(self._watching)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == LAST:
            self._stack.close()


def measure(request: Request) -> Iterator[Row]:
    """Train each method a few steps, and count."""
    for method in METHODS:
        asked = StepRequest(**{**vars(TOY if request.dry else FULL), "method": method, "device": request.device})
        setup, found = set_up_step(asked), Counter[str]()
        teacher = build_student(setup.teacher, seed=1, head=setup.teacher_head).to(setup.teacher_dtype)
        student = build_student(setup.student, seed=0, head=setup.student_head)
        module = DistillationModule(student, LiveTeaching(teacher, setup.terms), setup.terms)
        rows, collate = Rows(setup, setup.batch * (LAST + 2)), PadCollator(pad_token_id=0)
        freeze_unreached(module, collate(rows.rows[:2]))
        training = {**setup.training, "max_steps": LAST + 1, "logging_steps": LAST + 1, "save_strategy": "no"}
        watching = Waits(found) if request.dry else told_by_cuda(found)
        with tempfile.TemporaryDirectory() as folder:
            DistillationTrainer(
                module,
                args=build_arguments(training, output=folder, seed=0, evaluates=False),
                train_dataset=rows,
                data_collator=collate,
                callbacks=[Watch(watching)],
            ).train()
        steps = LAST - FIRST + 1
        yield {"method": method, "steps": steps, "syncs_a_step": found.total() / steps, "places": dict(found)}
