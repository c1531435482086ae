"""Multi-label classification: a row has any number of the classes, and each class is a decision by itself.

The label of a row has a *flag* for each class, 1 or 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit

from limbeck.core import intervals
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import MOST_AMBIGUOUS_CLASSES, is_missing, reading_of_lists
from limbeck.corpus.rows.labelled_rows import Label, LabelledRow
from limbeck.kinds import class_scores
from limbeck.kinds.beside_teacher import ClassFigures, Disagreements, label_figures
from limbeck.kinds.chance_scores import chance_of_flags
from limbeck.kinds.classification import resampled_interval, submitted_class
from limbeck.kinds.kind import HeldOutRows, Kind, LabelTerm, Loss, Metric, Outputs
from limbeck.kinds.losses import FlagWeightedLoss
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.task import Predictions, Submission, Task
from limbeck.kinds.thresholds import given_classes
from limbeck.kinds.usage import RUN_LOGITS, HeadUsage


def _flags(predictions: Predictions, task: Task) -> NDArray[np.int64]:
    return given_classes(cast(Any, predictions), task).astype(np.int64)


def _micro_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(_flags(predictions, task), class_scores.labels_of(rows), "micro")


def _macro_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(_flags(predictions, task), class_scores.labels_of(rows), "macro")


def _weighted_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(_flags(predictions, task), class_scores.labels_of(rows), "weighted")


def _accuracy(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    """Share of rows with all of their classes right."""
    return class_scores.accuracy(_flags(predictions, task), class_scores.labels_of(rows))


def _mean_average_precision(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_average_precision(cast(Any, predictions), class_scores.labels_of(rows))


@register_as_kind()
class MultiLabel(Kind):
    """Any number of classes a row; a prediction is the probability of each class."""

    name = "multi_label"
    metrics: Mapping[str, Metric] = {
        "micro_f1": _micro_f1,
        "macro_f1": _macro_f1,
        "weighted_f1": _weighted_f1,
        "accuracy": _accuracy,
        "mean_average_precision": _mean_average_precision,
    }
    label_type = pa.list_(pa.int8())
    chooses_thresholds = True
    held_out_metric = "micro_f1"
    usage = HeadUsage(
        torch=(
            "print({label: output.logits.sigmoid()[0, number].item() "
            "for number, label in model.config.id2label.items()})"
        ),
        onnx=RUN_LOGITS
        + "print([config.id2label[int(label)] for label in np.flatnonzero(logits[0] > 0)])  # probability above 0.5",
    )

    def looks_ahead(self, source: RowSource) -> bool:
        """Whether lists such as [0, 1] are ambiguous: the numbers of two classes, or a flag for each of two classes."""
        columns = source.columns
        may_be_both = len(source.labels) <= MOST_AMBIGUOUS_CLASSES
        user_says_which = columns.label_lists is not None or bool(columns.label_columns)
        return source.labelled and may_be_both and not user_says_which

    def look_ahead(self, rows: Iterable[PlacedRow], source: RowSource) -> None:
        """Decide by all rows how lists of numbers are read: as numbers of classes, or as a flag for each class."""
        values = (row.values.get(source.columns.label) for row in rows)
        source.numbers.lists = reading_of_lists(values, len(source.labels))

    def read_label(self, row: PlacedRow, source: RowSource) -> Label | None:
        """Return a flag for each class: 1 if the row has it, else 0.

        The flags stand in a column for each class, or are made of one column that lists the row's classes.
        """
        columns = source.columns
        if columns.label_columns:
            values = {name: row.named_value(name) for name in columns.label_columns}
            return source.numbers.flags_of(values, row.where)
        value = row.values[columns.label]
        if not isinstance(value, str) and is_missing(value):  # Empty text is a row without a class.
            raise source.unlabelled_error(row, columns.label)
        return source.numbers.flags(value, row.where, row.class_names.get(columns.label, ()))

    def renumber(self, label: Label, numbers: Sequence[int]) -> Label:
        """Return the flags in the order of the other numbers."""
        flags = cast(tuple[int, ...], label)
        renumbered = [0] * len(flags)
        for number, flag in zip(numbers, flags, strict=True):
            renumbered[number] = flag
        return tuple(renumbered)

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the binary cross entropy with weights of the classes that a row has."""
        if weights is None:
            return None
        return FlagWeightedLoss(weights)

    def decode(self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Any) -> Predictions:
        """Return the probability of each class, sigmoid(z), a row each."""
        logits = np.stack(outputs[0]).astype(np.float64)  # [rows, classes]
        return [tuple(row) for row in expit(logits).tolist()]

    def more_figures(self, predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the thresholds that were chosen, by class."""
        if not task.thresholds:
            return {}
        return {f"{label}_threshold": value for label, value in zip(task.labels, task.thresholds, strict=True)}

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return Wilson's interval of the accuracy, and the bootstrap's of F1."""
        if metric == "accuracy":
            return intervals.of_share(value, len(rows))
        if metric == "mean_average_precision":
            return None
        return resampled_interval(self.metrics[metric], task, rows, predictions)

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the scores at chance."""
        return chance_of_flags(class_scores.labels_of(rows))

    def only_answer(self, predictions: Predictions, task: Task) -> str | None:
        """Return the classes that all rows are given."""
        if len(predictions) < 2:
            return None
        flags = given_classes(np.asarray(predictions, dtype=np.float64), task)
        distinct_flags = np.unique(flags, axis=0)
        if len(distinct_flags) > 1:
            return None
        return _names(distinct_flags[0], task)

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return the names of the classes that flags are set for."""
        return _names(prediction, task)

    def class_figures(
        self, rows: Sequence[LabelledRow], predictions: Sequence[Predictions], task: Task
    ) -> ClassFigures | None:
        """Return the F1 of each class."""
        labels = class_scores.labels_of(rows) == 1
        flags_of_models = [given_classes(cast(Any, probabilities), task) for probabilities in predictions]
        by_label = []
        for number, name in enumerate(task.labels):
            labelled = labels[:, number]
            f1_of_models = []
            for flags in flags_of_models:
                predicted = flags[:, number]
                f1 = class_scores.class_f1(
                    hits=(predicted & labelled).sum(),
                    predicted=predicted.sum(),
                    labelled=labelled.sum(),
                )
                f1_of_models.append(f1)
            by_label.append(label_figures(name, int(labelled.sum()), f1_of_models))
        return ClassFigures(by_label, labels=[], confusion=[])

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare student and teacher on each row.

        Their distance, 0 to 1, is the largest difference of the probabilities of a class. They differ if one of them
        gives a class that the other does not. `rows` and `outputs` are not needed: the signature is that of all kinds.
        """
        student, teacher = (np.asarray(probabilities, dtype=np.float64) for probabilities in predictions)
        student_flags = given_classes(student, task)
        teacher_flags = given_classes(teacher, task)
        return Disagreements(
            distances=np.abs(student - teacher).max(axis=-1),
            differ=(student_flags != teacher_flags).any(axis=-1),
            student=_with_probabilities(student_flags, student, task),
            teacher=_with_probabilities(teacher_flags, teacher, task),
        )

    def submitted(self, prediction: Any, task: Task, submission: Submission | None) -> str:
        """Return the classes of a row, with `|` between them."""
        numbers = np.flatnonzero(given_classes(prediction, task)).tolist()
        return "|".join(submitted_class(number, task, submission) for number in numbers)

    def held_out_predictions(self, logits: Any) -> Any:
        """Return whether each class is given, `[rows, classes]`: its probability is above 0.5."""
        return logits > 0

    def held_out_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float | None:
        """Return the F1 of all decisions together; None where no class is given and none is there."""
        predicted_flags = predicted.astype(bool)
        label_flags = labels.astype(bool)
        count = int(predicted_flags.sum()) + int(label_flags.sum())
        if count == 0:
            return None
        hits = int((predicted_flags & label_flags).sum())
        return 2 * hits / count

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the micro F1 of the same classes for all rows."""
        chance = chance_of_flags(labels.astype(np.int64))
        return {self.held_out_metric: chance[self.held_out_metric]}

    def hard_label(self) -> LabelTerm | None:
        """Return the binary cross entropy with the labels."""
        return LabelTerm("hard_label_binary_ce")

    def soft_label(self) -> LabelTerm:
        """Return the divergence from the teacher's probability of each class."""
        return LabelTerm("soft_label_binary_kl", has_temperature=True)


def _names(flags: Sequence[Any], task: Task) -> str:
    """Return the names of the classes that a row has."""
    names = [name for name, flag in zip(task.labels, flags, strict=True) if flag]
    if not names:
        return "no class"
    return ", ".join(names)


def _with_probabilities(flags: NDArray[np.bool_], probabilities: NDArray[np.float64], task: Task) -> list[str]:
    """Return the classes of each row in words, each with its probability."""
    texts = []
    for row_flags, row_probabilities in zip(flags, probabilities, strict=True):
        numbers = np.flatnonzero(row_flags)
        classes = [f"{task.labels[number]} ({row_probabilities[number]:.0%})" for number in numbers]
        texts.append(", ".join(classes) or "no class")
    return texts
