"""A term of a method: one weighted objective, and how each model's streams are prepared for it.

A *stream* is a tensor that a model computes on the way, such as the hidden states of a layer. An *objective* is a
function that compares streams of the student with streams of the teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from limbeck.methods.transforms import Course, HeadGroups, Transform
from limbeck.models.streams import StreamKey, Streams

if TYPE_CHECKING:
    from torch import Tensor

    from limbeck.objectives import Objective


@dataclass(frozen=True)
class LearnedMap:
    """A trainable linear map from student width to teacher width; it belongs to the run, unless the student keeps it.

    Args:
        inputs: Width of the student's stream.
        outputs: Width of the teacher's stream.
        heads: Number of relation heads with a map each, from `inputs / heads` to `outputs / heads`; None is one map
            for the whole width.
        name: Terms whose maps have the same name share one map; None for a map of the term's own.
        kept: The student keeps the map after training, as a module behind its pooling. It then starts by least squares,
            and its input is the student's pooled vector.
        bias: Whether the map adds a vector.
    """

    inputs: int
    outputs: int
    heads: int | None = None
    name: str | None = None
    kept: bool = False
    bias: bool = False


Rows: TypeAlias = Literal["token", "label", "sample"]


@dataclass(frozen=True)
class Term:
    """One weighted objective over streams of the student and the teacher.

    Args:
        name: Unique in its method; the key under which its loss is logged.
        objective: Name in the objective registry.
        student: The student's streams, in the objective's order.
        teacher: The teacher's streams, in the same order.
        weight: Coefficient in the loss; not negative.
        options: Further keyword arguments of the objective, such as `heads`.
        learned_map: The map applied to the student's stream, if any.
        teacher_heads: Merges the teacher's attention heads first; None leaves them as they are.
        transform: Makes one stream of the teacher's streams, for objectives that take one; None leaves them as they
            are.
        normalise: Give the rows of both models unit length first; the student's after its learned map.
        rows: The rows that count, for terms on logits: `"token"` every valid token, `"label"` labelled tokens,
            `"sample"` one row for each sample. If all terms on logits have `"label"`, the models score labelled tokens
            alone, and the objective gets only their rows and labels.
        cost_attention: Temperature with which the weights of the layers follow their costs, for objectives over all
            layers (see `limbeck.objectives.layer_transport.cost_attention`); None keeps the weights equal.
    """

    name: str
    objective: str
    student: tuple[StreamKey, ...]
    teacher: tuple[StreamKey, ...]
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    learned_map: LearnedMap | None = None
    teacher_heads: HeadGroups | None = None
    transform: Transform | None = None
    normalise: bool = False
    rows: Rows = "token"
    cost_attention: float | None = None

    @property
    def map_name(self) -> str:
        """Key of the learned map, where there is one; terms with the same key share it."""
        if self.learned_map is not None and self.learned_map.name is not None:
            return self.learned_map.name
        return self.name

    @property
    def unit(self) -> str:
        """The unit that the term's count is proportional to; see `Objective.unit`."""
        unit = self._function.unit
        return self.rows if unit == "row" else unit

    @property
    def reads_logits(self) -> bool:
        """Whether it is a term on logits, of either model."""
        return any(key.name == "logits" for key in (*self.student, *self.teacher))

    @property
    def takes_from_hidden(self) -> bool:
        """Whether it can be computed from hidden vectors in place of logits; see `Objective.from_hidden`."""
        # Maps, merged heads, transforms and normalising would need the logits themselves.
        has_plain_streams = (
            self.learned_map is None and self.teacher_heads is None and self.transform is None and not self.normalise
        )
        return self._function.from_hidden is not None and has_plain_streams

    @property
    def batch_coupled(self) -> bool:
        """Whether the term couples the samples of a batch, so that a batch cannot be split."""
        return self._function.batch_coupled

    @property
    def map_in_objective(self) -> bool:
        """Whether the objective applies the learned map itself, rather than getting mapped streams."""
        return self.learned_map is not None and self._function.takes_projection and not self.normalise

    def prepare_student(self, streams: Streams, learned: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
        """Return the student's streams as the objective takes them.

        They are mapped, unless the objective applies the map itself, and of unit length with `normalise`.

        Args:
            streams: The student's streams, with all that the term names.
            learned: The module of the learned map; None if the term has none.
        """
        tensors = [streams[key] for key in self.student]
        if learned is not None and not self.map_in_objective:
            tensors = [learned(tensor.float()) for tensor in tensors]
        if self.normalise:
            tensors = [_of_unit_length(tensor) for tensor in tensors]
        return tensors

    def prepare_teacher(self, streams: Streams, student: Callable[[], Tensor], course: Course) -> list[Tensor]:
        """Return the teacher's streams as the objective takes them: heads merged, transformed, of unit length.

        Args:
            streams: The teacher's streams, with all that the term names.
            student: Returns the student's first stream, through the learned map where there is one. A transform of the
                teacher's streams may depend on it.
            course: The progress of the training.
        """
        import torch

        tensors = [streams[key] for key in self.teacher]
        if self.teacher_heads is not None:
            tensors = [self.teacher_heads.merge(tensor) for tensor in tensors]
        if self.transform is not None:
            # A transform makes one target of all streams.
            with torch.no_grad():
                target = self.transform.make(student, tensors, course)
            tensors = [target]
        if self.normalise:
            tensors = [_of_unit_length(tensor) for tensor in tensors]
        return tensors

    @property
    def _function(self) -> Objective:
        """The objective of its name."""
        # Importing it imports torch, which takes seconds that a list of methods need not wait for.
        from limbeck.objectives import OBJECTIVES

        return OBJECTIVES[self.objective]


def stream_keys(*names: str, layer: int) -> tuple[StreamKey, ...]:
    """Return the keys of a model's streams at a layer, in the order of their names."""
    return tuple(StreamKey(name, layer) for name in names)


def _of_unit_length(stream: Tensor) -> Tensor:
    """Scale each row of a stream to length one, in float32."""
    from torch.nn import functional as F

    return F.normalize(stream.float(), dim=-1)
