"""The line of a training's progress: what it says of a loss that is older than the step."""

import io
from types import SimpleNamespace

from rich.console import Console

from limbeck.core import progress_bars
from limbeck.training.callbacks import ProgressReporter


def test_a_loss_of_an_earlier_step_has_its_step(monkeypatch):
    monkeypatch.setattr(progress_bars, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=200)
    reporter = ProgressReporter("vectors", console)
    state = SimpleNamespace(is_world_process_zero=True, max_steps=60, global_step=9)
    arguments = SimpleNamespace(torch_compile=False)
    reporter.on_train_begin(arguments, state, None)
    for state.global_step in (10, 11, 19, 20):
        reporter.on_step_end(arguments, state, None)
        if state.global_step % 10 == 0:
            logs = {"loss": 10.0 + state.global_step, "tokens": 1000.0, "seconds": 1.0}
            reporter.on_log(arguments, state, None, logs=logs)
    reporter.on_train_end(arguments, state, None)
    parts = [line.split(", ")[:2] for line in console.file.getvalue().splitlines() if "loss" in line]
    assert parts == [
        ["vectors: step 10/60", "loss 20.0000"],
        ["vectors: step 11/60", "loss 20.0000 at step 10"],
        ["vectors: step 19/60", "loss 20.0000 at step 10"],
        ["vectors: step 20/60", "loss 20.0000 at step 10"],
        ["vectors: step 20/60", "loss 30.0000"],
    ]
