"""`CohortTrainer`: transformers' loop over a `StudentCohort`, with each student clipped, watched and stopped alone."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import on_main_rank
from limbeck.training.cohort import StudentCohort, split_term
from limbeck.training.gathering import sum_over_ranks
from limbeck.training.trainer import DistillationTrainer

Cut: TypeAlias = Callable[[Mapping[int, PreTrainedModel]], Collection[int]]
"""Receives the students that are in training, by index and in evaluation mode; returns the indices of those that go on.

They are tapped, and a forward stops at the deepest layer that is taught: to measure one, copy its weights.
"""


class DivergedStudents:
    """Watches the terms of all students, and names those with one that is not finite.

    It takes the place of the guard that stops a run: here one student's fault must not stop the others. Values are
    kept on the device and looked at together, so that no step waits for them.
    All ranks look at the same time, and a finding of one holds for all.
    """

    def __init__(self) -> None:
        self.found: set[int] = set()
        self._names: list[str] = []
        self._values: list[Tensor] = []

    def note(self, shares: Mapping[str, Tensor]) -> None:
        """Remember the terms of a micro-batch; on a CPU look at once."""
        self._names.extend(shares)
        self._values.extend(share.float() for share in shares.values())
        if self._values and self._values[-1].device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Look at what was remembered since the last look."""
        if self._values:
            finite = sum_over_ranks(torch.stack(self._values)).isfinite().tolist()
            self.found |= {split_term(name)[0] for name, good in zip(self._names, finite, strict=True) if not good}
        self._names, self._values = [], []


class CohortTrainer(DistillationTrainer):
    """Trains the students of a `StudentCohort` together; each follows the trajectory of a run alone.

    The loss is the sum of the students' losses, so each gets its own gradient; the optimizer works number by number;
    gradients are clipped by each student's own norm. A student that diverges, or that is cut, keeps the weights that
    it has, and costs nothing more.

    Args:
        model: The students.
        cuts: After how many steps to ask who goes on, and whom to ask.
        **arguments: As of `transformers.Trainer`.
    """

    def __init__(self, model: StudentCohort, *, cuts: Mapping[int, Cut] | None = None, **arguments: Any) -> None:
        # A cohort has the part of a module's surface that the loop uses: terms, reader, parameters.
        super().__init__(model=model, **arguments)  # type: ignore[arg-type]
        self.cohort = model
        self.diverged = DivergedStudents()
        self.guard = self.diverged  # type: ignore[assignment]
        self.steps = dict.fromkeys(range(len(model.members)), 0)
        self._cuts = dict(cuts or {})
        self.add_callback(_Cuts(self))

    def compute_loss(
        self, model: nn.Module, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Sum the losses of the students in training; see `DistillationTrainer.compute_loss`."""
        result = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.args.world_size == 1 or not model.training:
            return result
        # The reducer waits for every gradient that it was made for, also those of students that stopped.
        loss = result[0] if return_outputs else result
        for parameter in self._stopped_parameters():
            loss = loss + torch.nan_to_num(parameter.flatten()[0]) * 0
        return (loss, *result[1:]) if return_outputs else loss

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        return self._clip(self.args.max_grad_norm)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        norm = self._clip(float("inf")) if grad_norm is None else grad_norm
        self._settle()
        return norm

    def _clip(self, maximum: float) -> Tensor:
        """Clip every student's gradients by its own norm; returns the largest norm."""
        norms = [
            torch.nn.utils.clip_grad_norm_(self.cohort.member(index).parameters(), maximum)
            for index in self.cohort.active
        ]
        return torch.stack(norms).max()

    def _settle(self) -> None:
        """Before the optimizer's step: take those out that diverged, and the gradients of all that are out."""
        if self.diverged.found:
            self._keep([index for index in self.cohort.active if index not in self.diverged.found])
        for parameter in self._stopped_parameters():
            parameter.grad = None
        for index in self.cohort.active:
            self.steps[index] += 1

    def cut(self) -> None:
        """After the optimizer's step: ask who goes on, where that is due."""
        due = self._cuts.get(self.state.global_step)
        if due is None or not self.cohort.active:
            return
        self.cohort.eval()
        students = {index: self.cohort.member(index).student for index in self.cohort.active}
        chosen = on_main_rank(lambda: sorted(due(students)))
        self.cohort.train()
        self._keep(chosen)

    def _keep(self, indices: Collection[int]) -> None:
        self.cohort.active = [index for index in self.cohort.active if index in indices]
        self._sums = {name: total for name, total in self._sums.items() if split_term(name)[0] in self.cohort.active}
        for parameter in self._stopped_parameters():
            self.optimizer.state.pop(parameter, None)

    def _students(self) -> Sequence[nn.Module]:
        return list(self.cohort.members)

    def _stopped_parameters(self) -> list[nn.Parameter]:
        """Trained parameters of the students that stopped."""
        return [
            parameter
            for index in range(len(self.cohort.members))
            if index not in self.cohort.active
            for parameter in self.cohort.member(index).parameters()
            if parameter.requires_grad
        ]


class _Cuts(TrainerCallback):
    """Cuts students after a step, and ends the training with the last of them."""

    def __init__(self, trainer: CohortTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._trainer.cut()
        if not self._trainer.cohort.active:
            control.should_training_stop = True
