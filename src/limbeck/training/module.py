"""`DistillationModule`: one forward of teacher and student, and the terms between their streams."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.batches.batch import Batch, read_batch
from limbeck.errors import RecipeError
from limbeck.methods.teaching import Teaching
from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.transforms import Course
from limbeck.models.families import embedding_tables
from limbeck.models.packed_rows import rows_of_tokens
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.start_kept_map import KeptMapFit
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import OBJECTIVES, LossTerm
from limbeck.objectives.earth_mover import EmdTerm
from limbeck.training.gathering import gather_rows, sum_over_ranks
from limbeck.training.layer_weights import make_layer_weights
from limbeck.training.learned_maps import (
    STUDENT_WEIGHTS,
    Learned,
    kept_maps,
    make_learned_map,
    map_arguments,
)
from limbeck.training.read_rows import ReadRows, write_ranges


class DistillationModule(nn.Module):
    """Student and learned maps as parameters; the frozen teacher beside them, outside the state dict.

    The teacher is no submodule: `.train()`, `.parameters()`, `state_dict()`, the gradient reducer and the
    checkpoints never see it.

    Args:
        student: The model that learns.
        teaching: Gives the teacher's streams; it may serve other students too.
        terms: The terms of the stage.
        pooling: How the student's `pooled` and `vector` streams are made.

    Raises:
        RecipeError: for terms that share a learned map by name and not by size.

    Attributes:
        teaching: Gives the teacher's streams; `.to()` on this module does not move it.
        student_tap: Reads the student's, under the autocast that is on.
        course: The progress of the training, for transforms that change with it.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teaching: Teaching,
        terms: Sequence[Term],
        *,
        pooling: str | SentenceHead = "mean",
    ) -> None:
        super().__init__()
        self.student = student
        self.terms = tuple(terms)
        self.course = Course()
        self.maps = nn.ModuleDict({name: make_learned_map(spec) for name, spec in _maps_of(terms).items()})
        self.maps_to_start = list(kept_maps(terms))
        self.layer_weights = make_layer_weights(terms)
        self._distances: list[EmdTerm] = []

        # Where only masked tokens are taught, only they are scored: about a seventh of the work.
        over_vocabulary = [term for term in terms if term.reads_logits]
        self._scores_labelled = bool(over_vocabulary) and all(term.rows == "label" for term in over_vocabulary)
        self._scores_tokens = _scores_with_embeddings(student, terms)
        self.read_rows = ReadRows(student)

        # A teaching is no module: nothing of the teacher is registered here.
        self.teaching = teaching
        student_keys = {key for term in terms for key in term.student}
        self.student_tap = StreamTap(student, student_keys, pooling=pooling, from_hidden=self.teaching.from_hidden)

    def forward(self, **columns: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on a batch.

        Args:
            **columns: The columns of the batch, see `limbeck.corpus.batches.batch.Batch`.

        Returns:
            For each term its total and its count, undivided; see `LossTerm`.
        """
        batch = read_batch(columns)
        scored = self.scored_tokens(batch)
        teacher = self.teaching.read(batch, scored)
        student = self.student_tap(**batch.student, scored=scored)
        return self.compute_terms(batch, student, teacher)

    def set_course(self, course: Course) -> None:
        """Tell the terms the progress of the training."""
        self.course = course

    def scored_tokens(self, batch: Batch) -> Tensor | None:
        """Return the tokens that are scored over the vocabulary, bool `[B, L]`; None for all.

        They are the labelled ones where no others are taught. On a CPU they are the real ones where their logits would
        be left unmade: the batch then runs packed.
        """
        if self._scores_labelled and batch.labels is not None:
            return batch.labels != IGNORED_LABEL
        attention_mask = batch.student["attention_mask"]
        may_pack = attention_mask.device.type == "cpu" and self.teaching.from_hidden
        if may_pack and self.student_tap.leaves_unmade(int(attention_mask.count_nonzero())):
            return attention_mask.bool()
        return None

    def compute_terms(self, batch: Batch, student: Streams, teacher: Streams) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on streams that were read; returns what `forward` returns."""
        attention_mask = batch.student["attention_mask"]
        losses: dict[str, LossTerm] = {}
        # Objectives choose their own number format; autocast must not lower their matrix products.
        with torch.autocast(device_type=attention_mask.device.type, enabled=False):
            valid = attention_mask.bool()
            for term in self.terms:
                losses[term.name] = self._loss(term, batch, student, teacher, valid)
        if self.layer_weights is not None and self.training:
            self.layer_weights.update(self._distances)
        self._distances = []
        return {name: (loss.total, loss.count) for name, loss in losses.items()}

    # The kernels are compiled code already; tracing them anew for every term only costs.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _loss(self, term: Term, batch: Batch, student: Streams, teacher: Streams, valid: Tensor) -> LossTerm:
        """Give the objective of a term the streams, the labels and the keywords that its signature names."""
        objective = OBJECTIVES[term.objective]
        labels = batch.labels
        if labels is not None and self._scores_labelled and term.rows == "label":
            labels = labels[labels != IGNORED_LABEL]
        if term.reads_logits and not all(key in student for key in term.student):
            return self._loss_from_hidden(term, student, teacher, valid, labels)

        # Streams of packed batches are read as rows of real tokens, of which all count.
        counted = self._counted(term, valid, labels)
        rows = rows_of_tokens(student, teacher) if objective.by_token and term.transform is None else None
        if rows is not None and rows[0].keys() >= set(term.student) and rows[1].keys() >= set(term.teacher):
            student, teacher = rows
            counted = None

        learned = self.maps[term.map_name] if term.learned_map is not None else None

        def student_stream() -> Tensor:
            stream = student[term.student[0]]
            return stream.detach() if learned is None else learned(stream.float())

        student_tensors = term.prepare_student(student, learned)
        teacher_tensors = term.prepare_teacher(teacher, student_stream, self.course)
        # A measure is that of a batch, whichever process measures it.
        if objective.gathers_rows and self.training:
            student_tensors = [gather_rows(tensor) for tensor in student_tensors]
            teacher_tensors = [gather_rows(tensor) for tensor in teacher_tensors]
            if labels is not None and objective.takes_labels:
                labels = gather_rows(labels)

        offered: dict[str, Any] = {"valid": counted, "groups": batch.groups}
        if term.map_in_objective:
            offered |= map_arguments(learned)
        if self.layer_weights is not None:
            offered["student_weights"] = self.layer_weights.student
            offered["teacher_weights"] = self.layer_weights.teacher
            offered["across"] = sum_over_ranks if self.training else None
        options = {**term.options, **objective.arguments(offered)}
        loss = objective.call(student_tensors, teacher_tensors, labels, **options)
        if isinstance(loss, EmdTerm):
            self._distances.append(loss)
        return loss

    def _loss_from_hidden(
        self, term: Term, student: Streams, teacher: Streams, valid: Tensor, labels: Tensor | None
    ) -> LossTerm:
        """Compute a term on logits that were left unmade, from what makes them."""
        objective = OBJECTIVES[term.objective]
        tensors: list[Tensor] = []
        options = dict(term.options)
        for owner, streams, keys in (("student", student, term.student), ("teacher", teacher, term.teacher)):
            for layer in {key.layer for key in keys}:
                tensors.append(streams[StreamKey("pre_logits", layer)])
                tensors.append(streams[StreamKey("output_weight", layer)])
                options[f"{owner}_bias"] = streams.get(StreamKey("output_bias", layer))

        counted = self._counted(term, valid, labels)
        has_real_tokens_alone = tensors[0].dim() == 2 and not self._scores_labelled
        if has_real_tokens_alone:
            labels = None if labels is None else labels[valid]
            counted = None if counted is None else counted[valid]
        if objective.takes_labels and labels is not None:
            tensors.append(labels)
        assert objective.from_hidden is not None
        options |= objective.arguments({"valid": counted})
        return objective.from_hidden(*tensors, **options)

    def _counted(self, term: Term, valid: Tensor, labels: Tensor | None) -> Tensor | None:
        """Return the mask of rows that enter the loss: real tokens or labelled ones; None for all that are there."""
        if OBJECTIVES[term.objective].unit != "row" or term.rows == "token":
            return valid
        if term.rows == "sample" or self._scores_labelled:
            return None
        return valid if labels is None else labels != IGNORED_LABEL

    def learned(self) -> Learned:
        """Return what the terms have learned beside the student: copies of learned maps and layer weights."""
        state = self.state_dict()
        return Learned(
            self.terms, {name: state[name].clone() for name in state if not name.startswith(STUDENT_WEIGHTS)}
        )

    def take_learned(self, earlier: Learned) -> None:
        """Go on with the learned maps and layer weights of an earlier stage, for the same student and teacher.

        A term goes on where the earlier stage has one of the same name, objective, streams and map, whatever its
        weight and options. The papers train one map over all their schedules (ELM eq. 7, section 5.2).

        Args:
            earlier: Of that stage's module.
        """
        earlier_terms, weights = earlier
        term_before = {term.name: term for term in earlier_terms}
        map_before = {term.map_name: term.learned_map for term in earlier_terms}
        map_names = set()
        names = []
        for term in self.terms:
            before = term_before.get(term.name)
            if before is None or not _goes_on(before, term):
                continue
            if term.learned_map is not None:
                map_names.add(term.map_name)
            if OBJECTIVES[term.objective].takes_layers and term.cost_attention is not None:
                names = ["layer_weights.student", "layer_weights.teacher"]

        # A map that the student keeps is part of it, whatever is taught through it.
        for name, spec in kept_maps(self.terms).items():
            if map_before.get(name) == spec:
                map_names.add(name)
        self.maps_to_start = [name for name in self.maps_to_start if name not in map_names]

        for name in sorted(map_names):
            names += [f"maps.{name}.weight", f"maps.{name}.bias"]
        self.load_state_dict({name: weights[name] for name in names if name in weights}, strict=False)

    @torch.no_grad()
    def start_maps(self, batches: Callable[[], Iterable[Mapping[str, Tensor]]]) -> None:
        """Start the maps that the student keeps, see `KeptMapFit`, unless they go on from an earlier stage.

        Args:
            batches: Reads the texts, as columns of batches on the device of the models.
        """
        terms = [next(term for term in self.terms if term.map_name == name) for name in self.maps_to_start]
        if not terms:
            return
        was_training = self.training
        self.eval()
        fits = {term.map_name: KeptMapFit() for term in terms}
        for columns in batches():
            batch = read_batch(columns)
            scored = self.scored_tokens(batch)
            student_streams = self.student_tap(**batch.student, scored=scored)
            teacher_streams = self.teaching.read(batch, scored)
            for term in terms:
                # On the CPU, since not every device has float64.
                teacher = teacher_streams[term.teacher[0]].cpu().double()
                if term.normalise:
                    teacher = nn.functional.normalize(teacher, dim=-1)
                fits[term.map_name].add(student_streams[term.student[0]], teacher)
        for term in terms:
            learned = self.maps[term.map_name]
            assert isinstance(learned, nn.Linear)
            fits[term.map_name].solve(learned)
        self.train(was_training)

    def unread_rows(self) -> dict[str, str]:
        """Return the rows of the student's embedding tables that no batch so far has trained, by parameter.

        Of a table that is not trained these are all. Of tokens whose table is the output layer too, and is scored, they
        are none: every score has a gradient. Weight decay alone is no training.
        """
        unread = self.read_rows.unread()
        rows_by_parameter: dict[str, str] = {}
        for kind, table in embedding_tables(self.student).items():
            rows = unread[kind]
            if kind == "tokens" and self._scores_tokens:
                rows = ""
            if not table.module.weight.requires_grad:
                rows = write_ranges(np.ones(table.module.num_embeddings, dtype=np.bool_))
            rows_by_parameter[f"{table.name}.weight"] = rows
        return rows_by_parameter

    def close(self) -> None:
        """Take the taps off, so that student and teacher are ordinary models again; blocks stay dropped."""
        self.student_tap.close()
        self.teaching.close()


def _maps_of(terms: Sequence[Term]) -> dict[str, LearnedMap]:
    """Return the learned maps of terms by name, each once.

    Raises:
        RecipeError: for two terms that share a map by name and not by size.
    """
    maps: dict[str, LearnedMap] = {}
    for term in terms:
        if term.learned_map is None:
            continue
        if maps.setdefault(term.map_name, term.learned_map) != term.learned_map:
            raise RecipeError(
                f"Term '{term.name}' has a learned map '{term.map_name}' that differs from another term's of that "
                "name; give it another name."
            )
    return maps


def _scores_with_embeddings(student: PreTrainedModel, terms: Sequence[Term]) -> bool:
    """Return whether the table of word embeddings is the output layer too, and terms read its scores."""
    if not any(key.kind == "logits" for term in terms for key in term.student):
        return False
    output = student.get_output_embeddings()
    return output is not None and output.weight is student.get_input_embeddings().weight


def _goes_on(before: Term, term: Term) -> bool:
    """Return whether a term of a later stage relates the same tensors of the two models."""
    return replace(before, weight=term.weight, options=term.options, cost_attention=term.cost_attention) == term
