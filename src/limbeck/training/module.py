"""`DistillationModule`: one forward of teacher and student, and the terms between their streams."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.core import IGNORED_LABEL, ranks
from limbeck.corpus.batches import SKIPPED, TEACHER_IDS, TEACHER_MASK
from limbeck.errors import RecipeError
from limbeck.methods.composition import LearnedMap, Term
from limbeck.models.families import embedding_tables, family_of
from limbeck.models.packed_rows import rows_of_tokens
from limbeck.models.packing import padded_batch_positions
from limbeck.models.sentences import SentenceHead
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.tap_points import attach_linear_maps
from limbeck.models.taps import StreamTap
from limbeck.objectives import OBJECTIVES, LossTerm
from limbeck.objectives.earth_mover import EmdTerm, cost_attention, uniform_weights
from limbeck.objectives.terms import count_groups, same_group
from limbeck.training.teacher import TeacherReader

# The weights of both models' layers in earth mover's distances; they belong to the run and are resumed with it.


class LayerWeights(nn.Module):
    """Weights that start equal, and after each training batch follow the costs of its distances.

    Several distances, of hidden states and of attention, share one pair of weights: the mean of the updates by each,
    as in the code of BERT-EMD's authors (see `limbeck.objectives.earth_mover`).

    Args:
        student: Layers of the student.
        teacher: Layers of the teacher.
        temperature: Of the cost attention; None keeps the weights equal.
    """

    student: Tensor
    teacher: Tensor

    def __init__(self, student: int, teacher: int, temperature: float | None) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("student", uniform_weights(student))
        self.register_buffer("teacher", uniform_weights(teacher))

    @torch.no_grad()
    def update(self, distances: Sequence[EmdTerm]) -> None:
        """Move the weights after a batch."""
        if self.temperature is None or not distances:
            return
        found = [
            cost_attention(term.costs, term.flow, self.student, self.teacher, temperature=self.temperature)
            for term in distances
        ]
        self.student.copy_(torch.stack([student for student, _ in found]).mean(0))
        self.teacher.copy_(torch.stack([teacher for _, teacher in found]).mean(0))


def make_layer_weights(terms: Sequence[Term]) -> LayerWeights | None:
    """Make the weights that the terms over layers share; None where there is no such term."""
    over_layers = [term for term in terms if OBJECTIVES[term.objective].takes_layers]
    if not over_layers:
        return None
    term = over_layers[0]
    streams = OBJECTIVES[term.objective].student_streams
    return LayerWeights(len(term.student) // streams, len(term.teacher) // streams, term.cost_attention)


# The run's learned maps: linear, without bias, so that zero stays zero, as the papers' W.
#
# They start as the identity, cut or filled with zeros where widths differ: a student that starts from its teacher's
# layers is then near it from the first step, where a random map would first have to be learned away. The papers do
# not say how theirs start. A map that the student keeps starts by least squares on its text (`start_maps`).


class HeadMaps(nn.Module):
    """One map for every relation head: the projections of `direct_mse`.

    Args:
        heads: Relation heads R.
        inputs: Width of a student's head.
        outputs: Width of a teacher's head.
    """

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(inputs, outputs).repeat(heads, 1, 1))


def make_learned_map(spec: LearnedMap) -> nn.Linear | HeadMaps:
    """Make the module of a learned map."""
    if spec.heads is not None:
        return HeadMaps(spec.heads, spec.inputs // spec.heads, spec.outputs // spec.heads)
    learned = nn.Linear(spec.inputs, spec.outputs, bias=spec.bias)
    nn.init.eye_(learned.weight)
    if spec.bias:
        nn.init.zeros_(learned.bias)
    return learned


def kept_maps(terms: Iterable[Term]) -> dict[str, LearnedMap]:
    """Return the maps that the student of these terms keeps, by name."""
    maps = ((term.map_name, term.learned_map) for term in terms)
    return {name: learned for name, learned in maps if learned is not None and learned.kept}


_RIDGE = 1e-3
Learned: TypeAlias = tuple[Sequence[Term], Mapping[str, Tensor]]
"""The terms of a trained stage, and the weights that it leaves beside its student's."""
STUDENT_WEIGHTS = "student."
"""Prefix of the student's weights in the state of a `DistillationModule`; all others are a run's learned maps."""


