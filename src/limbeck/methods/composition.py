"""Methods as data: weighted terms over named streams, composed for a student and a teacher of known shapes.

With the types of options that methods share, citations of papers, and the method cards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field

from limbeck.core.kinds import KIND_NAMES, KindName, LabelKind, kind_of
from limbeck.core.strict import Strict
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from torch import Tensor

    from limbeck.models.sentences import SentencePooling
    from limbeck.objectives import Objective


@dataclass(frozen=True)
class HeadGroups:
    """Attention heads merged group by group: neighbours averaged, or one of them chosen.

    Args:
        heads: Attention heads of the stream; a multiple of `groups`.
        groups: Heads that are left.
        chosen: The head kept of each group, counted from 0 within it; None averages the group.

    Source:
        MLKD-BERT (arXiv 2407.02775) section 4.5: average and random mapping. Concat-split needs none of this: it is
        the plain division of the width.
    """

    heads: int
    groups: int
    chosen: tuple[int, ...] | None = None

    def merge(self, stream: Tensor) -> Tensor:
        """Merge the heads of a stream.

        Args:
            stream: `[B, L, heads * D]`, heads concatenated.

        Returns:
            `[B, L, groups * D]`.
        """
        size = stream.shape[-1] // self.heads
        split = stream.unflatten(-1, (self.groups, self.heads // self.groups, size))
        if self.chosen is None:
            return split.mean(-2).flatten(-2)
        groups = range(self.groups)
        return split[..., list(groups), list(self.chosen), :].flatten(-2)


@dataclass(frozen=True)
class Course:
    """How far a training is, as targets that change with it need it.

    Args:
        epoch: Whole epochs that are done; a stream is one epoch.
        share: Share of the steps that is done, 0 up to 1.
    """

    epoch: int = 0
    share: float = 0.0


class Target(Protocol):
    """The target of a term, made of the teacher's streams: drawn, joined or scaled."""

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Make it, without gradient.

        Args:
            student: Returns the student's stream, through the learned map where the term has one.
            teacher: The teacher's streams.
            course: How far the training is.
        """
        ...


@dataclass(frozen=True)
class DrawnLayer:
    """One of the teacher's layers: as many as there are student layers are drawn at random and kept in order.

    Args:
        place: Of the student layer among those that are taught, from 0.
        count: Student layers that are taught.
        seed: Of the draw.
        each_epoch: Draw anew in every epoch; else once.

    Source:
        RAIL-KD (arXiv 2109.10164): layers drawn without replacement in every epoch, and sorted.
    """

    place: int
    count: int
    seed: int
    each_epoch: bool

    def choose(self, layers: int, epoch: int) -> int:
        """Return the drawn layer of so many, from 0; the draws of all places agree."""
        draw = random.Random(f"{self.seed}/{epoch if self.each_epoch else 0}")
        return sorted(draw.sample(range(layers), self.count))[self.place]

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the drawn layer's stream."""
        return teacher[self.choose(len(teacher), course.epoch)]


@dataclass(frozen=True)
class AttendedLayers:
    """All layers of the teacher, each weighted by its likeness to the student's vector.

    target = Σ_j a_j h^T_j with a = softmax_j(h^S · h^T_j), vector by vector, over all layers without buckets. The
    weights carry no gradient: the target is as fixed in a step as the teacher is.

    Source:
        ALP-KD (arXiv 2012.14022).
    """

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the weighted sum of the streams, in float32 or more."""
        import torch

        layers = torch.stack(list(teacher), -2)
        layers = layers.to(torch.promote_types(layers.dtype, torch.float32))
        likeness = (layers * student().detach().to(layers.dtype).unsqueeze(-2)).sum(-1)
        return (likeness.softmax(-1).unsqueeze(-1) * layers).sum(-2)


@dataclass(frozen=True)
class AnnealedScores:
    """The teacher's scores, scaled down first and whole last.

    target = Φ(T) z^T with Φ(T) = 1 − (T − 1) / τ_max; T falls from τ_max to 1, each for an equal share of the steps.

    Args:
        highest: τ_max, the temperature of the first steps.

    Source:
        Annealing KD (Jafari et al. 2021, arXiv 2104.07163), stage I.
    """

    highest: int

    def scale(self, share: float) -> float:
        """Return Φ(T) after a share of the steps."""
        temperature = self.highest - min(int(share * self.highest), self.highest - 1)
        return 1 - (temperature - 1) / self.highest

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the scaled scores."""
        return teacher[0] * self.scale(course.share)


Task: TypeAlias = Literal["text", KindName]
LABELLED_TASKS: tuple[Task, ...] = KIND_NAMES


