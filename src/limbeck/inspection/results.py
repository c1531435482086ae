"""The results of inspections, as they are measured, and as they are read from their files without torch.

The files hold the same fields as JSON. A number that is not known is NaN in these classes and `null` in the files.
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
    """The attention probabilities of one head in one layer, for one sentence.

    Attributes:
        role: The model: `"student"` or `"teacher"`, or `"model"` where one model is inspected alone.
        layer: The layer, from 1.
        head: The head, from 1; `MEAN_HEAD` for the mean over the heads.
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
        by_head: Whether heads are compared one by one. Where the models have different numbers of heads, it is False:
            the maps are averaged over the heads before they are compared.
        values: `values[s][t][a]` is the mean of KL(teacher || student) over the tokens, in nats, for student layer
            s + 1, teacher layer t + 1 and head a + 1 (one entry unless `by_head`). NaN where the student's layer cannot
            see a token that the teacher's sees.
        tokens: Number of tokens that the means are over.
        cut: Number of texts that were cut to the greatest length.
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
            # NaN never is the lowest; a row of NaN alone gives layer 1.
            comparable = [math.inf if math.isnan(mean) else mean for mean in row]
            nearest.append(comparable.index(min(comparable)) + 1)
        return tuple(nearest)


@dataclass(frozen=True)
class Contribution:
    """How much each layer of one model changes its input.

    Attributes:
        name: The model's name.
        cosines: For layers 1 to N the mean cosine between input and output, -1 to 1; the lower, the more the layer
            changes its input.
        tokens: Number of tokens that the means are over.
        cut: Number of texts that were cut to the greatest length.
    """

    name: str
    cosines: tuple[Value, ...]
    tokens: int
    cut: int

    @property
    def ranking(self) -> tuple[int, ...]:
        """The layers, from 1, those that change their input most first; of equal ones the lower layer first."""
        layers = range(1, len(self.cosines) + 1)
        return tuple(sorted(layers, key=lambda layer: (self.cosines[layer - 1], layer)))


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
        tokens: Number of tokens that the values are over, special ones included.
        width: Features of a vector of the wider model.
        cut: Number of texts that were cut to the greatest length.
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
    """The spans to draw from a chunked text, and the settings of k-means.

    Args:
        labelled: Number of chunks (phrases) to draw.
        unlabelled: Number of spans between chunks to draw, which have the label `O`.
        clusters: Number of clusters k; None for the number of different labels among the drawn spans.
        held_out: Number of drawn spans that are scored but not clustered; with 0 all are clustered and scored.
        seed: Seed of the draw.
        seeds: Seeds of k-means, which runs once with each.
    """

    labelled: int = 3000
    unlabelled: int = 500
    clusters: int | None = None
    held_out: int = 0
    seed: int = 0
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class LayerScores:
    """The scores of the layers of one model.

    Attributes:
        name: The model's name.
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
        """The standard deviation over the runs, with the number of runs as the divisor."""
        return tuple(pstdev(runs) for runs in self.scores)


@dataclass(frozen=True)
class PhraseClustering:
    """The scores of models on the same spans.

    Attributes:
        models: The models, in the order they were given in.
        labels: Number of spans of each label, the most frequent first.
        clusters: Number of clusters k.
        scored: Number of spans that the scores are over.
        left_out: Number of spans of the file that a model could not place: their sentence is too long for it, or their
            first or last word has no token.
        sample: The settings of the draw and of k-means.
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
"""The type of the result of each inspection; that of attention has two results, which `read_result` reads."""


def read_result(inspection: str, values: Any) -> Any:
    """Return the result of an inspection as its file has it, typed.

    Args:
        inspection: `"similarity"`, `"contribution"`, `"phrases"` or `"attention"`.
        values: The field `result` of the file.

    Returns:
        The type of `_TYPES`. For attention, a mapping with `maps` (`AttentionMaps`) and `divergence`
        (`AttentionDivergence`, None if the model was inspected without a teacher).

    Raises:
        ValueError: for values that are not a result of this inspection.
    """
    if inspection != "attention":
        return TypeAdapter(_TYPES[inspection]).validate_python(values)
    return {
        "maps": TypeAdapter(AttentionMaps).validate_python(values["maps"]),
        "divergence": TypeAdapter(AttentionDivergence | None).validate_python(values["divergence"]),
    }
