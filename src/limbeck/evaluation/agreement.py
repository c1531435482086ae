"""Agreement: does the student order the similarities of held-out sentence pairs as its teacher does?

The figure is Spearman's correlation between the teacher's and the student's cosine similarity: over the pairs of
`sentence_pairs`, or its mean within the ranges of `similarity_strata`. The figure
says how faithful the student is, not how good either model is.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limbeck.core.records import Agreement, Disagreement, Number
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS
from limbeck.evaluation.sentence_pairs import (
    DIFFERENT_DOCUMENTS,
    NEIGHBOURING,
    PAIR_KINDS,
    SAME_DOCUMENT,
    SentencePair,
)
from limbeck.evaluation.similarities import Similarities, spearman_agreement

_RESAMPLES = 500
_PERCENTILES = (2.5, 97.5)
"""The ends of a 95 % interval."""
_WORDS_OF_KIND = {
    NEIGHBOURING: "neighbours",
    SAME_DOCUMENT: "one document",
    DIFFERENT_DOCUMENTS: "two documents",
}
_EXAMPLES = 10
_MOST_LETTERS = 300


def measure_agreement(
    pairs: Sequence[SentencePair],
    student_similarities: Similarities,
    teacher_similarities: Similarities,
    *,
    strata: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Agreement:
    """Return the Spearman agreement over `pairs` with its interval and its parts.

    With `strata` it is the mean of the correlations within each of them: a student that only tells far pairs from near
    ones, as nearly every model does, does not get a high figure.

    The interval is a percentile bootstrap that resamples documents rather than pairs, since the pairs of one document
    are alike. With fewer than `FEWEST_DOCUMENTS` documents there is none: they would give nearly the same resamples.

    Args:
        pairs: The pairs, as `build_pairs` returns them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
        strata: The range of the teacher's similarity that each pair is in, `[pairs]`; None for one correlation over
            all pairs.
        seed: Seed of the resampling.
    """
    student = np.asarray(student_similarities, np.float64)
    teacher = np.asarray(teacher_similarities, np.float64)
    kinds = np.array([pair.kind for pair in pairs])
    by_kind: dict[str, Number | None] = {}
    for kind in PAIR_KINDS:
        is_kind = kinds == kind
        by_kind[kind] = spearman_agreement(student[is_kind], teacher[is_kind])

    # The numbers of the pairs of each document, which are resampled together.
    pairs_of_document: dict[int, list[int]] = {}
    for number, pair in enumerate(pairs):
        pairs_of_document.setdefault(pair.document, []).append(number)
    groups = [np.array(numbers) for numbers in pairs_of_document.values()]
    agreement = Agreement(by_kind=by_kind, pairs=len(pairs), documents=len(groups), seed=seed)
    if strata is None:
        # All pairs are in one stratum.
        strata = np.zeros(len(pairs), np.int64)
    else:
        agreement.ranges = len(_correlations(student, teacher, strata))
    agreement.spearman = _mean_over_strata(student, teacher, strata)
    agreement.interval = _interval(student, teacher, strata, groups, seed)
    return agreement


def _correlations(student: NDArray[np.float64], teacher: NDArray[np.float64], strata: NDArray[np.int64]) -> list[float]:
    """Return Spearman's correlation within each stratum in which it is defined.

    Args:
        student: Similarities, `[pairs]`.
        teacher: Similarities, `[pairs]`.
        strata: The stratum of each pair, `[pairs]`.
    """
    correlations = []
    for stratum in np.unique(strata):
        is_inside = strata == stratum
        correlation = spearman_agreement(student[is_inside], teacher[is_inside])
        if not np.isnan(correlation):
            correlations.append(correlation)
    return correlations


def _mean_over_strata(student: NDArray[np.float64], teacher: NDArray[np.float64], strata: NDArray[np.int64]) -> float:
    """Return the mean of `_correlations`, whose arguments it has; NaN where there are none."""
    correlations = _correlations(student, teacher, strata)
    if not correlations:
        return float("nan")
    return float(np.mean(correlations))


def _interval(
    student: NDArray[np.float64],
    teacher: NDArray[np.float64],
    strata: NDArray[np.int64],
    groups: Sequence[NDArray[np.int64]],
    seed: int,
) -> list[float | None] | None:
    """Return Spearman's 2.5th and 97.5th percentile over resampled groups of pairs; NaN where undefined.

    None for fewer than `FEWEST_DOCUMENTS` groups.

    Args:
        student: Similarities, `[pairs]`.
        teacher: Similarities, `[pairs]`.
        strata: The stratum of each pair, `[pairs]`.
        groups: The numbers of the pairs of each document.
        seed: Seed of the resampling.
    """
    if len(groups) < FEWEST_DOCUMENTS:
        return None
    rng = np.random.default_rng(seed)
    values: list[float] = []
    for _ in range(_RESAMPLES):
        drawn_groups = rng.integers(len(groups), size=len(groups))
        numbers = np.concatenate([groups[index] for index in drawn_groups])
        values.append(_mean_over_strata(student[numbers], teacher[numbers], strata[numbers]))
    defined = [value for value in values if not np.isnan(value)]
    if not defined:
        return [float("nan"), float("nan")]
    return [float(end) for end in np.percentile(defined, _PERCENTILES)]


def furthest_pairs(
    pairs: Sequence[SentencePair], student_similarities: Similarities, teacher_similarities: Similarities
) -> list[Disagreement]:
    """Return the pairs whose places in the orders of student and teacher are furthest apart, ten at most.

    Args:
        pairs: The pairs, as `build_pairs` returns them.
        student_similarities: One number a pair.
        teacher_similarities: One number a pair.
    """
    student = np.asarray(student_similarities, np.float64)
    teacher = np.asarray(teacher_similarities, np.float64)
    student_places = _places(student)
    teacher_places = _places(teacher)
    distances = np.abs(student_places - teacher_places)
    examples = []
    furthest_first = np.argsort(-distances, kind="stable")
    for number in furthest_first[:_EXAMPLES].tolist():
        # The distances descend. Where the models put this pair in the same place, they agree on all further ones too.
        is_apart = distances[number] > 0
        if not is_apart:
            break
        pair = pairs[number]
        examples.append(
            Disagreement(
                text=pair.first[:_MOST_LETTERS],
                pair=pair.second[:_MOST_LETTERS],
                label=_WORDS_OF_KIND[pair.kind],
                student=_in_words(student[number], student_places[number]),
                teacher=_in_words(teacher[number], teacher_places[number]),
                distance=round(float(distances[number]), 6),
            )
        )
    return examples


def _in_words(similarity: float, place: float) -> str:
    """A pair's similarity, and its place among those of all pairs.

    Args:
        similarity: The similarity.
        place: The share of pairs with lower similarities, 0 to 1.
    """
    if place == 0:
        return f"similarity {similarity:.2f}, the lowest of all pairs"
    if place == 1:
        return f"similarity {similarity:.2f}, the highest of all pairs"
    # A pair that is not the lowest or highest is not rounded to be.
    percent = min(max(round(100 * place), 1), 99)
    return f"similarity {similarity:.2f}, higher than {percent} % of the pairs"


def _places(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each pair, the share of pairs with lower similarities, 0 to 1; equal pairs share their mean."""
    # It takes a third of a second to import, which a run need not wait for.
    from scipy.stats import rankdata

    return np.asarray((rankdata(similarities) - 1) / max(len(similarities) - 1, 1))
