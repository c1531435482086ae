"""`StudentCohort`: many students under one forward of their teacher, each learning as it would alone.

A *member* is one student with its terms and learned maps. An *active* one is still trained; others have been stopped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.corpus.batches.batch import read_batch
from limbeck.methods.teaching import Teaching
from limbeck.methods.term import Term
from limbeck.methods.transforms import Course
from limbeck.models.sentence_heads import SentenceHead
from limbeck.training.module import DistillationModule
from limbeck.training.step_start import RandomStreams


class StudentCohort(nn.Module):
    """Students with different terms, distilled side by side from one teacher.

    Every batch runs through the teacher once, as far as the deepest stream that any student reads. Students share
    nothing else: each has its learned maps, and draws its dropout from the place in the random stream where it would
    draw alone. For students of one shape, with gradients clipped for each (see `CohortTrainer`), every one takes the
    trajectory that it would take alone. Students of other shapes draw other amounts; their dropout then differs from
    that of a run alone, and nothing else does.

    Args:
        students: The models that learn.
        teaching: Gives the teacher's streams, those of all terms.
        terms: The terms of each student.
        heads: The pooling and modules that make the sentence vectors of each student; None pools by the mean.

    Raises:
        ValueError: for no students, or another number of lists of terms than of students.

    Attributes:
        members: The module of each student.
        active: Indices of the students in training.
    """

    def __init__(
        self,
        students: Sequence[PreTrainedModel],
        teaching: Teaching,
        terms: Sequence[Sequence[Term]],
        *,
        heads: Sequence[SentenceHead] | None = None,
    ) -> None:
        super().__init__()
        if not students or len(students) != len(terms):
            raise ValueError(
                f"{len(students)} students need {len(students)} lists of terms, one for each, but there are "
                f"{len(terms)}"
            )
        if heads is None:
            heads = [SentenceHead("mean")] * len(students)
        self.members = nn.ModuleList(
            DistillationModule(student, teaching, terms_of_student, pooling=head)
            for student, terms_of_student, head in zip(students, terms, heads, strict=True)
        )
        self.active = list(range(len(students)))
        self.teaching = teaching
        # All students have one vocabulary and read the same batches, so one note of the rows that were read serves all,
        # including students that are stopped later.
        self.read_rows = self.member(0).read_rows
        for index in self.active:
            self.member(index).read_rows = self.read_rows

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the active students, named `3/hidden.2` for `hidden.2` of student 3."""
        terms: list[Term] = []
        for index in self.active:
            terms += [replace(term, name=_member_term(index, term.name)) for term in self.member(index).terms]
        return tuple(terms)

    def member(self, index: int) -> DistillationModule:
        """Return the module of one student; calling it directly would run the teacher again."""
        return cast(DistillationModule, self.members[index])

    def forward(self, **columns: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term of every active student on a batch.

        Args:
            **columns: The columns of the batch, such as `input_ids`; see `limbeck.corpus.batches.batch.Batch`.

        Returns:
            Total and count of each of `terms`, by name.
        """
        batch = read_batch(columns)
        device = batch.student["input_ids"].device
        # If logits are taught, they are of the same tokens for every student.
        scored = self.member(self.active[0]).scored_tokens(batch)
        teacher = self.teaching.read(batch, scored)
        # Every student draws its dropout from the place in the random stream where it would draw if it trained alone:
        # `RandomStreams` holds the present state of the stream, and puts it back.
        random_state = RandomStreams(device)
        state_after_first: RandomStreams | None = None
        losses: dict[str, tuple[Tensor, Tensor]] = {}
        for index in self.active:
            member = self.member(index)
            random_state.restore()
            student = member.student_tap(**batch.student, scored=scored)
            terms = member.compute_terms(batch, student, teacher)
            # The next batch begins where the first student's draws end, as it would if that student trained alone.
            if state_after_first is None:
                state_after_first = RandomStreams(device)
            for name, total_and_count in terms.items():
                losses[_member_term(index, name)] = total_and_count
        if state_after_first is not None:
            state_after_first.restore()
        return losses

    def set_course(self, course: Course) -> None:
        """Set the progress of the training for all students; see `DistillationModule.set_course`."""
        for index in range(len(self.members)):
            self.member(index).set_course(course)

    def start_maps(self, batches: Callable[[], Iterable[Mapping[str, Tensor]]]) -> None:
        """Start the maps that each student keeps; see `DistillationModule.start_maps`."""
        for index in self.active:
            self.member(index).start_maps(batches)

    def close(self) -> None:
        """Take all taps off, so that students and teacher are ordinary models again."""
        for index in range(len(self.members)):
            self.member(index).close()


def split_term(name: str) -> tuple[int, str]:
    """Return the index of the student and the name of its term, from a name of `StudentCohort.terms`."""
    index, term = name.split("/", maxsplit=1)
    return int(index), term


def _member_term(index: int, name: str) -> str:
    return f"{index}/{name}"
