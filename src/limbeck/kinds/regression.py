"""Regression of texts and pairs: each row has a value."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core import intervals
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import parse_value
from limbeck.corpus.rows.labelled_rows import Label, LabelledRow
from limbeck.kinds import class_scores
from limbeck.kinds.beside_teacher import Disagreements
from limbeck.kinds.kind import Kind, LabelTerm, Metric, Outputs
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.task import Predictions, Submission, Task
from limbeck.kinds.usage import RUN_LOGITS, HeadUsage


def pearson(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    """Pearson's correlation with the values."""
    return class_scores.correlation(cast(Any, predictions), class_scores.labels_of(rows), "pearsonr")


def spearman(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    """Spearman's rank correlation with the values."""
    return class_scores.correlation(cast(Any, predictions), class_scores.labels_of(rows), "spearmanr")


class ValueKind(Kind):
    """One number a row, which a head or the cosine of two vectors predicts."""

    label_type = pa.float64()
    held_out_metric = "spearman"
    usage = HeadUsage(torch="print(output.logits.item())", onnx=RUN_LOGITS + "print(logits.item())")

    def read_label(self, row: PlacedRow, source: RowSource) -> Label | None:
        """Return the value."""
        value = row.named_value(source.columns.label)
        if source.is_unlabelled(value, has_classes=False):
            raise source.unlabelled_error(row, source.columns.label)
        return parse_value(value, row.where)

    def renumber(self, label: Label, numbers: Sequence[int]) -> Label:
        """Return the value as it is."""
        return float(cast(float, label))

    def set_up_head(self, config: Any, labels: Sequence[str]) -> None:
        """Set the one output of the head, and its name, in the configuration in place."""
        config.num_labels = 1
        config.id2label = {0: self.facts.output}
        config.label2id = {self.facts.output: 0}
        config.problem_type = self.facts.problem_type

    def decode(self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Any) -> Predictions:
        """Return the value of each row."""
        logits = np.stack(outputs[0])  # [rows, 1]
        return [float(value) for value in logits[:, 0]]

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return the value."""
        return f"{prediction:.3g}"

    def label_words(self, row: LabelledRow, task: Task) -> str:
        """Return the value of the label."""
        return f"{row.label:g}"

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare the student's and the teacher's values; the distance on a row is the absolute difference.

        Only `predictions` is needed: the signature is that of all kinds.
        """
        student, teacher = (np.asarray(values, dtype=np.float64) for values in predictions)
        return Disagreements(
            distances=np.abs(student - teacher),
            differ=student != teacher,
            student=[f"{value:.3g}" for value in student],
            teacher=[f"{value:.3g}" for value in teacher],
            # Rows that differ are not counted: nearly all values differ a little.
            are_counted=False,
        )

    def submitted(self, prediction: Any, task: Task, submission: Submission | None) -> str:
        """Return the value, within the leaderboard's bounds."""
        value = float(prediction)
        if submission is not None and submission.range is not None:
            least, most = submission.range
            value = min(max(value, least), most)
        return f"{value:.3f}"

    def held_out_predictions(self, logits: Any) -> Any:
        """Return the values, `[rows]`."""
        return logits[:, 0]

    def held_out_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float | None:
        """Return Spearman's correlation; None of values that are all equal, or unknown."""
        if np.isnan(labels).any():
            return None
        # A correlation with equal values is undefined.
        are_equal = len(np.unique(predicted)) == 1 or len(np.unique(labels)) == 1
        if are_equal:
            return None
        return class_scores.correlation(predicted, labels, "spearmanr")

    def soft_label(self) -> LabelTerm:
        """Return the squared difference from the teacher's value, for which a temperature means nothing."""
        return LabelTerm("soft_label_mse", rows="token")


@register_as_kind()
class Regression(ValueKind):
    """One value a row."""

    name = "regression"
    metrics: Mapping[str, Metric] = {"pearson": pearson, "spearman": spearman}

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return Fisher's interval of a correlation."""
        return intervals.of_correlation(value, len(rows), ranked=metric == "spearman")

    def only_answer(self, predictions: Predictions, task: Task) -> str | None:
        """Return the one value that all rows are given."""
        values = set(cast(Sequence[float], predictions))
        if len(predictions) < 2 or len(values) > 1:
            return None
        return f"{values.pop():g}"

    def hard_label(self) -> LabelTerm | None:
        """Return the squared difference from the labels."""
        return LabelTerm("hard_label_mse")
