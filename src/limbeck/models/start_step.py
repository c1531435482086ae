"""`StartStep`: a step of a student's start, and `Start`, the student and its source that the steps work on.

A student *starts* by taking the first values of its tensors from a *source*, a model that is usually its teacher. The
steps are in `start_pieces.py`, `start_embeddings.py`, `start_layers.py`, `start_fit.py` and `start_head.py`;
`start.py` runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from limbeck.core.progress import Tick, no_tick
from limbeck.models import bases
from limbeck.models.families import Shape, base_model
from limbeck.models.layer_selection import LayerStrategy
from limbeck.models.students import build_student
from limbeck.models.transfer import Transfer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from limbeck.core.records import FittedStart
    from limbeck.models.heads import Head
    from limbeck.models.streams import StreamKey, Streams
    from limbeck.models.token_pieces import Pieces

Place: TypeAlias = Literal["vocabulary", "embeddings", "layers", "fit", "head"]
PLACES: tuple[Place, ...] = ("vocabulary", "embeddings", "layers", "fit", "head")
"""Places of steps, in the order in which they run."""

NarrowBy: TypeAlias = Literal["weights", "activations"]


@dataclass(frozen=True)
class StartSettings:
    """The options of a start.

    Attributes:
        layers: The source's layers to copy, see `selected_layers`.
        embeddings: `"copied"` (equal widths), `"projected"` (narrower), `"averaged"` (for another vocabulary, from
            `Start.pieces`), `"random"`, or `"auto"`: whichever of the others the widths allow.
        narrow_by: What decides which directions, heads and neurons copied layers keep in a narrower student: the
            source's `"weights"`, or its `"activations"` on random tokens, which norms are then scaled and shifted
            for too. The latter costs one forward pass over 2,048 tokens.
        seed: Decides the random tokens and the random tensors, which are exactly those that
            `build_student(student.config, seed=seed)` draws.
        steps: Options of further steps by their name; a further step without an entry does not run.
    """

    layers: LayerStrategy = "random"
    embeddings: str = "auto"
    narrow_by: NarrowBy = "weights"
    seed: int = 0
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class SourceText(NamedTuple):
    """A batch of text, and the source's streams for it.

    Attributes:
        inputs: `input_ids`, `attention_mask` and what else the source takes, each `[B, L]`.
        streams: The source's streams that were asked for.
    """

    inputs: Mapping[str, Tensor]
    streams: Streams


class ReadText(Protocol):
    """Reads text with the source."""

    def __call__(
        self, keys: Iterable[StreamKey], *, tokens: int | None = None, held_out: bool = False
    ) -> Iterable[SourceText]:
        """Read text that is spread over a corpus.

        Args:
            keys: The streams of the source to give.
            tokens: About how many tokens to read; None reads up to 1,024 rows.
            held_out: Read a tenth as many tokens, of rows that are never read otherwise.
        """


@dataclass
class Start:
    """A student that is being started; steps change it in place.

    Attributes:
        student: Built with random weights.
        source: The whole model that it starts from. A step never changes it; it may put another in its place, such as
            one with fewer words, which later steps then start from.
        settings: The options.
        layers: For each student layer the source's layer that it starts from, from 1; empty for random layers.
        embeddings: `"copied"`, `"projected"`, `"averaged"` or `"random"`.
        head: The student's head, or None.
        source_head: The head that the source was loaded with, or None.
        texts: Reads text, handed in by the caller; None where no step needs text.
        pieces: The source's tokens of each token of a student with another vocabulary, handed in by the caller.
        tick: Receives the progress of a step that takes long.
        transfer: The origin of every tensor below the head.
        copied_head: Names of the head's parameters that were copied.
        fit: The facts of a fit on text, if there was one.
    """

    student: PreTrainedModel
    source: PreTrainedModel
    settings: StartSettings
    layers: tuple[int, ...]
    embeddings: str
    head: Head | None = None
    source_head: Head | None = None
    texts: ReadText | None = None
    pieces: Pieces | None = None
    tick: Tick = no_tick
    transfer: Transfer = field(default_factory=Transfer)
    copied_head: list[str] = field(default_factory=list)
    fit: FittedStart | None = None

    @cached_property
    def fresh(self) -> PreTrainedModel:
        """A model of the student's configuration with random weights by the seed; random tensors are taken from it."""
        return build_student(self.student.config, seed=self.settings.seed)

    @cached_property
    def bases(self) -> bases.Bases:
        """The bases that map the source's widths to a narrower student's, see `bases.py`; none at equal widths."""
        return bases.find_bases(
            base_model(self.source),
            self.student.config,
            layers=self.layers,
            embeddings=self.embeddings,
            narrow_by=self.settings.narrow_by,
            seed=self.settings.seed,
        )


class StartStep(ABC):
    """A step of a student's start.

    A step has no state of its own: its options are in `settings.steps` by its name.

    Attributes:
        name: Names the step in a recipe's `initialise.steps`.
        place: When it runs; steps of one place run in the order in which they were registered.
        reads_text: Whether it needs text; see `Start.texts`.
    """

    name: ClassVar[str]
    place: ClassVar[Place]
    reads_text: ClassVar[bool] = False

    def shape(self, source: Shape, settings: StartSettings) -> Shape:
        """Return the source's shape as later steps and the student find it, such as with a smaller vocabulary."""
        return source

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:  # noqa: B027 - optional
        """Refuse a student that cannot start so, before any weight is loaded.

        Raises:
            ModelError: with what could be set instead.
        """

    @abstractmethod
    def apply(self, start: Start) -> None:
        """Set tensors of the student."""
