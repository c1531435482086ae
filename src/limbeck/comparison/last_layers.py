"""`LastLayers`: layers of students compared with their teacher's on held-out text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.comparison.least_squares import Moments, regression_error
from limbeck.methods import layer_mapping, minilmv2
from limbeck.models.families import Shape, depth, shape_of
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl

_RELATIONS = ("query", "key", "value")
"""Streams whose relations are compared."""


def common_relation_heads(teacher: Shape, students: Sequence[Shape]) -> int:
    """Return the relation heads of all students: MiniLMv2's number, or the nearest below that divides every width."""
    widths: set[int] = set()
    for shape in (teacher, *students):
        widths.update(layer_mapping.stream_width(shape, name) for name in _RELATIONS)
    return minilmv2.relation_heads_for(teacher, widths)


class LastLayers:
    """Compares layers of students with their teacher's, the last or mapped ones, on text that none of them trains on.

    Args:
        teacher: Whole, in eval mode, where students are compared.
        batches: `input_ids`, `attention_mask` and what else the models take, `[B, L]`.
        students: The shapes of all students, which are compared by the same relation heads.
        kept: Read the teacher's relations once and keep them, on the CPU; its hidden states are not compared then.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        batches: Sequence[Mapping[str, Tensor]],
        students: Sequence[Shape],
        *,
        kept: bool = False,
    ) -> None:
        shape = shape_of(teacher.config)
        self.device = teacher.device
        self._batches = batches
        self._heads = common_relation_heads(shape, students)
        self._causal = shape.causal
        self._width = shape.hidden
        self._teacher: PreTrainedModel | None = teacher
        self._kept: list[dict[str, Tensor]] = []
        self._names: tuple[str, ...] = (*_RELATIONS, "hidden")
        if kept:
            self._teacher = None
            self._names = _RELATIONS
            for streams in self._read_last(teacher):
                self._kept.append({name: tensor.cpu() for name, tensor in streams.items()})

    def compare(self, student: PreTrainedModel) -> tuple[float, float | None]:
        """Compare a student in eval mode, on the teacher's device.

        Returns:
            The mean divergence of the student's query-query, key-key and value-value relations from the teacher's, in
            nats (0 at equality; MiniLMv2 section 3.1). And the share of the variance of the teacher's last hidden
            states that a linear map of the student's explains (1: all of it), by a ridge regression on the first two
            thirds of the batches, measured on the last; None of fewer than three. Its penalty does best on the second
            third when fitted on the first: a few thousand tokens are little for as many features.
        """
        return self._compare(self._read_last(student))

    def hidden_states_loss(self, student: PreTrainedModel, mapping: Mapping[int, Sequence[int]]) -> float:
        """Return L_HS = sum over i and j in phi(i) of MSE(H_i^S W_i^j, H_j^T), means being over tokens and widths.

        The maps W have no offset, as printed. They are not those of a training, since a method may learn none: each
        is the ridge regression of `compare`, on the first two thirds of the batches, and the loss is of the last. The
        sum has a term for each pair of layers, so a deeper student has more of them.

        Args:
            student: In eval mode, on the teacher's device.
            mapping: phi, the teacher's layers by student layer, both counted from 1.

        Source:
            Comparative study (arXiv 2310.08797) section 3, equation 6. The nearest figure without a unit is the share
            of the variance that `compare` returns.
        """
        assert self._teacher is not None  # kept streams are of the last layer
        student_keys = {layer: StreamKey("hidden", layer) for layer in mapping}
        teacher_keys: dict[int, StreamKey] = {}
        for teacher_layers in mapping.values():
            for layer in teacher_layers:
                teacher_keys[layer] = StreamKey("hidden", layer)
        thirds = {layer: _Thirds(len(self._batches)) for layer in mapping}
        student_streams = self._read(student, student_keys.values())
        teacher_streams = self._read(self._teacher, teacher_keys.values())
        for batch, learned, taught in zip(self._batches, student_streams, teacher_streams, strict=True):
            valid = batch["attention_mask"].bool().to(self.device)
            for layer, teacher_layers in mapping.items():
                # Side by side: the maps of one student layer are the columns of one regression.
                targets = [taught[teacher_keys[teacher_layer]][valid] for teacher_layer in teacher_layers]
                thirds[layer].add(learned[student_keys[layer]][valid], torch.cat(targets, dim=-1))
        return sum(third.error(offset=False) for third in thirds.values()) / self._width

    @cached_property
    def uniform(self) -> float:
        """The divergence of relations that look at all tokens alike, as those of zeros do; where they are kept."""
        divergence, _ = self._compare(_zeros_like(streams) for streams in self._kept)
        return divergence

    def _read(self, model: PreTrainedModel, keys: Iterable[StreamKey]) -> Iterator[Streams]:
        """Read streams of a model, batch by batch."""
        with StreamTap(model, keys) as tap:
            for batch in self._batches:
                with torch.no_grad():
                    streams = tap(**{name: tensor.to(self.device) for name, tensor in batch.items()})
                yield streams

    def _read_last(self, model: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
        """Read the streams of a model's last layer by name, batch by batch."""
        keys = [StreamKey(name, depth(model.config)) for name in self._names]
        for streams in self._read(model, keys):
            yield {key.kind: tensor for key, tensor in streams.items()}

    def _compare(self, student_streams: Iterable[Mapping[str, Tensor]]) -> tuple[float, float | None]:
        teacher_streams: Iterable[Mapping[str, Tensor]] = self._kept
        if self._teacher is not None:
            teacher_streams = self._read_last(self._teacher)
        total = 0.0
        count = 0.0
        thirds = _Thirds(len(self._batches))
        for batch, learned, taught in zip(self._batches, student_streams, teacher_streams, strict=True):
            valid = batch["attention_mask"].bool().to(self.device)
            for name in _RELATIONS:
                # A stream's relations are those of its vectors with each other.
                student = learned[name].to(self.device)
                teacher = taught[name].to(self.device)
                term = relation_kl(
                    student, student, teacher, teacher, heads=self._heads, valid=valid, causal=self._causal
                )
                total += float(term.total)
                count += float(term.count)
            if "hidden" in self._names:
                thirds.add(learned["hidden"][valid], taught["hidden"][valid])
        explained = None
        if "hidden" in self._names and len(self._batches) >= 3:
            explained = 1 - thirds.error() / thirds.variance
        return total / count, explained


def _zeros_like(streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in streams.items()}


class _Thirds:
    """Rows of batches in three thirds: to fit a regression, to choose its penalty, and to measure it.

    Args:
        batches: Number of batches.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._added = 0
        self._moments = (Moments(), Moments(), Moments())

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add the rows of the next batch, `[n, X]` and `[n, Y]`."""
        third = 3 * self._added // self._batches
        self._moments[third].add(features, targets)
        self._added += 1

    def error(self, *, offset: bool = True) -> float:
        """Return the squared error of a row of the last third, see `regression_error`."""
        return regression_error(*self._moments, offset=offset)

    @property
    def variance(self) -> float:
        """The variance of the targets in the last third, summed over their width."""
        return self._moments[2].variance