def map_arguments(learned: nn.Module | None) -> dict[str, Any]:
    """Return the keyword under which an objective takes a learned map: `projection`, or `projections` of its heads."""
    if learned is None:
        return {}
    return {"projections": learned.weight} if isinstance(learned, HeadMaps) else {"projection": learned}


# What terms that couple the samples of a batch need of the other ranks: their rows, or sums over them.


def gather_rows(rows: Tensor) -> Tensor:
    """Join the rows of all ranks along dimension 0; gradients flow back to the rank they belong to.

    Every rank must hold the same number of rows, as its data loader sees to.

    Args:
        rows: `[B, ...]` of this rank.

    Returns:
        `[ranks * B, ...]`; the input itself without distribution.
    """
    if not _shares_batches():
        return rows
    return torch.cat(list(all_gather(rows.contiguous())), dim=0)


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum a tensor of equal shape over all ranks, without gradient; the input itself without distribution."""
    if not _shares_batches():
        return values
    summed = values.detach().clone()
    torch.distributed.all_reduce(summed)
    return summed


def _shares_batches() -> bool:
    found = torch.distributed
    return found.is_available() and found.is_initialized() and found.get_world_size() > 1


# Units: what the counts of a batch are proportional to, known before its first backward.


UNITS = ("token", "sample", "label", "pair", "group")
FILLER = "filler"
"""Key of a batch that only keeps a process in step with the others: it counts nothing."""


def count_units(batch: Mapping[str, Any]) -> Tensor:
    """Count the valid tokens, samples, labelled positions, pairs of valid tokens and groups of samples of a batch.

    Args:
        batch: `attention_mask` `[B, L]`, and `labels` and `groups` where there are any.

    Returns:
        Float64 `[5]` in the order of `UNITS`, on the batch's device: no host sync.
    """
    mask: Tensor = batch["attention_mask"]
    if FILLER in batch:
        return mask.new_zeros(len(UNITS), dtype=torch.float64)
    labels, groups = batch.get("labels"), batch.get("groups")
    zero = mask.new_zeros((), dtype=torch.float64)
    return torch.stack(
        [
            mask.sum(dtype=torch.float64),
            zero + mask.shape[0],
            zero if labels is None else labels.ne(IGNORED_LABEL).sum(dtype=torch.float64),
            mask.sum(1, dtype=torch.float64).square().sum(),
            zero if groups is None else zero + count_groups(same_group(groups, mask)),
        ]
    )


def sum_units(batches: Iterable[Mapping[str, Any]]) -> Tensor:
    """Add up the units of several batches."""
    return torch.stack([count_units(batch) for batch in batches]).sum(0)


# Rows of embedding tables that the batches of a stage read: a table is trained as a whole only if all are.


def write_ranges(rows: NDArray[np.bool_]) -> str:
    """Write the rows of a table that are true as ranges, such as `0-98,103`."""
    edges = np.flatnonzero(np.diff(np.pad(rows, 1).astype(np.int8))).tolist()
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return ",".join(str(first) if end - first == 1 else f"{first}-{end - 1}" for first, end in pairs)


def read_ranges(text: str, rows: int) -> NDArray[np.bool_]:
    """Read what `write_ranges` wrote of a table with so many rows."""
    found = np.zeros(rows, dtype=np.bool_)
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found[int(first) : int(last or first) + 1] = True
    return found


class ReadRows:
    """Notes which rows of a student's embedding tables training batches read: tokens, positions and segments.

    A row is read where a real token has its id, its position or its segment, whatever masking or replacing put there.
    Padding reads none. The notes stay on the device: no step waits for them.

    Args:
        student: The student, or one of many that read the same batches.
    """

    def __init__(self, student: PreTrainedModel) -> None:
        config = student.config
        self._padding = config.pad_token_id if family_of(config).padded_positions else None
        # One row more, which padding reads: no shape depends on the batch.
        self._read = {
            kind: torch.zeros(table.module.num_embeddings + 1, dtype=torch.bool)
            for kind, table in embedding_tables(student).items()
        }

    def move(self, device: torch.device) -> None:
        """Place the notes where the batches are."""
        self._read = {kind: read.to(device) for kind, read in self._read.items()}

    def note(self, batch: Mapping[str, Any]) -> None:
        """Note the rows that a batch reads; arguments as of `count_units`, with `input_ids` and `token_type_ids`."""
        if FILLER in batch:
            return
        ids, valid = batch["input_ids"], batch["attention_mask"].bool()
        rows = {"tokens": ids, "positions": padded_batch_positions(ids, self._padding)}
        rows["segments"] = batch.get("token_type_ids", torch.zeros_like(ids))
        for kind, read in self._read.items():
            read.index_fill_(0, torch.where(valid, rows[kind], len(read) - 1).flatten(), True)

    def merge(self) -> None:
        """Join the notes of all processes; every process has to do it."""
        self._read = {kind: sum_over_ranks(read.int()) > 0 for kind, read in self._read.items()}

    def unread(self) -> dict[str, str]:
        """Return the rows of each kind that were not read, as ranges."""
        return {kind: write_ranges(~read[:-1].cpu().numpy()) for kind, read in self._read.items()}

    def load(self, unread: Mapping[str, str] | None) -> None:
        """Take up what `unread` returned; None, of an older checkpoint, stands for notes that all rows were read."""
        for kind, read in self._read.items():
            found = read_ranges((unread or {}).get(kind, ""), len(read) - 1)
            read[:-1] = torch.from_numpy(~found).to(read.device)


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
        rows = rows_of_tokens(student, teacher) if objective.by_token and term.target is None else None
        if rows is not None and rows[0].keys() >= set(term.student) and rows[1].keys() >= set(term.teacher):
            (student, teacher), counted = rows, None
        own, other = [student[key] for key in term.student], [teacher[key] for key in term.teacher]
        if term.teacher_heads is not None:
            other = [term.teacher_heads.merge(tensor) for tensor in other]
        if term.target is not None:
            with torch.no_grad():
                mapped = partial(learned, own[0].float()) if learned is not None else own[0].detach
                other = [term.target.make(mapped, other, self.reader.course)]
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
            penalty[:width] = _RIDGE * own.diagonal()[:width].mean()
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


# Parameters that a stage gives no gradient: found by asking autograd, then kept out of optimizer and reducer.


def freeze_unreached(module: DistillationModule, batch: Mapping[str, Tensor]) -> list[str]:
    """Freeze the parameters that no term reaches, and return the names of those of the student.

    A forward and a backward on a small batch tell exactly which they are, whatever the family: for example the
    attention output and feed-forward layer of the last block when only its queries, keys and values are taught.

    Args:
        module: The module; parameters already frozen stay so. Its gradients are cleared.
        batch: `input_ids` and `attention_mask` of a few rows.

    Returns:
        Names of the student's parameters that this call froze, in order.
    """
    before, was_training = untrained_names(module.student), module.training
    module.eval()  # Dropout must not draw from the run's random stream.
    try:
        outputs = module(**batch)
        torch.stack([total for total, _ in outputs.values()]).sum().backward()
        for parameter in module.parameters():
            if parameter.grad is None:
                parameter.requires_grad_(False)
    finally:
        module.zero_grad(set_to_none=True)
        module.train(was_training)
    return [name for name in untrained_names(module.student) if name not in before]


def untrained_names(student: nn.Module) -> list[str]:
    """Names of the parameters that are frozen now."""
    return [name for name, parameter in student.named_parameters() if not parameter.requires_grad]
