"""Steps that went wrong: the run stops or the step is skipped, and its batch is saved; no step waits for the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from limbeck.core.ranks import same_everywhere
from limbeck.errors import TrainingError
from limbeck.methods.composition import Term
from limbeck.recipe.schema import GuardSpec
from limbeck.training.arrivals import Arrivals
from limbeck.training.bad_batch import save_bad_batch
from limbeck.training.checkpoints import Warn
from limbeck.training.loss_judge import Findings, LossJudge

Batches = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Step:
    """A step whose findings are on their way to the host."""

    number: int
    batches: Batches


class LossGuard:
    """Judges every step before its update, and acts on what it finds as soon as the host can know.

    On a CPU that is at once. On a GPU the findings of a step travel while the next ones run, and the host looks at
    those that have arrived; it waits for the rest only before it logs or saves. A step that is skipped is skipped on
    the device, in time.

    Args:
        terms: The terms of the loss.
        policy: What to do.
        device: Where the terms are.
        folder: The stage's folder, for the batches; every process writes its own.
        warn: Told about every step that is skipped.
    """

    def __init__(
        self, terms: Sequence[Term], policy: GuardSpec, device: torch.device, folder: Path, warn: Warn
    ) -> None:
        self.policy = policy
        self.skipped = 0
        self._names = [term.name for term in terms]
        self._judge = LossJudge([term.weight for term in terms], policy.explosion_factor, device)
        self._zero = torch.zeros(len(terms), dtype=torch.float64, device=device)
        self._step_terms = self._zero
        self._findings: Arrivals[_Step] = Arrivals()
        self._in_a_row = 0
        self._folder = folder
        self._warn = warn

    def note(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of one micro-batch to those of its step."""
        self._step_terms = self._step_terms + torch.stack([terms[name].double() for name in self._names])

    def forget_step(self) -> None:
        """Forget the micro-batches of a step that starts again."""
        self._step_terms = self._zero

    def settle(self, step: int, norm: Tensor | None, batches: Batches, agree: Callable[[Tensor], Tensor]) -> Tensor:
        """Judge a step, all of its micro-batches being noted.

        Args:
            step: The step, from 1.
            norm: Norm of its gradient; None where a loss scale makes it infinite now and then.
            batches: Its micro-batches.
            agree: Sums a tensor over all ranks.

        Returns:
            Bool scalar on the device: whether the step is bad, the same on every rank.

        Raises:
            TrainingError: see `check`.
        """
        terms, self._step_terms = agree(self._step_terms), self._zero
        values = self._judge.judge(terms, terms.new_zeros(()) if norm is None else norm.to(terms.device))
        self._findings.send(values, _Step(step, batches))
        self._look(wait=False)
        return values[0].bool()

    def check(self) -> None:
        """Look at every step that was judged, waiting for those whose findings are still on their way.

        Raises:
            TrainingError: for a step that is bad where the policy is to stop, or too many skipped ones in a row.
        """
        self._look(wait=True)

    def state(self) -> dict[str, Any]:
        """What a resumed run needs, as JSON has it."""
        return {"skipped": self.skipped, "in_a_row": self._in_a_row, **self._judge.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
        self._judge.load(state)

    def _look(self, *, wait: bool) -> None:
        for values, step in self._findings.take(wait=wait):
            found = Findings.read(values)
            if found.bad:
                self._act(step, found)
            else:
                self._in_a_row = 0

    def _act(self, step: _Step, found: Findings) -> None:
        problem = self._describe(step.number, found)
        saved = save_bad_batch(self._folder, step.number, step.batches, problem)
        where = f"; its batch is in '{saved}'" if saved is not None else ""
        if self.policy.on_bad_loss == "stop":
            raise same_everywhere(
                TrainingError(
                    f"{problem}; the run stopped and saved nothing after it{where}. Lower the stage's training."
                    "learning_rate or raise its training.warmup_steps, and start again with --overwrite, or in "
                    "another folder to keep what was saved; or go on with --resume and guard.on_bad_loss: skip."
                )
            )
        self.skipped += 1
        self._in_a_row += 1
        if self._in_a_row > self.policy.skips_in_a_row:
            raise same_everywhere(
                TrainingError(
                    f"{problem}, as in {self.policy.skips_in_a_row} skipped steps right before it{where}. Lower the "
                    "stage's training.learning_rate and start again with --overwrite, or in another folder; or go on "
                    "with --resume and a higher guard.skips_in_a_row."
                )
            )
        self._warn(f"{problem}; the step is skipped{where}.")

    def _describe(self, step: int, found: Findings) -> str:
        for name, value in zip(self._names, found.terms, strict=True):
            if not math.isfinite(value):
                return f"The loss term '{name}' became {value} at step {step}"
        if not math.isfinite(found.norm):
            return f"The norm of the gradient became {found.norm} at step {step}, under a finite loss"
        return (
            f"The loss became {found.loss:.4g} at step {step}, more than {self.policy.explosion_factor:g} times its "
            f"running median {found.median:.4g}"
        )