@dataclass(frozen=True)
class Pairing:
    """What a method is composed for: a student and a teacher of known shapes, and the task of the corpus.

    Args:
        student: The student's shape.
        teacher: The teacher's shape.
        task: `"text"` for a corpus without labels, else the kind of its labels.
        layer_cosines: For each teacher layer the cosine between its input and its output, where it was measured.
        sentence: How the teacher makes sentence vectors, where its files say so.
    """

    student: Shape
    teacher: Shape
    task: Task = "text"
    layer_cosines: tuple[float, ...] | None = None
    sentence: SentencePooling | None = None

    @property
    def label(self) -> LabelKind:
        """Kind of the corpus's labels; `"none"` of text."""
        return kind_of(self.task).label

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are predicted, rather than a sample as a whole."""
        return self.task == "text" or kind_of(self.task).of_tokens


@dataclass(frozen=True)
class LearnedMap:
    """A trainable linear map from student width to teacher width; it belongs to the run, unless the student keeps it.

    Args:
        inputs: Width of the student's stream.
        outputs: Width of the teacher's stream.
        heads: Number of relation heads with a map each, from `inputs / heads` to `outputs / heads`; None is one map
            for the whole width.
        name: Terms whose maps have the same name share one; None is a separate map.
        kept: The student keeps it, as a module behind its pooling; it then starts by least squares. The student's
            stream is its pooled tokens.
        bias: Whether it adds a vector.
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
        teacher_heads: How the teacher's attention heads are merged first, if they are.
        target: How the teacher's streams become the one of the target, where they do; for objectives of one stream.
        normalise: Give the rows of both models unit length first, the student's behind its learned map.
        rows: Which rows of logits count, for terms on logits: every valid token, the labelled ones, or all rows of
            every sample. Where all terms on logits count the labelled ones, no others are scored: the objective then
            gets these rows, and their labels, alone.
        cost_attention: Temperature with which the weights of the layers follow their costs, for objectives over all
            layers; None keeps the weights equal.
    """

    name: str
    objective: str
    student: tuple[StreamKey, ...]
    teacher: tuple[StreamKey, ...]
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    learned_map: LearnedMap | None = None
    teacher_heads: HeadGroups | None = None
    target: Target | None = None
    normalise: bool = False
    rows: Rows = "token"
    cost_attention: float | None = None

    @property
    def map_name(self) -> str:
        """Key of the learned map, where there is one; terms with the same key share it."""
        return (self.learned_map and self.learned_map.name) or self.name

    @property
    def unit(self) -> str:
        """What the term's count is proportional to; see `Objective.unit`."""
        unit = self._function.unit
        return self.rows if unit == "row" else unit

    @property
    def reads_logits(self) -> bool:
        """Whether it is a term on logits, of either model."""
        return any(key.kind == "logits" for key in (*self.student, *self.teacher))

    @property
    def takes_from_hidden(self) -> bool:
        """Whether it can be computed from what makes logits; see `Objective.from_hidden`."""
        changes = self.learned_map, self.teacher_heads, self.target
        changed = self.normalise or any(change is not None for change in changes)
        return self._function.from_hidden is not None and not changed

    @property
    def batch_coupled(self) -> bool:
        """Whether the term couples the samples of a batch, so that a batch cannot be split."""
        return self._function.batch_coupled

    @property
    def _function(self) -> Objective:
        """The objective of its name, which computes with torch."""
        from limbeck.objectives import OBJECTIVES

        return OBJECTIVES[self.objective]


@dataclass(frozen=True)
class Citation:
    """Where a method comes from, for the record and the model card."""

    title: str
    authors: str
    year: int
    url: str
    place: str
    bibtex: str


class MethodOptions(Strict):
    """Base of every method's options: unknown keys are refused, the nearest is named."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Options that came after a release; at their defaults they leave identities as they were, so studies go on."""

    @property
    def unread_options(self) -> frozenset[str]:
        """Names of options that mean nothing beside the others; a written recipe leaves them out."""
        return frozenset()

    def deciding(self) -> dict[str, Any]:
        """Return the options that results depend on, as JSON has them."""
        fields = type(self).model_fields
        unchanged = {name for name in self.added if getattr(self, name) == fields[name].default}
        return self.model_dump(mode="json", exclude=unchanged)

    def _refuse_unless_random(self, mapping: str, *names: str) -> None:
        """Refuse options of a mapping that is drawn where it is not; for validators.

        Args:
            mapping: The option that says `random`.
            names: Options that only a drawn mapping reads.

        Raises:
            ValueError: for one that is not at its default.
        """
        chosen, fields = getattr(self, mapping), type(self).model_fields
        for name in names if chosen != "random" else ():
            if (value := getattr(self, name)) != fields[name].default:
                raise ValueError(
                    f"{name} {value!r} is for {mapping} 'random', but {mapping} is {chosen!r}: leave it out"
                )


OptionsT = TypeVar("OptionsT", bound=MethodOptions, contravariant=True)


