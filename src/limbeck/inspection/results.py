"""The results of inspections, as they are measured, and as they are read from their files without torch.

The files hold the same fields as JSON. Unknown numbers are NaN here and `null` there.
"""

import math
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, TypeAdapter


def _nan_if_null(value: Any) -> Any:
    return math.nan if value is None else value


Value: TypeAlias = Annotated[float, BeforeValidator(_nan_if_null)]
"""A measured number; NaN where it is unknown."""


@dataclass(frozen=True)
class AttentionMap:
    """One map.

    Attributes:
        role: `"student"` or `"teacher"`; `"model"` for one alone.
        layer: From 1.
        head: From 1, or `MEAN_HEAD`.
        values: `values[i][j]` is how much token i looks at token j; each row sums to 1.
    """

    role: str
    layer: int
    head: int
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class AttentionMaps:
    """The maps of a sentence.

    Attributes:
        student: The model's name.
        teacher: The teacher's name, or None without one.
        tokens: The sentence as the models read it.
        pairs: For each layer pair and head the student's map and, with a teacher, the teacher's.
    """

    student: str
    teacher: str | None
    tokens: tuple[str, ...]
    pairs: tuple[tuple[AttentionMap, AttentionMap | None], ...]


@dataclass(frozen=True)
class AttentionDivergence:
    """Every layer of the student beside every layer of the teacher.

    Attributes:
        student: The student's name.
        teacher: The teacher's name.
        by_head: Whether heads are compared one by one; else it is the maps' mean over heads, since the models differ in
            their number.
        values: `values[s][t][a]` is the mean of KL(teacher || student) over the tokens, in nats, for student layer
            s + 1, teacher layer t + 1 and head a + 1 (one entry unless `by_head`). NaN where the student's layer cannot
            see a token that the teacher's sees.
        tokens: Tokens that the means are over.
        cut: Texts that were cut to the longest length.
    """

    student: str
    teacher: str
    by_head: bool
    values: tuple[tuple[tuple[Value, ...], ...], ...]
    tokens: int
    cut: int

    @property
    def means(self) -> tuple[tuple[float, ...], ...]:
        """The mean over heads for every pair of layers, `[S, T]`."""
        return tuple(tuple(math.fsum(heads) / len(heads) for heads in row) for row in self.values)

    @property
    def nearest(self) -> tuple[int, ...]:
        """For every layer of the student, from 1, the teacher layer with the lowest mean, from 1."""
        nearest = []
        for row in self.means:
            comparable = [math.inf if math.isnan(mean) else mean for mean in row]
            nearest.append(comparable.index(min(comparable)) + 1)
        return tuple(nearest)


@dataclass(frozen=True)
class Contribution:
    """The layers of one model.

    Attributes:
        name: The model.
        cosines: For layers 1 to N the mean cosine between input and output, -1 to 1; the lower, the more the layer
            changes.
        tokens: Tokens that the means are over.
        cut: Texts that were cut to the longest length.
    """

    name: str
    cosines: tuple[Value, ...]
    tokens: int
    cut: int

    @property
    def ranking(self) -> tuple[int, ...]:
        """The layers, by falling change of their input."""
        return tuple(sorted(range(1, len(self.cosines) + 1), key=lambda layer: (self.cosines[layer - 1], layer)))


LEAST_TOKENS_PER_FEATURE = 10
"""With fewer tokens for each feature of a vector, the plain estimate of CKA comes out too high."""


@dataclass(frozen=True)
class LayerSimilarity:
    """Every layer of the student beside every layer of the teacher, 0 (the embedding output) to S and T.

    Attributes:
        student: The student's name.
        teacher: The teacher's name.
        values: `values[s][t]` is the CKA of student layer s and teacher layer t, 0 to 1; NaN for a layer that never
            varies.
        tokens: Tokens that it is over, special ones included.
        width: Of the wider model.
        cut: Texts that were cut to the longest length.
    """

    student: str
    teacher: str
    values: tuple[tuple[Value, ...], ...]
    tokens: int
    width: int
    cut: int

    @property
    def nearest(self) -> tuple[int, ...]:
        """For every layer of the student, from 0, the teacher layer that is most like it, from 0."""
        nearest = []
        for row in self.values:
            comparable = [-math.inf if math.isnan(value) else value for value in row]
            nearest.append(comparable.index(max(comparable)))
        return tuple(nearest)

    @property
    def least_tokens(self) -> int:
        """The tokens that a reliable value needs."""
        return LEAST_TOKENS_PER_FEATURE * self.width

    @property
    def reliable(self) -> bool:
        """Whether there were enough tokens; with fewer the values come out too high."""
        return self.tokens >= self.least_tokens


@dataclass(frozen=True)
class SpanSample:
    """Which spans are clustered, and how.

    Args:
        labelled: Chunks to draw.
        unlabelled: Spans between chunks to draw, with the label `O`.
        clusters: k; None for as many as there are labels among the spans that are drawn.
        held_out: Spans that are scored but not clustered; 0 scores those that are clustered.
        seed: Of the draw.
        seeds: Of k-means, one run each.
    """

    labelled: int = 3000
    unlabelled: int = 500
    clusters: int | None = None
    held_out: int = 0
    seed: int = 0
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class LayerScores:
    """One model.

    Attributes:
        name: The model.
        scores: For layers 0 to N the normalised mutual information of each run of k-means, 0 to 1.
    """

    name: str
    scores: tuple[tuple[float, ...], ...]

    @property
    def means(self) -> tuple[float, ...]:
        """The mean over the runs, for layers 0 to N."""
        return tuple(fmean(runs) for runs in self.scores)

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation over the runs (of them, not of a population they are drawn from)."""
        return tuple(pstdev(runs) for runs in self.scores)


@dataclass(frozen=True)
class PhraseClustering:
    """The scores of models on the same spans.

    Attributes:
        models: The models, in the order they were given in.
        labels: Number of spans of each label, the most frequent first.
        clusters: k.
        scored: Spans that the scores are over.
        left_out: Spans of the file that a model could not place, in sentences too long for it or words without a token.
        sample: The request.
    """

    models: tuple[LayerScores, ...]
    labels: dict[str, int]
    clusters: int
    scored: int
    left_out: int
    sample: SpanSample


_TYPES: dict[str, Any] = {
    "similarity": LayerSimilarity,
    "contribution": list[Contribution],
    "phrases": PhraseClustering,
}
"""By the name of an inspection with a single result, the type of that result."""


def read_result(inspection: str, values: Any) -> Any:
    """Return the result of an inspection as its file has it, typed.

    Args:
        inspection: `"similarity"`, `"contribution"`, `"phrases"` or `"attention"`.
        values: `result` of the file.

    Returns:
        As `limbeck.inspection` measures it; of attention a mapping with `maps` and, None without a teacher,
            `divergence`.

    Raises:
        ValueError: for values that are no such result.
    """
    if inspection != "attention":
        return TypeAdapter(_TYPES[inspection]).validate_python(values)
    return {
        "maps": TypeAdapter(AttentionMaps).validate_python(values["maps"]),
        "divergence": TypeAdapter(AttentionDivergence | None).validate_python(values["divergence"]),
    }
