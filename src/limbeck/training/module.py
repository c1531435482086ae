"""`DistillationModule`: one forward of teacher and student, and the terms between their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.methods.composition import Term
from limbeck.models.streams import Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import LossTerm
from limbeck.objectives.earth_mover import EmdParts
from limbeck.objectives.registry import OBJECTIVES, Objective
from limbeck.training.gather import gather_rows, sum_over_ranks
from limbeck.training.layer_weights import make_layer_weights
from limbeck.training.learned_maps import HeadMaps, make_learned_map
from limbeck.training.teacher_reader import TeacherReader, stream_keys
from limbeck.training.units import IGNORED_LABEL


class DistillationModule(nn.Module):
    """Student and learned maps as parameters; the frozen teacher beside them, outside the state dict.

    The teacher is no submodule: `.train()`, `.parameters()`, `state_dict()`, the gradient reducer and the
    checkpoints never see it.

    Args:
        student: The model that learns.
        teacher: The model that is read; frozen here, and cut above the deepest stream that is needed. Or a reader that
            serves other students too, whose streams include those of these terms.
        terms: What is distilled.
        pooling: How `pooled` streams are made.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | TeacherReader,
        terms: Sequence[Term],
        *,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.student = student
        self.terms = tuple(terms)
        self.maps = nn.ModuleDict(
            {term.name: make_learned_map(term.learned_map) for term in terms if term.learned_map is not None}
        )
        over_vocabulary = [term for term in terms if any(key.kind == "logits" for key in term.student)]
        # Where only masked tokens are taught, only they are scored: about a seventh of the work.
        self._scores_labelled = bool(over_vocabulary) and all(_reads_masked(term) for term in over_vocabulary)
        self.layer_weights = make_layer_weights(terms)
        self._distances: list[EmdParts] = []
        # A plain attribute of a reader, which is no module: nothing of the teacher is registered here.
        self._reader = teacher if isinstance(teacher, TeacherReader) else TeacherReader(teacher, terms, pooling=pooling)
        self._student_tap = StreamTap(student, stream_keys(term.student for term in terms), pooling=pooling)

    @property
    def teacher(self) -> PreTrainedModel:
        """The teacher."""
        return self._reader.teacher

    @property
    def taps(self) -> tuple[StreamTap, StreamTap]:
        """The taps on student and teacher."""
        return self._student_tap, self._reader.tap

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **inputs: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on a batch.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`, nonzero where a token is real.
            labels: Masked tokens `[B, L]`, classes or values `[B]`, or answers `[B, 2]`, where a term needs them.
            **inputs: Further inputs of both models.

        Returns:
            For each term its total and its count, undivided; see `LossTerm`.
        """
        scored = self.scored_tokens(labels)
        teacher_streams = self.read_teacher(input_ids, attention_mask, scored=scored, **inputs)
        student_streams = self.read_student(input_ids, attention_mask, scored=scored, **inputs)
        return self.compute_terms(student_streams, teacher_streams, attention_mask, labels)

    def scored_tokens(self, labels: Tensor | None) -> Tensor | None:
        """Return the tokens that are scored over the vocabulary, bool `[B, L]`; None for all."""
        return labels != IGNORED_LABEL if self._scores_labelled and labels is not None else None

    def read_teacher(
        self, input_ids: Tensor, attention_mask: Tensor, scored: Tensor | None = None, **inputs: Tensor
    ) -> Streams:
        """Run the teacher as far as it is needed; see `TeacherReader.read`."""
        return self._reader.read(input_ids, attention_mask, scored=scored, **inputs)

    def read_student(
        self, input_ids: Tensor, attention_mask: Tensor, scored: Tensor | None = None, **inputs: Tensor
    ) -> Streams:
        """Run the student as far as it is needed, under the autocast that is on; arguments as of the teacher."""
        return self._student_tap(input_ids, attention_mask, scored=scored, **inputs)

    def compute_terms(
        self, student: Streams, teacher: Streams, attention_mask: Tensor, labels: Tensor | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on streams that were read; returns what `forward` returns."""
        # Objectives choose their own number format; autocast must not lower their matrix products.
        with torch.autocast(device_type=attention_mask.device.type, enabled=False):
            valid = attention_mask.bool()
            losses = {term.name: self._loss(term, student, teacher, valid, labels) for term in self.terms}
        if self.layer_weights is not None and self.training:
            self.layer_weights.update(self._distances)
        self._distances = []
        return {name: (loss.total, loss.count) for name, loss in losses.items()}

    # The kernels are compiled code already; tracing them anew for every term only costs.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _loss(self, term: Term, student: Streams, teacher: Streams, valid: Tensor, labels: Tensor | None) -> LossTerm:
        objective = OBJECTIVES[term.objective]
        student_tensors = [student[key] for key in term.student]
        teacher_tensors = [teacher[key] for key in term.teacher]
        if term.teacher_heads is not None:
            teacher_tensors = [term.teacher_heads.merge(tensor) for tensor in teacher_tensors]
        options: dict[str, Any] = dict(term.options)
        if objective.takes_valid:
            scored = self._scores_labelled or term.rows == "sample"
            options["valid"] = _counted_rows(term, valid, labels, scored) if objective.unit == "row" else valid
        if term.name in self.maps:
            learned = self.maps[term.name]
            if isinstance(learned, HeadMaps):
                options["projections"] = learned.weight
            elif objective.takes_projection:
                options["projection"] = learned
            else:
                student_tensors = [learned(tensor.float()) for tensor in student_tensors]
        if term.normalise:
            student_tensors = [F.normalize(tensor.float(), dim=-1) for tensor in student_tensors]
            teacher_tensors = [F.normalize(tensor.float(), dim=-1) for tensor in teacher_tensors]
        if objective.parts is not None:
            return self._distance(objective, student_tensors, teacher_tensors, options)
        extra = [labels] if objective.takes_labels and labels is not None else []
        if term.objective == "masked_lm_ce" and self._scores_labelled and labels is not None:
            student_tensors, extra = [student_tensors[0][None]], [labels[labels != IGNORED_LABEL][None]]
        if objective.gathers_rows and self.training:  # Measured per batch, whichever process measures it.
            student_tensors = [gather_rows(tensor) for tensor in student_tensors]
            teacher_tensors = [gather_rows(tensor) for tensor in teacher_tensors]
            extra = [gather_rows(tensor) for tensor in extra]
        return objective.function(*student_tensors, *teacher_tensors, *extra, **options)

    def _distance(
        self, objective: Objective, student: list[Tensor], teacher: list[Tensor], options: dict[str, Any]
    ) -> LossTerm:
        """A term over all layers, under the weights that they have now."""
        assert objective.parts is not None
        assert self.layer_weights is not None
        weights = {"student_weights": self.layer_weights.student, "teacher_weights": self.layer_weights.teacher}
        across = sum_over_ranks if self.training else None
        layers = objective.by_layer(student), objective.by_layer(teacher)
        parts = objective.parts(*layers, across=across, **weights, **options)
        self._distances.append(parts)
        return parts.term

    def move_teacher(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place the teacher where it stays, which `.to()` on this module does not; see `TeacherReader.move`."""
        self._reader.move(device, pack=pack)

    def close(self) -> None:
        """Take the taps off, so that student and teacher are ordinary models again; blocks stay dropped."""
        self._student_tap.close()
        self._reader.close()


def _reads_masked(term: Term) -> bool:
    """Whether a term reads scores of masked tokens only."""
    return term.objective == "masked_lm_ce" or (OBJECTIVES[term.objective].unit == "row" and term.rows == "label")


def _counted_rows(term: Term, valid: Tensor, labels: Tensor | None, all_count: bool) -> Tensor | None:
    """Which rows of logits count: every real token, the labelled ones, or all that are there."""
    if all_count:
        return None
    return valid if term.rows == "token" or labels is None else labels != IGNORED_LABEL