class Compose(Protocol[OptionsT]):
    """Turns options into terms for a student, a teacher and a task.

    Raises:
        RecipeError: if these shapes cannot be distilled this way, saying what to change.
    """

    def __call__(self, options: OptionsT, pairing: Pairing) -> list[Term]:
        """Make the terms."""
        ...


@dataclass(frozen=True)
class Method(Generic[OptionsT]):
    """A named way to distil: its options and the composition they stand for.

    Args:
        name: The name in recipes; equal to its file's name.
        summary: One sentence.
        options: The pydantic model of its options.
        compose: Makes the terms.
        citation: Its source, if it has one.
        tasks: The tasks it can be composed for, the most usual first.
        stages: The stages that make it up, each a method's name and options, where it is more than one.
    """

    name: str
    summary: str
    options: type[MethodOptions]
    compose: Compose[OptionsT]
    citation: Citation | None = None
    tasks: tuple[Task, ...] = ("text", *LABELLED_TASKS)
    stages: tuple[Mapping[str, Any], ...] = ()


MAPPING_FORMS = (
    "a strategy by name (single, last, uniform, uniform_consecutive, uniform_last, contribution), a teacher layer for "
    "each student layer such as [0, 0, 5, 10] where 0 is none, or student layer to teacher layers such as {3: 5, 4: "
    "[9, 10]}"
)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_mapping(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(map(_whole, value))):
        return value
    if isinstance(value, dict) and all(map(_whole, value)):
        targets = [target if isinstance(target, list) else [target] for target in value.values()]
        if all(_whole(layer) for target in targets for layer in target):
            return value
    raise ValueError(f"{str(value)[:80]!r} is not a layer mapping; give {MAPPING_FORMS}")


def _check_layer(value: Any) -> Any:
    if _whole(value) or value in ("last", "auto"):
        return value
    forms = "a number (1 is the first block, -1 the last), 'last' or 'auto'"
    raise ValueError(f"{str(value)[:80]!r} is not a layer; give {forms}")


def _check_count(value: Any) -> Any:
    if (_whole(value) and value >= 1) or value == "auto":
        return value
    raise ValueError(f"{str(value)[:80]!r} is not a number of heads; give a whole number, 1 or more, or 'auto'")


MappingChoice: TypeAlias = Annotated[str | list[int] | dict[int, int | list[int]], BeforeValidator(_check_mapping)]
LayerChoice: TypeAlias = Annotated[int | Literal["last", "auto"], BeforeValidator(_check_layer)]
Weight: TypeAlias = Annotated[float, Field(ge=0)]
Temperature: TypeAlias = Annotated[float, Field(gt=0)]
HeadCount: TypeAlias = Annotated[int | Literal["auto"], BeforeValidator(_check_count)]


def cite(citation: Citation, place: str) -> Citation:
    """Point at a place in a paper.

    Args:
        citation: The paper.
        place: Section, equation or table.
    """
    return replace(citation, place=place)


def paper(
    key: str,
    title: str,
    authors: str,
    year: int,
    url: str,
    venue: str,
    place: str = "",
    kind: Literal["inproceedings", "article"] = "inproceedings",
) -> Citation:
    """Make a citation and its BibTeX entry from the same facts.

    Args:
        key: Of the BibTeX entry.
        title: Of the paper.
        authors: Full names, separated by commas.
        year: Of publication.
        url: Where it can be read.
        venue: Journal or proceedings.
        place: Section, equation or table.
        kind: Of the BibTeX entry.
    """
    published = "journal" if kind == "article" else "booktitle"
    names = " and ".join(authors.split(", "))
    fields = {"title": title, "author": names, published: venue, "year": year}
    inside = ",\n".join(f"  {name}={{{value}}}" for name, value in fields.items())
    return Citation(title, authors, year, url, place, f"@{kind}{{{key},\n{inside}\n}}")


COMPARATIVE_STUDY = paper(
    "udagawa2023comparative",
    "A Comparative Analysis of Task-Agnostic Distillation Methods for Compressing Transformer Language Models",
    "Takuma Udagawa, Aashka Trivedi, Michele Merler, Bishwaranjan Bhattacharjee",
    2023,
    "https://arxiv.org/abs/2310.08797",
    "Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing: Industry Track",
)


RECIPE_CARDS = {
    "teacher_assistant": "A model between teacher and student in size, in a separate stage; a recipe, with any method.",
    "truncated_teacher": "The teacher's first layers as they are, without training; a recipe without stages.",
}
"""Ways to distil that are recipes rather than methods, and have a card too: name to one sentence."""


def read_card(name: str) -> str:
    """Return a card, as Markdown; empty for a method from outside the package, which has none.

    Args:
        name: A method in the registry, or one of `RECIPE_CARDS`.
    """
    card = files("limbeck.methods").joinpath("method_cards", f"{name}.md")
    return card.read_text(encoding="utf-8") if card.is_file() else ""
