"""`LastLayers`, which compares layers of students with their teacher's on held-out text.

A *stream* is a tensor inside of a model, such as the keys of a layer's attention. The *relations* of a stream are the
similarities of its vectors with each other, as MiniLMv2 distils them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.comparison.least_squares import Moments, regression_error
from limbeck.methods import minilmv2
from limbeck.models.families import Shape, depth, shape_of
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl

_RELATIONS = ("query", "key", "value")
"""Streams whose relations are compared."""
_THIRDS = 3
_FITTING = 0
_CHOOSING = 1
_MEASURING = 2
"""The third of the texts by which each step is done: maps are fitted, a map is chosen, and its error is measured."""


def common_relation_heads(teacher: Shape, students: Sequence[Shape]) -> int:
    """Return the number of relation heads by which all students are compared.

    It is MiniLMv2's number, or the largest below it that fits the queries, keys and values of every model.
    """
    return minilmv2.relation_heads_for((teacher, *students), _RELATIONS, teacher=teacher)


class LayerFigures(NamedTuple):
    """Figures of a student's last layer beside its teacher's.

    Attributes:
        divergence: The mean divergence of the student's query-query, key-key and value-value relations from the
            teacher's, in nats; 0 at equality (MiniLMv2 section 3.1).
        explained: The share of the variance of the teacher's last hidden states that a linear map of the student's
            explains, 1 at most; None where it is not measured.
    """

    divergence: float
    explained: float | None


class LastLayers:
    """Compares layers of students with their teacher's, the last or mapped ones, on text that none of them trains on.

    Args:
        teacher: The teacher with all of its layers, in eval mode, on the device on which students are compared.
        batches: Inputs of the models: `input_ids`, `attention_mask` and others, `[B, L]` each.
        students: The shapes of all students, which are compared with the same number of relation heads.
        keep_streams: Whether the teacher is read once, and its queries, keys and values are kept on the CPU in its
            place. It saves reading the teacher for every student; the hidden states are then not compared.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        batches: Sequence[Mapping[str, Tensor]],
        students: Sequence[Shape],
        *,
        keep_streams: bool = False,
    ) -> None:
        shape = shape_of(teacher.config)
        self.device = teacher.device
        self._batches = batches
        self._heads = common_relation_heads(shape, students)
        self._is_causal = shape.causal
        self._width = shape.hidden
        # Streams are the vectors of a layer: its queries, keys and values, and its hidden states, which are not kept.
        self._compares_hidden = not keep_streams
        self._stream_names: tuple[str, ...] = _RELATIONS
        if self._compares_hidden:
            self._stream_names = (*_RELATIONS, "hidden")
        # Either the teacher, which is read again for every student, or its streams of each batch.
        self._teacher: PreTrainedModel | None = teacher
        self._teacher_streams: list[dict[str, Tensor]] = []
        if keep_streams:
            self._teacher = None
            for streams in self._read_last(teacher):
                self._teacher_streams.append({name: tensor.cpu() for name, tensor in streams.items()})

    def compare(self, student: PreTrainedModel) -> LayerFigures:
        """Compare a student in eval mode, on the teacher's device.

        For `explained`, the linear map is a ridge regression in three steps: for each penalty a map is fitted on the
        first third of the batches, the penalty with the smallest error on the second third is chosen, and its map,
        fitted on both thirds, is measured on the last third. Fewer than three batches have no such figure.
        """
        return self._compare(self._read_last(student))

    @cached_property
    def uniform(self) -> float:
        """The divergence of uniform relations, in which all tokens are equally similar; a scale for other divergences.

        Streams of zeros have such relations. It needs `keep_streams`.
        """
        zeros = (_zeros_like(streams) for streams in self._teacher_streams)
        return self._compare(zeros).divergence

    def hidden_states_loss(self, student: PreTrainedModel, mapping: Mapping[int, Sequence[int]]) -> float:
        """Return L_HS = sum over i and j in phi(i) of MSE(H_i^S W_i^j, H_j^T), the mean over tokens and widths.

        H_i^S are the hidden states of student layer i, H_j^T those of teacher layer j. The maps W are not those that a
        method has trained, since not every method trains any: each is fitted here by the ridge regression of `compare`,
        without an offset as in the paper, and the loss is that of the last third of the batches. There is a term for
        each pair of layers, so deeper students have larger sums.

        Args:
            student: The student in eval mode, on the teacher's device.
            mapping: phi: student layer to the teacher layers that it learns from, both counted from 1.

        Source:
            Comparative study (arXiv 2310.08797) section 3, equation 6.
        """
        assert self._teacher is not None, "kept streams are of the last layer alone"
        student_keys = {layer: StreamKey("hidden", layer) for layer in mapping}
        # Several student layers may learn from one teacher layer, which is read once.
        teacher_keys: dict[int, StreamKey] = {}
        for teacher_layers in mapping.values():
            for teacher_layer in teacher_layers:
                teacher_keys[teacher_layer] = StreamKey("hidden", teacher_layer)

        thirds_of_layer = {layer: Thirds(len(self._batches)) for layer in mapping}
        student_batches = self._read(student, student_keys.values())
        teacher_batches = self._read(self._teacher, teacher_keys.values())
        for batch, student_streams, teacher_streams in zip(
            self._batches, student_batches, teacher_batches, strict=True
        ):
            valid = self._valid_tokens(batch)
            for layer, teacher_layers in mapping.items():
                # A student layer may learn from several teacher layers. Their hidden states are put side by side,
                # [tokens, layers x width], so that one regression fits all maps of the student layer.
                targets = [teacher_streams[teacher_keys[teacher_layer]][valid] for teacher_layer in teacher_layers]
                thirds_of_layer[layer].add(student_streams[student_keys[layer]][valid], torch.cat(targets, dim=-1))
        # An error is summed over the teacher's width, and the loss is a mean over it.
        return sum(thirds.error(offset=False) for thirds in thirds_of_layer.values()) / self._width

    def _compare(self, student_batches: Iterable[Mapping[str, Tensor]]) -> LayerFigures:
        """Compare the streams of a student's last layer, batch by batch, with those of the teacher."""
        total = 0.0
        count = 0.0
        # The hidden states in the three thirds of the batches that `compare` names.
        thirds = Thirds(len(self._batches))
        for batch, student_streams, teacher_streams in zip(
            self._batches, student_batches, self._last_of_teacher(), strict=True
        ):
            valid = self._valid_tokens(batch)
            for name in _RELATIONS:
                # A stream's relations are those of its vectors with each other.
                student = student_streams[name].to(self.device)
                teacher = teacher_streams[name].to(self.device)
                term = relation_kl(
                    student, student, teacher, teacher, heads=self._heads, valid=valid, causal=self._is_causal
                )
                total += float(term.total)
                count += float(term.count)
            if self._compares_hidden:
                thirds.add(student_streams["hidden"][valid], teacher_streams["hidden"][valid])

        explained = None
        if self._compares_hidden and thirds.are_whole:
            explained = 1 - thirds.error() / thirds.variance
        return LayerFigures(divergence=total / count, explained=explained)

    def _last_of_teacher(self) -> Iterable[Mapping[str, Tensor]]:
        """Return the streams of the teacher's last layer by name, batch by batch: the kept ones, or read again."""
        if self._teacher is None:
            return self._teacher_streams
        return self._read_last(self._teacher)

    def _read_last(self, model: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
        """Read the streams of a model's last layer by name, batch by batch."""
        keys = [StreamKey(name, depth(model.config)) for name in self._stream_names]
        for streams in self._read(model, keys):
            yield {key.name: tensor for key, tensor in streams.items()}

    def _read(self, model: PreTrainedModel, keys: Iterable[StreamKey]) -> Iterator[Streams]:
        """Read streams of a model, batch by batch."""
        with StreamTap(model, keys) as tap:
            for batch in self._batches:
                with torch.no_grad():
                    streams = tap(**{name: tensor.to(self.device) for name, tensor in batch.items()})
                yield streams

    def _valid_tokens(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which tokens of a batch are no padding, `[B, L]`."""
        return batch["attention_mask"].bool().to(self.device)


def _zeros_like(streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros of the shapes of streams."""
    return {name: torch.zeros_like(tensor) for name, tensor in streams.items()}


class Thirds:
    """Rows of batches in three thirds: to fit a regression, to choose its penalty, and to measure it.

    Only sums over the rows of each third are kept, see `Moments`.

    Args:
        batches: Number of batches that will be added.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._added = 0
        self._moments: dict[int, Moments] = {}

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add the rows of the next batch, `[n, X]` and `[n, Y]`."""
        # Batch i of n belongs to third 3i / n, rounded down: 0, 1 or 2.
        third = _THIRDS * self._added // self._batches
        moments = Moments.of_rows(features, targets)
        if third in self._moments:
            moments = self._moments[third] + moments
        self._moments[third] = moments
        self._added += 1

    @property
    def are_whole(self) -> bool:
        """Whether each third has rows; fewer than three batches leave one empty."""
        return len(self._moments) == _THIRDS

    def error(self, *, offset: bool = True) -> float:
        """Return the mean over rows of the last third of the squared error, summed over the targets' width."""
        return regression_error(
            self._moments[_FITTING], self._moments[_CHOOSING], self._moments[_MEASURING], offset=offset
        )

    @property
    def variance(self) -> float:
        """The variance of the targets in the last third, summed over their width."""
        return self._moments[_MEASURING].variance
