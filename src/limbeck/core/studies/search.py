"""The records of searches; that of a search that is not finished has less in it."""

from typing import Any

from pydantic import Field

from limbeck.core.paths import SEARCH_RECORD
from limbeck.core.records import Made, Number, PlannedRun, Record, Student


class SearchTeacher(Record):
    """The teacher of a search; its milliseconds a pass, or its number of layers, where the search is about them."""

    name: str = ""
    shape: str = ""
    latency_ms: Number | None = None
    layers: int | None = None


class SearchCost(Record):
    """Trials by what became of them, and seconds of all workers."""

    evaluations: int | None = None
    trained: int | None = None
    cut: int | None = None
    refused: int | None = None
    diverged: int | None = None
    failed: int | None = None
    steps: int | None = None
    training_seconds: Number | None = None
    scoring_seconds: Number | None = None
    seconds: Number | None = None

    @property
    def all_seconds(self) -> float:
        """Seconds that workers spent."""
        return sum(filter(None, (self.training_seconds, self.scoring_seconds, self.seconds)))


class Search(Made):
    """The base of the three kinds of search.

    Attributes:
        kind: `mapping`, `architecture` or `teacher-layer`.
        identity: Settings for which the study's values are comparable.
        share: Of the text, that candidates are trained on.
        recipe: Of the searched run, with the result; None without one.
    """

    FILE = SEARCH_RECORD
    KIND = "kind"

    kind: str | None = None
    storage: str | None = None
    identity: dict[str, Any] = Field(default_factory=dict)
    teacher: SearchTeacher = Field(default_factory=SearchTeacher)
    student: Student = Field(default_factory=Student)
    methods: list[str] = Field(default_factory=list)
    share: Number | None = None
    recipe: PlannedRun | None = None
    cost: SearchCost = Field(default_factory=SearchCost)


class Candidate(Record):
    """A layer mapping that has a fitness."""

    mapping: list[int]
    gene: str
    fitness: Number
    scores: dict[str, Number] = Field(default_factory=dict)
    generation: int | None = None
    trial: int | None = None
    training_seconds: Number | None = None
    scoring_seconds: Number | None = None


class Generation(Record):
    """A generation: the fitness of its members, the best of them, and how they were bred."""

    number: int
    maximum: Number
    minimum: Number
    mean: Number
    deviation: Number
    best: list[int]
    best_gene: str = ""
    size: int
    evaluated: int
    members: list[str] = Field(default_factory=list)
    breeding: dict[str, int] | None = None


class GivenUp(Record):
    """A mapping that came to no fitness, and why."""

    mapping: list[int]
    gene: str = ""
    problem: str = ""


class MappingSpaceSize(Record):
    """The mappings that can be chosen: by position, and how many in all."""

    size: int | None = None
    student_layers: int | None = Field(default=None, alias="student layers")
    teacher_layers: int | None = Field(default=None, alias="teacher layers")
    choices: list[list[int]] = Field(default_factory=list)


class MappingSearch(Search):
    """A search of layer mappings; `candidates` and `scores` are best first and by name."""

    space: MappingSpaceSize = Field(default_factory=MappingSpaceSize)
    scores: list[str] = Field(default_factory=list)
    generations: list[Generation] = Field(default_factory=list)
    candidates: list[Candidate] = Field(default_factory=list)
    best: Candidate | None = None
    given_up: list[GivenUp] = Field(default_factory=list)


class SearchedShape(Record):
    """A shape of a search, and its `state`: trained, cut, refused, diverged or failed; `reason` says why."""

    trial: int
    layers: int
    hidden: int
    heads: int
    ffn: int
    parameters: Number | None = None
    latency_share: Number | None = None
    latency_ms: Number | None = None
    teacher_ms: Number | None = None
    threads: int | None = None
    note: str | None = None
    loss: Number | None = None
    reward: Number | None = None
    steps: int | None = None
    rewards_on_the_way: dict[str, Number | None] = Field(default_factory=dict)
    state: str
    reason: str | None = None
    training_seconds: Number | None = None


class ShapeSpaceSize(Record):
    """The sizes that can be chosen, `ffn` in multiples of `hidden`, and how many shapes they make."""

    layers: list[int] = Field(default_factory=list)
    hidden: list[int] = Field(default_factory=list)
    heads: list[int] = Field(default_factory=list)
    ffn: list[Number] = Field(default_factory=list)
    shapes: int | None = None


class ShapeLimits(Record):
    """The most parameters, and the largest share of the teacher's latency."""

    parameters: Number | None = None
    latency_share: Number | None = None


class TimedWith(Record):
    """What latency is measured on."""

    device: str | None = None
    dtype: str | None = None
    batch: int | None = None
    length: int | None = None
    of: str | None = None
    seconds: Number | None = None


class SearchLoss(Record):
    """The loss by which shapes are judged, and the loss of an untrained student.

    Losses are shares of that of the untrained student, except for the kind `hidden_states`.
    """

    kind: str | None = None
    untrained: Number | None = None


class ArchitectureSearch(Search):
    """A search of shapes; `front` holds the trials that no other beats in both loss and latency."""

    space: ShapeSpaceSize = Field(default_factory=ShapeSpaceSize)
    limits: ShapeLimits = Field(default_factory=ShapeLimits)
    latency: TimedWith = Field(default_factory=TimedWith)
    loss: SearchLoss = Field(default_factory=SearchLoss)
    sampler: str | None = None
    episode: int | None = None
    cuts: list[int] = Field(default_factory=list)
    shapes: list[SearchedShape] = Field(default_factory=list)
    best: SearchedShape | None = None
    front: list[int] = Field(default_factory=list)


class LayerScore(Record):
    """A candidate's score after a step, and its parts."""

    step: int
    score: Number | None = None
    agreement: Number | None = None
    explained: Number | None = None


class SearchedLayer(Record):
    """A layer of the teacher, judged by the student that learns from it; `state` is trained, cut or diverged."""

    rank: int | None = None
    layer: int
    scores: list[LayerScore] = Field(default_factory=list)
    steps: int | None = None
    state: str = ""
    own_loss: Number | None = None


class Rung(Record):
    """A round of halving: the number of candidates that train, and the step at which the round ends."""

    candidates: int
    end: int


class TeacherLayerSearch(Search):
    """A search of the teacher's layers, those that were trained longest first, then those of the highest score."""

    scores: list[str] = Field(default_factory=list)
    halving: int | None = None
    rungs: list[Rung] = Field(default_factory=list)
    layers: list[SearchedLayer] = Field(default_factory=list)
    best: SearchedLayer | None = None


Search.KINDS = {"mapping": MappingSearch, "architecture": ArchitectureSearch, "teacher-layer": TeacherLayerSearch}
