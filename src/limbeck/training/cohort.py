"""`StudentCohort`: many students under one forward of their teacher, each learning as it would alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.methods.composition import Term
from limbeck.training.module import DistillationModule
from limbeck.training.teacher_reader import TeacherReader


class StudentCohort(nn.Module):
    """Students with terms of their own, distilled side by side from one teacher.

    Every batch runs through the teacher once, as far as the deepest stream that any student reads. Students share
    nothing else: each has its learned maps, and draws its dropout from the place in the random stream where it would
    draw alone. For students of one shape, with gradients clipped for each (see `CohortTrainer`), every one takes the
    trajectory that it would take alone. Students of other shapes draw other amounts; their dropout then differs from
    what it would be alone, and nothing else does.

    Args:
        students: The models that learn.
        teacher: The model that is read; frozen here, and cut above the deepest stream that is needed.
        terms: What each student is taught, in their order.
        seed: Decides what is drawn at random in learned maps; every student starts from the same.
        pooling: How `pooled` streams are made.

    Raises:
        ValueError: for no students, or another number of lists of terms than of students.
    """

    def __init__(
        self,
        students: Sequence[PreTrainedModel],
        teacher: PreTrainedModel,
        terms: Sequence[Sequence[Term]],
        *,
        seed: int = 0,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        if not students or len(students) != len(terms):
            raise ValueError(f"{len(students)} students need as many lists of terms, not {len(terms)}")
        reader = TeacherReader(teacher, [term for own in terms for term in own], pooling=pooling)
        members = []
        for student, own in zip(students, terms, strict=True):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                members.append(DistillationModule(student, reader, own, pooling=pooling))
        self.members = nn.ModuleList(members)
        self.active = list(range(len(members)))
        self._reader = reader

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the active students, named `3/hidden.2` for `hidden.2` of student 3."""
        return tuple(
            replace(term, name=_member_term(index, term.name))
            for index in self.active
            for term in self.member(index).terms
        )

    def member(self, index: int) -> DistillationModule:
        """Return a student's module; alone it would run the teacher by itself."""
        found = self.members[index]
        assert isinstance(found, DistillationModule)
        return found

    def keep(self, indices: Collection[int]) -> None:
        """Train only these from now on; the others stay as they are."""
        self.active = [index for index in self.active if index in indices]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **inputs: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term of every active student on a batch; arguments as of `DistillationModule.forward`.

        Returns:
            Total and count of each of `terms`, by name.
        """
        found: dict[str, tuple[Tensor, Tensor]] = {}
        random = _RandomStream(input_ids.device)
        scored = self.member(self.active[0]).scored_tokens(labels)
        teacher = self._reader.read(input_ids, attention_mask, scored=scored, **inputs)
        for index in self.active:
            member = self.member(index)
            random.rewind()
            student = member.read_student(input_ids, attention_mask, scored=scored, **inputs)
            terms = member.compute_terms(student, teacher, attention_mask, labels)
            random.keep_first()
            found |= {_member_term(index, name): pair for name, pair in terms.items()}
        random.advance()
        return found

    def move_teacher(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place the teacher where it stays; see `TeacherReader.move`."""
        self._reader.move(device, pack=pack)

    def close(self) -> None:
        """Take all taps off, so that students and teacher are ordinary models again."""
        for index in range(len(self.members)):
            self.member(index).close()


def split_term(name: str) -> tuple[int, str]:
    """Return the student and the term that a name of `StudentCohort.terms` stands for."""
    index, term = name.split("/", maxsplit=1)
    return int(index), term


def _member_term(index: int, name: str) -> str:
    return f"{index}/{name}"


class _RandomStream:
    """Lets several students draw from the same place in a device's random stream.

    Args:
        device: Where they draw; on a GPU its own stream and the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self._start = self._states()
        self._after: list[Tensor] | None = None

    def rewind(self) -> None:
        """Go back to where the batch began."""
        self._set(self._start)

    def keep_first(self) -> None:
        """Remember where the first student has come to."""
        if self._after is None:
            self._after = self._states()

    def advance(self) -> None:
        """Go on from where the first student has come to."""
        if self._after is not None:
            self._set(self._after)

    def _states(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        return states if self._device is None else [*states, torch.cuda.get_rng_state(self._device)]

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self._device is not None:
            torch.cuda.set_rng_state(states[1], self._device)
