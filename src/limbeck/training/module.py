"""`DistillationModule`: one forward of teacher and student, and the terms between their streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.methods.composition import LearnedMap, Term
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import LossTerm
from limbeck.objectives.registry import OBJECTIVES
from limbeck.training.gather import gather_rows


class DistillationModule(nn.Module):
    """Student and learned maps as parameters; the frozen teacher beside them, outside the state dict.

    The teacher is no submodule: `.train()`, `.parameters()`, `state_dict()`, the gradient reducer and the
    checkpoints never see it.

    Args:
        student: The model that learns.
        teacher: The model that is read; frozen here, and cut above the deepest stream that is needed.
        terms: What is distilled.
        pooling: How `pooled` streams are made.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel,
        terms: Sequence[Term],
        *,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.student = student
        self.terms = tuple(terms)
        self.maps = nn.ModuleDict(
            {term.name: _make_map(term.learned_map) for term in terms if term.learned_map is not None}
        )
        teacher.eval().requires_grad_(False)
        self.__dict__["teacher"] = teacher
        self._student_tap = StreamTap(student, _keys(term.student for term in terms), pooling=pooling)
        self._teacher_tap = StreamTap(teacher, _keys(term.teacher for term in terms), drop_above=True, pooling=pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on a batch.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`, nonzero where a token is real.
            **inputs: Further inputs of both models.

        Returns:
            For each term its total and its count, undivided; see `LossTerm`.
        """
        teacher_streams = self.read_teacher(input_ids, attention_mask, **inputs)
        student_streams = self._student_tap(input_ids, attention_mask, **inputs)
        valid = attention_mask.bool()
        # Objectives choose their own number format; autocast must not lower their matrix products.
        with torch.autocast(device_type=input_ids.device.type, enabled=False):
            losses = {term.name: self._loss(term, student_streams, teacher_streams, valid) for term in self.terms}
        return {name: (loss.total, loss.count) for name, loss in losses.items()}

    @torch.no_grad()
    def read_teacher(self, input_ids: Tensor, attention_mask: Tensor, **inputs: Tensor) -> Streams:
        """Run the teacher as far as it is needed, in the number format of its own weights."""
        with torch.autocast(device_type=input_ids.device.type, enabled=False):
            return self._teacher_tap(input_ids, attention_mask, **inputs)

    # The kernels are compiled code already; tracing them anew for every term only costs.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _loss(self, term: Term, student: Streams, teacher: Streams, valid: Tensor) -> LossTerm:
        objective = OBJECTIVES[term.objective]
        student_tensors = [student[key] for key in term.student]
        teacher_tensors = [teacher[key] for key in term.teacher]
        if objective.batch_coupled:
            student_tensors = [gather_rows(tensor) for tensor in student_tensors]
            teacher_tensors = [gather_rows(tensor) for tensor in teacher_tensors]
        options: dict[str, Any] = dict(term.options)
        if objective.takes_valid:
            options["valid"] = valid
        if term.name in self.maps:
            options["projection"] = self.maps[term.name]
        return objective.function(*student_tensors, *teacher_tensors, **options)

    def move_teacher(self, device: torch.device | str) -> None:
        """Place the teacher; `.to()` on this module does not reach it."""
        self.__dict__["teacher"].to(device)

    def close(self) -> None:
        """Take the taps off, so that the student is an ordinary model again."""
        self._student_tap.close()
        self._teacher_tap.close()


def _keys(groups: Iterable[tuple[StreamKey, ...]]) -> set[StreamKey]:
    """Join the streams of all terms."""
    return {key for group in groups for key in group}


def _make_map(spec: LearnedMap) -> nn.Linear:
    """Make a learned map without bias, so that zero stays zero, as the papers' W."""
    return nn.Linear(spec.inputs, spec.outputs, bias=False)
