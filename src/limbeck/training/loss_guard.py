"""`LossGuard`: judges the loss of every step, and skips or stops at a bad one, whose batch it saves.

A step is *bad* if a term or the gradient is not finite, or if its loss is many times the median of the losses of the
good steps before. The *verdict* of a step is a tensor with this judgement and the numbers that led to it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from limbeck.core.ranks import process_count, process_index, raised_on_all_ranks
from limbeck.errors import TrainingError
from limbeck.methods.term import Term
from limbeck.recipe.stages import GuardSpec
from limbeck.training.arrivals import Arrivals
from limbeck.training.gathering import sum_over_ranks
from limbeck.training.warn import Warn

WINDOW = 64
"""Number of the last good steps whose median loss a new loss is compared with."""
_ENOUGH_STEPS = 16
"""Number of good steps from which on losses are compared; the median of fewer says little."""
FOLDER = "bad_batches"
"""Folder, in that of a stage, with the batches of its bad steps."""
_MOST_BATCHES = 20
"""Most bad steps of each process whose batches are saved."""
Batches = Sequence[Mapping[str, Any]]
"""The micro-batches of a step."""


def save_bad_batch(folder: Path, step: int, batches: Sequence[Mapping[str, Any]], problem: str) -> Path | None:
    """Save the micro-batches of a bad step, unless those of twenty bad steps are saved already.

    Args:
        folder: The stage's folder.
        step: The step, from 1.
        batches: Its micro-batches; tensor `x` of the second one is saved as `1.x`.
        problem: The problem in words; it is in the file's metadata beside the step.

    Returns:
        The file, of which each of several processes writes its own. None if enough are saved, if there is nothing to
        save, or if the disk fails: an error here must not hide the bad loss.
    """
    tensors: dict[str, Tensor] = {}
    for index, batch in enumerate(batches):
        for name, value in batch.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value.detach().cpu().contiguous()
    if not tensors:
        return None

    process = f".process-{process_index()}" if process_count() > 1 else ""
    target = folder / FOLDER / f"step-{step}{process}.safetensors"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files = list(target.parent.glob("step-*.safetensors"))
        # A resumed run may come to the same step again; its file is then replaced, even if there are enough.
        is_full = len(files) >= _MOST_BATCHES * process_count()
        if is_full and not target.exists():
            return None
        save_file(tensors, str(target), metadata={"step": str(step), "problem": problem})
    except (OSError, SafetensorError):
        return None
    return target


class LossGuard:
    """Judges every step before its update, and acts on a bad one as soon as the host knows.

    Terms, loss and gradient are judged on the device that computed them. On a CPU the host knows at once. From a GPU
    the verdict of a step travels while the next ones run, and the host looks at those that have arrived; it waits for
    the rest only before it logs or saves. A step that is skipped is skipped on the device, in time.

    Args:
        terms: The terms of the loss.
        policy: The recipe's options: when a loss is too large, and whether to skip a bad step or stop.
        device: Device of the terms.
        folder: The stage's folder, for the batches; every process writes its own.
        warn: Receives a line on every step that is skipped.

    Attributes:
        skipped: Steps that were skipped.
    """

    def __init__(
        self, terms: Sequence[Term], policy: GuardSpec, device: torch.device, folder: Path, warn: Warn
    ) -> None:
        self.policy = policy
        self.skipped = 0
        # Skipped steps since the last good one.
        self._in_a_row = 0
        self._names = [term.name for term in terms]
        self._weights = torch.tensor([term.weight for term in terms], dtype=torch.float64, device=device)
        # Sums of the terms over the micro-batches of the present step.
        self._step_terms = torch.zeros_like(self._weights)
        # The losses of the last good steps, NaN where there were fewer, and the number of all good steps.
        self._losses = torch.full((WINDOW,), torch.nan, dtype=torch.float64, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int64, device=device)
        self._verdicts: Arrivals[tuple[int, Batches]] = Arrivals()
        self._folder = folder
        self._warn = warn

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of one micro-batch to the sums of its step."""
        self._step_terms = self._step_terms + torch.stack([terms[name].double() for name in self._names])

    def forget_step(self) -> None:
        """Forget the micro-batches of a step that starts again."""
        self._step_terms = torch.zeros_like(self._weights)

    def settle(self, step: int, norm: Tensor | None, batches: Batches) -> Tensor:
        """Judge a step once all of its micro-batches have been noted, and act on earlier verdicts that have arrived.

        Args:
            step: The step, from 1.
            norm: Norm of its gradient. None if it is not to be judged, since a loss scale makes it infinite now and
                then.
            batches: Its micro-batches.

        Returns:
            Bool scalar on the device: whether the step is bad, the same on every rank.

        Raises:
            TrainingError: see `check`.
        """
        terms = sum_over_ranks(self._step_terms)
        self.forget_step()
        # A norm that is not to be judged counts as 0, which passes every test.
        norm = terms.new_zeros(()) if norm is None else norm.to(terms)
        is_bad, verdict = self._judge(terms, norm)
        # The verdict travels to the host while the next steps run.
        self._verdicts.send(verdict, (step, batches))
        self._act_on_verdicts(wait=False)
        return is_bad

    def check(self) -> None:
        """Act on every step that was judged, waiting for the verdicts that are still on their way.

        Raises:
            TrainingError: for a bad step where the policy is to stop, or too many skipped ones in a row.
        """
        self._act_on_verdicts(wait=True)

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed run, as JSON has it; None stands for no loss."""
        losses = [None if math.isnan(value) else value for value in self._losses.tolist()]
        return {"skipped": self.skipped, "in_a_row": self._in_a_row, "losses": losses, "good": int(self._good_steps)}

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state: Returned by `state`.
        """
        self.skipped = state["skipped"]
        self._in_a_row = state["in_a_row"]
        losses = [torch.nan if value is None else value for value in state["losses"]]
        self._losses = self._losses.new_tensor(losses)
        self._good_steps = self._good_steps.new_tensor(state["good"])

    def _judge(self, terms: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Judge a step on its device, and remember its loss if it is good.

        Returns:
            Whether the step is bad, a bool scalar; and the verdict for the host, float64 `[4 + terms]`: 1 for a bad
            step and 0 for a good one; its loss; the median of the losses before it, NaN while there are too few, or
            without a bound on the loss; the norm of its gradient; its terms.
        """
        loss = (self._weights * terms).sum()
        # A loss explodes if it is more than so many times the median of the last losses; None sets no bound.
        factor = self.policy.explosion_factor
        is_bad = ~(terms.isfinite().all() & norm.isfinite())
        median = torch.full_like(loss, torch.nan)
        # No `if` may ask for a value of a tensor here, or the host would wait for the device.
        if factor is not None:
            # Without a dimension, PyTorch's `nanmedian` would make the host wait too.
            median = torch.where(self._good_steps >= _ENOUGH_STEPS, self._losses.nanmedian(0).values, median)
            # While the median is NaN, no loss is above it.
            is_bad = is_bad | (loss > factor * median)
            # A good loss takes the place of the oldest one in the window of the last losses, which is used as a ring.
            is_oldest = torch.arange(WINDOW, device=loss.device) == self._good_steps % WINDOW
            self._losses = torch.where(is_oldest & ~is_bad, loss, self._losses)
            self._good_steps = self._good_steps + (~is_bad).long()
        verdict = torch.cat([torch.stack([is_bad.double(), loss, median, norm]), terms])
        return is_bad, verdict

    def _act_on_verdicts(self, *, wait: bool) -> None:
        """Act on the verdicts that have arrived, or with `wait` on all."""
        for verdict, (step, batches) in self._verdicts.take(wait=wait):
            # `_judge` has put the numbers together in this order.
            is_bad, loss, median, norm, *terms = verdict.tolist()
            if not is_bad:
                self._in_a_row = 0
                continue
            problem = self._describe_problem(step, loss, median, norm, terms)
            self._skip_or_stop(step, batches, problem)

    def _skip_or_stop(self, step: int, batches: Batches, problem: str) -> None:
        """Save the batches of a bad step, then warn that the step was skipped, or stop the run.

        Raises:
            TrainingError: if the run is to stop.
        """
        file = save_bad_batch(self._folder, step, batches, problem)
        where = f"; its batch is in '{file}'" if file is not None else ""
        if self.policy.on_bad_loss == "stop":
            line = (
                f"{problem}; the run stopped and saved nothing after it{where}. Lower the stage's training."
                "learning_rate or raise its training.warmup_steps, and start again with --overwrite, or in "
                "another folder to keep what was saved; or continue with --resume and guard.on_bad_loss: skip."
            )
        else:
            self.skipped += 1
            self._in_a_row += 1
            if self._in_a_row <= self.policy.skips_in_a_row:
                self._warn(f"{problem}; the step is skipped{where}.")
                return
            line = (
                f"{problem}, as in {self.policy.skips_in_a_row} skipped steps right before it{where}. Lower the "
                "stage's training.learning_rate and start again with --overwrite, or in another folder; or "
                "continue with --resume and a higher guard.skips_in_a_row."
            )
        raise raised_on_all_ranks(TrainingError(line))

    def _describe_problem(self, step: int, loss: float, median: float, norm: float, terms: Sequence[float]) -> str:
        """Describe a bad step by its first number that is not finite, else by its loss.

        Args:
            step: The step, from 1.
            loss: Its loss.
            median: Median of the losses before it.
            norm: Norm of its gradient.
            terms: Its terms.
        """
        for name, value in zip(self._names, terms, strict=True):
            if not math.isfinite(value):
                return f"The loss term '{name}' became {value} at step {step}"
        if not math.isfinite(norm):
            return f"The norm of the gradient became {norm} at step {step}, though the loss was finite"
        return (
            f"The loss became {loss:.4g} at step {step}, more than {self.policy.explosion_factor:g} times its "
            f"running median {median:.4g}"
        )
