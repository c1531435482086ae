"""The rate at which a stage trains on this machine: a copy of its student takes some steps, and is thrown away.

The steps are those of the real loop, with its rows, batches, teacher and optimizer. Nothing of them is left: weights,
random streams and the order of rows are those of a stage that was not measured. A batch has rows of similar length, so
a few steps may have far longer rows than others: the time of a step is that of rows of mean length.
"""

import copy
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState

from limbeck.core.devices import synchronise
from limbeck.core.progress import Report
from limbeck.core.ranks import broadcast
from limbeck.corpus import Tokenizers
from limbeck.methods.teaching import Teaching
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.freezing import freeze_unreached
from limbeck.training.measured_steps import MeasuredSteps
from limbeck.training.module import DistillationModule
from limbeck.training.rows import AnyCorpus
from limbeck.training.stage import prepare_student
from limbeck.training.stage_rows import stage_rows
from limbeck.training.trainer import DistillationTrainer

_SHARE = 0.05
"""Timed steps together last at least this share of the minutes."""
_ENOUGH_SECONDS = 60.0
"""Timed steps together need not last longer than this."""
_MOST_SHARE = 0.25
"""The measurement, warm-up included, ends after this share of the minutes, even with fewer timed steps than wanted."""
_WARM_UP_STEPS = 2
"""Steps before the timed ones: the first ones allocate memory and compile."""
_LEAST_STEPS = 5
"""Fewest timed steps, unless the measurement ends by `_MOST_SHARE`."""
_NO_END = 1_000_000
"""More steps than are ever timed."""


def measure_steps(
    plan: StagePlan,
    student: PreTrainedModel,
    teaching: Teaching,
    tokenizers: Tokenizers,
    corpus: AnyCorpus,
    *,
    seed: int,
    report: Report,
) -> MeasuredSteps:
    """Measure the time of a step, and how many steps a stage takes in its minutes; every process calls this.

    The minutes are the time of the steps alone: the measurement, held-out losses, development scores and checkpoints
    take extra time.

    Args:
        plan: The stage, with `max_minutes`.
        student: Its student, not tapped; copied.
        teaching: Gives the teacher's streams; closed in the end.
        tokenizers: Those of student and teacher.
        corpus: Its text or rows.
        seed: The seed of the stage.
        report: Receives progress.
    """
    minutes = float(plan.spec.training["max_minutes"])
    seconds = minutes * 60
    clock = _Clock(seconds, report, f"measuring the rate of stage '{plan.spec.title}'")
    with _random_streams_kept(), tempfile.TemporaryDirectory() as folder:
        _take_steps(plan, student, teaching, tokenizers, corpus, seed=seed, folder=Path(folder), clock=clock)
    # The steps that fit into the minutes. One is taken even if it takes longer.
    steps = max(1, int(seconds / clock.seconds_per_step))
    # The main process decides for all.
    return broadcast(MeasuredSteps(minutes, steps, clock.seconds_per_step))


class _Clock(TrainerCallback):
    """Times the steps of a training, and ends it after enough of them.

    Args:
        seconds: Time of the stage, from which that of the measurement follows.
        report: Receives progress.
        title: What is done, for the progress.

    Attributes:
        seconds_per_step: The mean time of a timed step.
        timed: The first timed step, from 0, and the one behind the last.
    """

    def __init__(self, seconds: float, report: Report, title: str) -> None:
        self.seconds_per_step = 0.0
        self.timed = (0, 0)
        self._enough_seconds = min(_SHARE * seconds, _ENOUGH_SECONDS)
        self._most_seconds = _MOST_SHARE * seconds
        self._report = report
        self._title = title
        self._began = 0.0
        # The time at which each step ended.
        self._ends: list[float] = []

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Show that the measurement begins."""
        self._began = time.monotonic()
        self._report(0.0, self._title)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Time the steps after the warm-up, and stop the training when enough was timed or it takes too long."""
        synchronise(args.device)
        now = time.monotonic()
        self._ends.append(now)
        steps = len(self._ends)
        if steps == 1:
            return
        # The last step is timed, even where it is one of the warm-up: it may be the last that there is time for.
        warm_up_steps = min(_WARM_UP_STEPS, steps - 1)
        timed_steps = steps - warm_up_steps
        timed_seconds = now - self._ends[warm_up_steps - 1]
        self.seconds_per_step = timed_seconds / timed_steps
        self.timed = (warm_up_steps, steps)

        # The measurement ends by one of two rules, and its progress is that of the rule which is nearer to its end.
        share_of_enough = min(timed_steps / _LEAST_STEPS, timed_seconds / self._enough_seconds)
        share_of_most = (now - self._began) / self._most_seconds
        share = max(share_of_enough, share_of_most)
        self._report(min(share, 1.0), self._title)
        # All processes stop after the same step.
        if broadcast(share >= 1):
            control.should_training_stop = True


def _take_steps(
    plan: StagePlan,
    student: PreTrainedModel,
    teaching: Teaching,
    tokenizers: Tokenizers,
    corpus: AnyCorpus,
    *,
    seed: int,
    folder: Path,
    clock: _Clock,
) -> None:
    """Train a copy of a student until the clock stops it."""
    # The steps are those of the stage, without anything that is kept, on a copy that is thrown away.
    learner = copy.deepcopy(student)
    prepare_student(learner, plan)
    rows = stage_rows(plan, corpus, tokenizers, seed)
    student_head, _ = plan.sentence_heads()
    module = DistillationModule(learner, teaching, plan.terms, pooling=student_head)
    try:
        freeze_unreached(module, rows.probe())
        # The arguments of the stage, but for saving, measuring, logging and the end, which the clock sets.
        training = dict(plan.spec.training)
        del training["max_minutes"]
        training["max_steps"] = _NO_END
        for name in ("save_strategy", "eval_strategy", "logging_strategy"):
            training[name] = "no"
        training["report_to"] = "none"
        trainer = DistillationTrainer(
            module,
            policy=plan.spec.guard,
            args=build_arguments(training, output=str(folder), seed=seed, evaluates=False),
            callbacks=[clock],
            **rows.arguments(),
        )
        trainer.train()
        clock.seconds_per_step /= trainer.loader.relative_length(*clock.timed)
    finally:
        module.close()


@contextmanager
def _random_streams_kept() -> Iterator[None]:
    """Set all random streams back at the end of the block."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
