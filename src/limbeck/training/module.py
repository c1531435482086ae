"""`DistillationModule`: one forward of teacher and student, and the terms between their streams.

A *stream* is a tensor that a model computes on the way, such as the hidden states of a layer, by a `StreamKey` of its
name and layer. A *term* compares streams of both models, and gives a total and a count (`limbeck.training.term_loss`),
which the trainer divides (`limbeck.training.division`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

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
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.start_kept_map import KeptMapFit
from limbeck.models.streams import Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import OBJECTIVES, LossTerm
from limbeck.objectives.earth_mover import EmdTerm
from limbeck.training.layer_weights import make_layer_weights
from limbeck.training.learned_maps import (
    STUDENT_WEIGHTS,
    Learned,
    kept_maps,
    make_learned_map,
)
from limbeck.training.read_rows import ReadRows, write_ranges
from limbeck.training.term_loss import BatchStreams, loss_of_term


class DistillationModule(nn.Module):
    """Student and learned maps as parameters; the frozen teacher beside them, outside the state dict.

    The teacher is no submodule: `.train()`, `.parameters()`, `state_dict()`, the gradient reducer and the
    checkpoints never see it.

    Args:
        student: The model that learns.
        teaching: Gives the teacher's streams; it may serve other students too.
        terms: The terms of the stage.
        pooling: How the student's tokens become its `pooled` and `vector` streams.

    Raises:
        RecipeError: for terms that share a learned map by name and not by size.

    Attributes:
        teaching: Gives the teacher's streams; `.to()` on this module does not move it.
        student_tap: Reads the student's streams, under the autocast that is on.
        maps: The learned maps, by name.
        maps_to_start: Names of the maps that the student keeps and that `start_maps` has yet to start.
        layer_weights: Weights that terms over all layers share; None without such terms.
        read_rows: Notes of the rows of embedding tables that batches read.
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
        # Names of the maps that stay in the finished student. `start_maps` fits them before the first step.
        self.maps_to_start = list(kept_maps(terms))
        self.layer_weights = make_layer_weights(terms)

        # Where all terms on logits are about labelled (masked) tokens, only these tokens are scored. That is about a
        # seventh of the work, since BERT masks 15 % of the tokens.
        terms_on_logits = [term for term in terms if term.reads_logits]
        self._scores_labelled = bool(terms_on_logits) and all(term.rows == "label" for term in terms_on_logits)
        # Scores train every row of a table of word embeddings that is the output layer too.
        self._scores_by_embeddings = _scores_by_embeddings(student, terms)
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
        """Set the progress of the training, by which some transforms of the teacher's streams change."""
        self.course = course

    def scored_tokens(self, batch: Batch) -> Tensor | None:
        """Return the tokens whose scores over the vocabulary are computed, bool `[B, L]`; None for all."""
        # All terms on scores may be about labelled tokens alone.
        if self._scores_labelled and batch.labels is not None:
            return batch.labels != IGNORED_LABEL

        # On a CPU, the logits of many tokens are never held at once. Such a batch runs packed, without padding, so that
        # only real tokens are scored.
        attention_mask = batch.student["attention_mask"]
        may_pack = attention_mask.device.type == "cpu" and self.teaching.from_hidden
        if may_pack and self.student_tap.leaves_unmade(int(attention_mask.count_nonzero())):
            return attention_mask.bool()
        return None

    def compute_terms(self, batch: Batch, student: Streams, teacher: Streams) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on streams that were read; return the total and the count of each, by its name."""
        attention_mask = batch.student["attention_mask"]
        streams = BatchStreams(
            batch, student, teacher, is_token=attention_mask.bool(), labelled_only=self._scores_labelled
        )
        losses: dict[str, LossTerm] = {}
        # Objectives choose their own number format; autocast must not lower their matrix products.
        with torch.autocast(device_type=attention_mask.device.type, enabled=False):
            for term in self.terms:
                losses[term.name] = self._loss_of(term, streams)
        # The weights of layers follow the training batches alone; held-out rows must not move them.
        if self.layer_weights is not None and self.training:
            self.layer_weights.update([loss for loss in losses.values() if isinstance(loss, EmdTerm)])
        return {name: (loss.total, loss.count) for name, loss in losses.items()}

    # `torch.compile` would trace the kernels again for every term, and gain nothing: they are compiled code already.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _loss_of(self, term: Term, streams: BatchStreams) -> LossTerm:
        learned_map = self.maps[term.map_name] if term.learned_map is not None else None
        return loss_of_term(term, streams, learned_map, self.layer_weights, self.course, is_training=self.training)

    def learned(self) -> Learned:
        """Return copies of all weights beside those of the student: learned maps and layer weights."""
        weights: dict[str, Tensor] = {}
        for name, tensor in self.state_dict().items():
            if not name.startswith(STUDENT_WEIGHTS):
                weights[name] = tensor.clone()
        return Learned(self.terms, weights)

    def take_learned(self, earlier: Learned) -> None:
        """Take over the learned maps and layer weights of an earlier stage, for the same student and teacher.

        A term goes on from an earlier term of the same name, objective, streams and map, whatever the weights and
        options of the two. The papers train one map over all their schedules (ELM eq. 7, section 5.2).

        Args:
            earlier: The result of `learned` on the module of that stage.
        """
        terms_by_name = {term.name: term for term in earlier.terms}
        continued_terms = []
        for term in self.terms:
            earlier_term = terms_by_name.get(term.name)
            if earlier_term is not None and _continues(earlier_term, term):
                continued_terms.append(term)

        map_names = {term.map_name for term in continued_terms if term.learned_map is not None}
        # A map that the student keeps is part of the student, so it goes on even if other terms use it now.
        earlier_maps = {term.map_name: term.learned_map for term in earlier.terms}
        for name, spec in kept_maps(self.terms).items():
            if earlier_maps.get(name) == spec:
                map_names.add(name)
        # Maps that go on are not started again.
        self.maps_to_start = [name for name in self.maps_to_start if name not in map_names]

        # The names of the tensors in the state of a module.
        tensor_names = []
        for map_name in sorted(map_names):
            tensor_names += [f"maps.{map_name}.weight", f"maps.{map_name}.bias"]
        for term in continued_terms:
            if OBJECTIVES[term.objective].takes_layers and term.cost_attention is not None:
                tensor_names += ["layer_weights.student", "layer_weights.teacher"]
        # The earlier module has no bias of a map without one.
        tensors = {name: earlier.weights[name] for name in tensor_names if name in earlier.weights}
        self.load_state_dict(tensors, strict=False)

    @torch.no_grad()
    def start_maps(self, batches: Callable[[], Iterable[Mapping[str, Tensor]]]) -> None:
        """Set the maps that the student keeps by least squares (`KeptMapFit`), unless they go on from an earlier stage.

        Args:
            batches: Reads the texts, as columns of batches on the device of the models.
        """
        if not self.maps_to_start:
            return
        # Terms may share a map; the first of them names the streams that it is fitted to.
        term_of_map: dict[str, Term] = {}
        for term in self.terms:
            if term.map_name in self.maps_to_start and term.map_name not in term_of_map:
                term_of_map[term.map_name] = term
        fits = {name: KeptMapFit() for name in term_of_map}

        was_training = self.training
        self.eval()
        for columns in batches():
            batch = read_batch(columns)
            scored = self.scored_tokens(batch)
            student_streams = self.student_tap(**batch.student, scored=scored)
            teacher_streams = self.teaching.read(batch, scored)
            for name, term in term_of_map.items():
                # A term whose map the student keeps reads one sentence vector of each model.
                [student_key] = term.student
                [teacher_key] = term.teacher
                # On the CPU, since not every device has float64.
                teacher_vectors = teacher_streams[teacher_key].cpu().double()
                if term.normalise:
                    teacher_vectors = nn.functional.normalize(teacher_vectors, dim=-1)
                fits[name].add(student_streams[student_key], teacher_vectors)
        for name, fit in fits.items():
            learned = self.maps[name]
            assert isinstance(learned, nn.Linear)
            fit.solve(learned)
        self.train(was_training)

    def unread_rows(self) -> dict[str, str]:
        """Return the rows of the student's embedding tables that no batch so far has trained.

        Weight decay alone is no training.

        Returns:
            Ranges of rows, see `limbeck.training.read_rows`, by name of the table's parameter.
        """
        unread = self.read_rows.unread()
        rows_by_parameter: dict[str, str] = {}
        for kind, table in embedding_tables(self.student).items():
            rows = unread[kind]
            # Where the table of word embeddings is the output layer too, every row is trained by the scores.
            if kind == "tokens" and self._scores_by_embeddings:
                rows = ""
            # No row of a frozen table is trained.
            if not table.module.weight.requires_grad:
                rows = write_ranges(np.ones(table.module.num_embeddings, dtype=np.bool_))
            rows_by_parameter[f"{table.name}.weight"] = rows
        return rows_by_parameter

    def close(self) -> None:
        """Take off the taps that read the streams, so that student and teacher are ordinary models again.

        A teacher's blocks above the highest layer that was read have been dropped, and stay so.
        """
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
        if term.map_name not in maps:
            maps[term.map_name] = term.learned_map
        elif maps[term.map_name] != term.learned_map:
            raise RecipeError(
                f"Term '{term.name}' has a learned map '{term.map_name}', but another term has a different map of "
                "the same name; give one of the two maps another name."
            )
    return maps


def _scores_by_embeddings(student: PreTrainedModel, terms: Sequence[Term]) -> bool:
    """Whether terms read the student's scores, and its table of word embeddings is the output layer that gives them."""
    if not any(key.name == "logits" for term in terms for key in term.student):
        return False
    output = student.get_output_embeddings()
    return output is not None and output.weight is student.get_input_embeddings().weight


def _continues(earlier_term: Term, term: Term) -> bool:
    """Whether a term of a later stage is an earlier one in all but weight, options and cost attention."""
    return replace(earlier_term, weight=term.weight, options=term.options, cost_attention=term.cost_attention) == term
