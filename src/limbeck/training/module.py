"""`DistillationModule`: one forward of teacher and student, and the terms between their streams."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.core import IGNORED_LABEL, ranks
from limbeck.corpus.batches import SKIPPED, TEACHER_IDS, TEACHER_MASK
from limbeck.errors import RecipeError
from limbeck.methods.term import LearnedMap, Term
from limbeck.models.families import embedding_tables
from limbeck.models.packed_rows import rows_of_tokens
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.tap_points import attach_linear_maps
from limbeck.models.taps import StreamTap
from limbeck.objectives import OBJECTIVES, LossTerm
from limbeck.objectives.earth_mover import EmdTerm
from limbeck.training.gathering import gather_rows, sum_over_ranks
from limbeck.training.layer_weights import make_layer_weights
from limbeck.training.learned_maps import RIDGE, STUDENT_WEIGHTS, Learned, kept_maps, make_learned_map, map_arguments
from limbeck.training.read_rows import ReadRows, write_ranges
from limbeck.training.teaching.live import TeacherReader
from limbeck.training.units import FILLER


class DistillationModule(nn.Module):
    """Student and learned maps as parameters; the frozen teacher beside them, outside the state dict.

    The teacher is no submodule: `.train()`, `.parameters()`, `state_dict()`, the gradient reducer and the
    checkpoints never see it.

    Args:
        student: The model that learns.
        teacher: The model that is read; frozen here, and cut above the deepest stream that is needed. Or a reader that
            serves other students too, whose streams include those of these terms.
        terms: The terms of the stage.
        pooling: How the student's `pooled` and `vector` streams are made; a reader knows of its own.

    Raises:
        RecipeError: for terms that share a learned map by name and not by size.

    Attributes:
        reader: Reads the teacher's streams as far as they are needed; `.to()` on this module does not move it.
        student_tap: Reads the student's, under the autocast that is on.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | TeacherReader,
        terms: Sequence[Term],
        *,
        pooling: str | SentenceHead = "mean",
    ) -> None:
        super().__init__()
        self.student = student
        self.terms = tuple(terms)
        maps: dict[str, LearnedMap] = {}
        for term in terms:
            if term.learned_map is not None and maps.setdefault(term.map_name, term.learned_map) != term.learned_map:
                raise RecipeError(
                    f"Term '{term.name}' has a learned map '{term.map_name}' that differs from another term's of that "
                    "name; give it another name."
                )
        self.maps = nn.ModuleDict({name: make_learned_map(learned) for name, learned in maps.items()})
        over_vocabulary = [term for term in terms if term.reads_logits]
        # Where only masked tokens are taught, only they are scored: about a seventh of the work.
        self._scores_labelled = bool(over_vocabulary) and all(term.rows == "label" for term in over_vocabulary)
        scores = any(key.kind == "logits" for term in terms for key in term.student)
        output = student.get_output_embeddings() if scores else None
        self._scores_tokens = output is not None and output.weight is student.get_input_embeddings().weight
        self.read_rows = ReadRows(student)
        self.maps_to_start = list(kept_maps(terms))
        self.layer_weights = make_layer_weights(terms)
        self._distances: list[EmdTerm] = []
        # A plain attribute of a reader, which is no module: nothing of the teacher is registered here.
        self.reader = teacher if isinstance(teacher, TeacherReader) else TeacherReader(teacher, terms, pooling=pooling)
        keys = {key for term in terms for key in term.student}
        self.student_tap = StreamTap(student, keys, pooling=pooling, from_hidden=self.reader.from_hidden)
        attach_linear_maps(student)  # The tap, when it is closed, takes it off.

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor | None = None,
        groups: Tensor | None = None,
        **inputs: Tensor,
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on a batch.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`, nonzero where a token is real.
            labels: Masked tokens `[B, L]`, classes or values `[B]`, or answers `[B, 2]`, where a term needs them.
            groups: The number of each sample's group `[B]`, where a term compares samples of a group.
            **inputs: Further inputs of both models, or of one; see `PadCollator`.

        Returns:
            For each term its total and its count, undivided; see `LossTerm`.
        """
        scored = self.scored_tokens(attention_mask, labels)
        teacher = self.reader.read(input_ids, attention_mask, scored=scored, **inputs)
        student = self.student_tap(input_ids, attention_mask, scored=scored, **student_inputs(inputs))
        return self.compute_terms(student, teacher, attention_mask, labels, groups)

    def scored_tokens(self, attention_mask: Tensor, labels: Tensor | None) -> Tensor | None:
        """Return the tokens that are scored over the vocabulary, bool `[B, L]`; None for all.

        They are the labelled ones where no others are taught. On a CPU they are the real ones where their logits would
        be left unmade: the batch then runs packed.
        """
        if self._scores_labelled and labels is not None:
            return labels != IGNORED_LABEL
        packs = attention_mask.device.type == "cpu" and self.reader.from_hidden
        if packs and self.student_tap.leaves_unmade(int(attention_mask.count_nonzero())):
            return attention_mask.bool()
        return None

    def compute_terms(
        self,
        student: Streams,
        teacher: Streams,
        attention_mask: Tensor,
        labels: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute every term on streams that were read; returns what `forward` returns."""
        # Objectives choose their own number format; autocast must not lower their matrix products.
        with torch.autocast(device_type=attention_mask.device.type, enabled=False):
            valid = attention_mask.bool()
            losses = {term.name: self._loss(term, student, teacher, valid, labels, groups) for term in self.terms}
        if self.layer_weights is not None and self.training:
            self.layer_weights.update(self._distances)
        self._distances = []
        return {name: (loss.total, loss.count) for name, loss in losses.items()}

    # The kernels are compiled code already; tracing them anew for every term only costs.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _loss(
        self,
        term: Term,
        student: Streams,
        teacher: Streams,
        valid: Tensor,
        labels: Tensor | None,
        groups: Tensor | None,
    ) -> LossTerm:
        """Give the objective of a term the streams, the labels and the keywords that its signature names."""
        objective = OBJECTIVES[term.objective]
        if labels is not None and self._scores_labelled and term.rows == "label":
            labels = labels[labels != IGNORED_LABEL]
        if term.reads_logits and not all(key in student for key in term.student):
            return self._loss_from_hidden(term, student, teacher, valid, labels)
        learned: nn.Module | None = None
        if term.learned_map is not None:
            learned = self.maps[term.map_name]
        counted = self._counted(term, valid, labels)
        rows = rows_of_tokens(student, teacher) if objective.by_token and term.transform is None else None
        if rows is not None and rows[0].keys() >= set(term.student) and rows[1].keys() >= set(term.teacher):
            (student, teacher), counted = rows, None
        own, other = [student[key] for key in term.student], [teacher[key] for key in term.teacher]
        if term.teacher_heads is not None:
            other = [term.teacher_heads.merge(tensor) for tensor in other]
        if term.transform is not None:
            with torch.no_grad():
                mapped = partial(learned, own[0].float()) if learned is not None else own[0].detach
                other = [term.transform.make(mapped, other, self.reader.course)]
        if learned is not None and (term.normalise or not objective.takes_projection):
            own, learned = [learned(tensor.float()) for tensor in own], None
        if term.normalise:
            own, other = ([F.normalize(tensor.float(), dim=-1) for tensor in tensors] for tensors in (own, other))
        if objective.gathers_rows and self.training:  # Measured per batch, whichever process measures it.
            own, other = ([gather_rows(tensor) for tensor in tensors] for tensors in (own, other))
            labels = gather_rows(labels) if labels is not None and objective.takes_labels else labels
        offered = {"valid": counted, "groups": groups, **map_arguments(learned)}
        if self.layer_weights is not None:
            weights = {"student_weights": self.layer_weights.student, "teacher_weights": self.layer_weights.teacher}
            offered |= {**weights, "across": sum_over_ranks if self.training else None}
        loss = objective.call(own, other, labels, **{**term.options, **objective.arguments(offered)})
        if isinstance(loss, EmdTerm):
            self._distances.append(loss)
        return loss

    def _loss_from_hidden(
        self, term: Term, student: Streams, teacher: Streams, valid: Tensor, labels: Tensor | None
    ) -> LossTerm:
        """Compute a term on logits that were left unmade, from what makes them."""
        objective, tensors, options = OBJECTIVES[term.objective], [], dict(term.options)
        for owner, streams, keys in (("student", student, term.student), ("teacher", teacher, term.teacher)):
            for layer in {key.layer for key in keys}:
                tensors += [streams[StreamKey(kind, layer)] for kind in ("pre_logits", "output_weight")]
                options[f"{owner}_bias"] = streams.get(StreamKey("output_bias", layer))
        counted = self._counted(term, valid, labels)
        if tensors[0].dim() == 2 and not self._scores_labelled:  # The real tokens alone.
            labels = labels if labels is None else labels[valid]
            counted = counted if counted is None else counted[valid]
        if objective.takes_labels and labels is not None:
            tensors.append(labels)
        assert objective.from_hidden is not None
        options |= objective.arguments({"valid": counted})
        return objective.from_hidden(*tensors, **options)

    def _counted(self, term: Term, valid: Tensor, labels: Tensor | None) -> Tensor | None:
        """Return the rows that count: every real token, the labelled ones, or None for all that are there."""
        if OBJECTIVES[term.objective].unit != "row" or term.rows == "token":
            return valid
        if term.rows == "sample" or self._scores_labelled:
            return None
        return valid if labels is None else labels != IGNORED_LABEL

    def learned(self) -> Learned:
        """Return what the terms have learned beside the student: copies of learned maps and layer weights."""
        state = self.state_dict()
        return self.terms, {name: state[name].clone() for name in state if not name.startswith(STUDENT_WEIGHTS)}

    def take_learned(self, earlier: Learned) -> None:
        """Go on with the learned maps and layer weights of an earlier stage, for the same student and teacher.

        A term goes on where the earlier stage has one of the same name, objective, streams and map, whatever its
        weight and options. The papers train one map over all their schedules (ELM eq. 7, section 5.2).

        Args:
            earlier: Of that stage's module.
        """
        before, weights = {term.name: term for term in earlier[0]}, earlier[1]
        same = [term for term in self.terms if term.name in before and _goes_on(before[term.name], term)]
        maps = {term.map_name for term in same if term.learned_map is not None}
        earlier_maps = {term.map_name: term.learned_map for term in earlier[0]}
        # A map that the student keeps is part of it, whatever is taught through it.
        maps |= {name for name, learned in kept_maps(self.terms).items() if earlier_maps.get(name) == learned}
        self.maps_to_start = [name for name in self.maps_to_start if name not in maps]
        names = [f"maps.{name}.{part}" for name in sorted(maps) for part in ("weight", "bias")]
        if any(OBJECTIVES[term.objective].takes_layers and term.cost_attention is not None for term in same):
            names += [f"layer_weights.{side}" for side in ("student", "teacher")]
        self.load_state_dict({name: weights[name] for name in names if name in weights}, strict=False)

    @torch.no_grad()
    def start_maps(self, batches: Callable[[], Iterable[Mapping[str, Tensor]]]) -> None:
        """Start the maps that the student keeps by least squares, unless they go on from an earlier stage.

        W = argmin Σ ‖g W + b − t‖² + λ ‖W‖², with g the student's pooled vectors before its first step, t the finished
        ones of the teacher, and λ a thousandth of the mean squared entry of g, summed over the texts; without bias
        b = 0. The paper does not say how its map starts.

        Args:
            batches: Reads the texts, in batches of the models' inputs on their device.
        """
        terms = [next(term for term in self.terms if term.map_name == name) for name in self.maps_to_start]
        if not terms:
            return
        was_training = self.training
        self.eval()
        products: dict[str, Tensor] = {}
        for batch in batches():
            inputs = {name: tensor for name, tensor in batch.items() if name not in ("labels", "groups")}
            scored = self.scored_tokens(batch["attention_mask"], batch.get("labels"))
            student = self.student_tap(**student_inputs(inputs), scored=scored)
            teacher = self.reader.read(**inputs, scored=scored)
            for term in terms:
                # On the CPU, since not every device has float64.
                own, other = student[term.student[0]].cpu().double(), teacher[term.teacher[0]].cpu().double()
                other = F.normalize(other, dim=-1) if term.normalise else other
                own = F.pad(own, (0, 1), value=1.0)  # The last feature stands for the bias.
                product = own.T @ torch.cat([own, other], dim=-1)
                products[term.name] = products.get(term.name, torch.zeros_like(product)) + product
        for term in terms:
            learned = self.maps[term.map_name]
            assert isinstance(learned, nn.Linear)
            width, bias = learned.in_features, term.learned_map is not None and term.learned_map.bias
            found, size = ranks.broadcast(products[term.name]), learned.in_features + bias
            own, other = found[:size, :size], found[:size, width + 1 :]
            penalty = torch.zeros(size, dtype=own.dtype)
            penalty[:width] = RIDGE * own.diagonal()[:width].mean()
            solved = torch.linalg.solve(own + penalty.diag(), other)
            learned.weight.copy_(solved[:width].T)
            if bias:
                learned.bias.copy_(solved[-1])
        self.train(was_training)

    def unread_rows(self) -> dict[str, str]:
        """Return the rows of the student's embedding tables that no batch so far has trained, by parameter.

        Of a table that is not trained these are all. Of tokens whose table is the output layer too, and is scored, they
        are none: every score has a gradient. Weight decay alone is no training.
        """
        unread, found = self.read_rows.unread(), {}
        for kind, table in embedding_tables(self.student).items():
            rows = unread[kind] if kind != "tokens" or not self._scores_tokens else ""
            all_rows = write_ranges(np.ones(table.module.num_embeddings, dtype=np.bool_))
            found[f"{table.name}.weight"] = rows if table.module.weight.requires_grad else all_rows
        return found

    def close(self) -> None:
        """Take the taps off, so that student and teacher are ordinary models again; blocks stay dropped."""
        self.student_tap.close()
        self.reader.close()


def _goes_on(before: Term, term: Term) -> bool:
    """Return whether a term of a later stage relates the same tensors of the two models."""
    return replace(before, weight=term.weight, options=term.options, cost_attention=term.cost_attention) == term


def student_inputs(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what of a batch the student reads beside its tokens: of prompts that are the teacher's alone, nothing."""
    apart = TEACHER_IDS in inputs
    left_out = {TEACHER_IDS, TEACHER_MASK, SKIPPED} if apart else set()
    return {name: tensor for name, tensor in inputs.items() if name not in left_out}


def without_marks(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a batch the module takes."""
    return {name: value for name, value in batch.items() if name != FILLER}
