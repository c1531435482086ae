"""`CohortTrainer`: transformers' loop over a `StudentCohort`, with each student clipped, watched and stopped alone.

A student is *active* while it is trained. It stops when it is *cut*, since others promise more, or when it *diverges*:
one of its terms becomes infinite or no number.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import on_main_rank
from limbeck.training.cohort import StudentCohort, split_term
from limbeck.training.gathering import sum_over_ranks
from limbeck.training.trainer import DistillationTrainer

Cut: TypeAlias = Callable[[Mapping[int, PreTrainedModel]], Collection[int]]
"""Receives the active students, by index and in evaluation mode; returns the indices of the students that go on.

They are tapped, and a forward stops at the deepest layer that is taught: to measure one, copy its weights.
"""


class CohortTrainer(DistillationTrainer):
    """Trains the students of a `StudentCohort` together; each follows the trajectory of a run alone.

    The students do not influence each other: the loss is the sum of their losses, so each gets its own gradient, the
    optimizer updates every weight by itself, and gradients are clipped by the norm of each student. A student that
    stops keeps the weights that it has, and costs nothing more.

    Args:
        model: The students.
        cuts: Number of steps to the cut that is due after them: the function that chooses which students go on.
        **arguments: Arguments of `DistillationTrainer`.

    Attributes:
        steps: Steps that each student trained, by index.
    """

    def __init__(self, model: StudentCohort, *, cuts: Mapping[int, Cut] | None = None, **arguments: Any) -> None:
        # A cohort is no `DistillationModule`, but has all that the trainer uses of one, such as terms and parameters.
        super().__init__(model=model, **arguments)  # type: ignore[arg-type]
        self.cohort = model
        self.diverged = DivergedStudents()
        # It has the methods of a `LossGuard` that the trainer calls.
        self.guard = self.diverged  # type: ignore[assignment]
        self.steps = dict.fromkeys(range(len(model.members)), 0)
        self._cuts = dict(cuts or {})
        self.add_callback(_Cuts(self))

    def compute_loss(
        self, model: nn.Module, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Sum the losses of the active students; see `DistillationTrainer.compute_loss`."""
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if self.args.world_size > 1 and model.training:
            # The distributed wrapper waits for the gradient of every parameter, also of students that stopped. These
            # parameters enter the loss times 0, so that they get a gradient of 0. NaN times 0 would be NaN.
            for parameter in self._stopped_parameters():
                loss = loss + torch.nan_to_num(parameter.flatten()[0]) * 0
        return (loss, outputs) if return_outputs else loss

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        """Clip in place of the loop, which would clip by the norm of all students together."""
        return self._clip(self.args.max_grad_norm)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        """Drop the students that have diverged, count the step of the others, and return the largest norm."""
        # The loop calls this between the gradient and the optimizer's step, with None if nothing was clipped.
        norm = self._clip(float("inf")) if grad_norm is None else grad_norm
        self._drop_diverged()
        for parameter in self._stopped_parameters():
            parameter.grad = None
        for index in self.cohort.active:
            self.steps[index] += 1
        return norm

    def _clip(self, maximum: float) -> Tensor:
        """Clip every active student's gradients by its own norm, in place; return the largest norm."""
        norms = []
        for index in self.cohort.active:
            parameters = self.cohort.member(index).parameters()
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, maximum))
        return torch.stack(norms).max()

    def _drop_diverged(self) -> None:
        """Stop the active students that have diverged."""
        if self.diverged.indices:
            self._keep([index for index in self.cohort.active if index not in self.diverged.indices])

    def cut_students(self) -> None:
        """Stop the students that a cut does not let go on, if a cut is due after this optimizer step."""
        choose_remaining = self._cuts.get(self.state.global_step)
        if choose_remaining is None or not self.cohort.active:
            return
        self.cohort.eval()
        students = {index: self.cohort.member(index).student for index in self.cohort.active}
        # Students are measured in one process, so that all processes keep the same ones.
        remaining = on_main_rank(lambda: sorted(choose_remaining(students)))
        self.cohort.train()
        self._keep(remaining)

    def _keep(self, indices: Collection[int]) -> None:
        """Keep these students active and stop the others.

        The sums of the others' terms for the log, and the optimizer's moments of their weights, are dropped.
        """
        self.cohort.active = [index for index in self.cohort.active if index in indices]
        sums: dict[str, Tensor] = {}
        for name, total in self._sums.items():
            index, _ = split_term(name)
            if index in self.cohort.active:
                sums[name] = total
        self._sums = sums
        for parameter in self._stopped_parameters():
            self.optimizer.state.pop(parameter, None)

    def _stopped_parameters(self) -> list[nn.Parameter]:
        """Return the trained parameters of the students that stopped."""
        stopped: list[nn.Parameter] = []
        for index in range(len(self.cohort.members)):
            if index not in self.cohort.active:
                stopped += [
                    parameter for parameter in self.cohort.member(index).parameters() if parameter.requires_grad
                ]
        return stopped


class DivergedStudents:
    """Watches the terms of all students, and notes the students with a term that is not finite.

    It takes the place of `LossGuard`, which would stop the run: here one student's divergence must not stop the others.
    Values stay on the device and are read together, so that no step waits for them. All ranks read them at the same
    time, and a term that is not finite in one rank counts for all.

    Attributes:
        indices: The students that diverged.
    """

    def __init__(self) -> None:
        self.indices: set[int] = set()
        self._names: list[str] = []
        self._values: list[Tensor] = []

    def note(self, shares: Mapping[str, Tensor]) -> None:
        """Remember the terms of a micro-batch; on a CPU, where nothing waits, check them at once."""
        self._names.extend(shares)
        self._values.extend(share.float() for share in shares.values())
        if self._values and self._values[-1].device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Add to `indices` the students with a term, of those noted since the last check, that is not finite."""
        if self._values:
            # A term that is not finite in one process is not finite in the sum either.
            finite = sum_over_ranks(torch.stack(self._values)).isfinite().tolist()
            for name, is_finite in zip(self._names, finite, strict=True):
                index, _ = split_term(name)
                if not is_finite:
                    self.indices.add(index)
        self._names = []
        self._values = []


class _Cuts(TrainerCallback):
    """Cuts students after a step, and ends the training with the last of them."""

    def __init__(self, trainer: CohortTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._trainer.cut_students()
        if not self._trainer.cohort.active:
            control.should_training_stop = True
