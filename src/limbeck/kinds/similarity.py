"""Similarity of pairs: the cosine of two sentence vectors is compared with a value; nothing is trained."""

from collections.abc import Mapping, Sequence

from limbeck.core import intervals
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.kind import Metric
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.regression import ValueKind, pearson, spearman
from limbeck.kinds.task import Predictions, Task


@register_as_kind()
class Similarity(ValueKind):
    """One value a pair, which the cosine of two sentence vectors predicts."""

    name = "similarity"
    metrics: Mapping[str, Metric] = {"spearman": spearman, "pearson": pearson}

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return Fisher's interval of a correlation."""
        return intervals.of_correlation(value, len(rows), ranked=metric == "spearman")
