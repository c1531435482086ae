"""Classification of texts and pairs: each row has one of several classes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from limbeck.core import intervals
from limbeck.core.metric_names import WAYS_OUT_OF_F1
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import Label, LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds import class_scores
from limbeck.kinds.beside_teacher import ClassFigures, Disagreements, label_figures
from limbeck.kinds.chance_scores import chance_of_classes
from limbeck.kinds.kind import HeldOutRows, Kind, LabelTerm, Loss, Metric, Outputs
from limbeck.kinds.losses import ClassWeightedLoss
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.task import Predictions, Submission, Task
from limbeck.kinds.usage import RUN_LOGITS, HeadUsage


def _accuracy(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.accuracy(cast(Any, predictions), class_scores.labels_of(rows))


def _f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    """F1 of the task's positive class."""
    if task.positive is None:
        raise CorpusError(f"'f1' is the F1 of one class, but {task.title} does not say of which; {WAYS_OUT_OF_F1}.")
    number = task.labels.index(task.positive)
    return class_scores.f1_of_class(cast(Any, predictions), class_scores.labels_of(rows), number)


def _macro_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(cast(Any, predictions), class_scores.labels_of(rows), "macro")


def _micro_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(cast(Any, predictions), class_scores.labels_of(rows), "micro")


def _weighted_f1(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.mean_f1(cast(Any, predictions), class_scores.labels_of(rows), "weighted")


def _matthews(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return class_scores.matthews(cast(Any, predictions), class_scores.labels_of(rows))


@register_as_kind()
class Classification(Kind):
    """One class a row."""

    name = "classification"
    metrics: Mapping[str, Metric] = {
        "accuracy": _accuracy,
        "f1": _f1,
        "macro_f1": _macro_f1,
        "micro_f1": _micro_f1,
        "weighted_f1": _weighted_f1,
        "matthews": _matthews,
    }
    held_out_metric = "accuracy"
    usage = HeadUsage(
        torch="print(model.config.id2label[output.logits.argmax(-1).item()])",
        onnx=RUN_LOGITS + "print(config.id2label[int(logits.argmax(-1)[0])])",
    )

    def read_label(self, row: PlacedRow, source: RowSource) -> Label | None:
        """Return the number of the class, or None if the row is left out.

        Raises:
            CorpusError: if the row has no label, or one that is no class.
        """
        column = source.columns.label
        value = row.values.get(column)
        # The source gives None in place of a label whose row it leaves out. A label that was None already is missing,
        # which is an error.
        label = source.usual_spelling(value, row)
        if label is None and value is not None:
            return None
        if source.is_unlabelled(label, has_classes=True):
            raise source.unlabelled_error(row, column)
        # Files that store classes as numbers, such as parquet of the Hub, may give the names of the numbers too.
        names_of_numbers = row.class_names.get(column, ())
        return source.numbers.number(label, row.where, names_of_numbers)

    def renumber(self, label: Label, numbers: Sequence[int]) -> Label:
        """Return the class by its other number."""
        return numbers[int(cast(int, label))]

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the cross entropy with weights of classes."""
        if weights is None:
            return None
        return ClassWeightedLoss(weights)

    def decode(self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Any) -> Predictions:
        """Return the class with the highest score, a row each."""
        logits = np.stack(outputs[0])  # [rows, classes]
        return [int(number) for number in logits.argmax(axis=-1)]

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return Wilson's interval of the accuracy, and the bootstrap's of the other metrics."""
        if metric == "accuracy":
            return intervals.of_share(value, len(rows))
        return resampled_interval(self.metrics[metric], task, rows, predictions)

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the accuracy of the most frequent class."""
        chance = chance_of_classes(labels.astype(np.int64), len(rows.classes), positive=None)
        return {name: value for name, value in chance.items() if name == "accuracy"}

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the scores at chance of the metrics that have one."""
        positive = None if task.positive is None else task.labels.index(task.positive)
        return chance_of_classes(class_scores.labels_of(rows), len(task.labels), positive)

    def only_answer(self, predictions: Predictions, task: Task) -> str | None:
        """Return the one class that all rows are given."""
        classes = set(cast(Sequence[int], predictions))
        if len(predictions) < 2 or len(classes) > 1:
            return None
        return task.labels[classes.pop()]

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return the name of the class."""
        return task.labels[int(prediction)]

    def class_figures(
        self, rows: Sequence[LabelledRow], predictions: Sequence[Predictions], task: Task
    ) -> ClassFigures | None:
        """Return the F1 of each class, and the confusion of the student's."""
        classes_of_models = [np.asarray(classes) for classes in predictions]
        return figures_of_classes(class_scores.labels_of(rows), classes_of_models, task.labels)

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare student and teacher on each row.

        Their distance, 0 to 1, is half of the summed differences of the probabilities of all classes (the total
        variation distance). Beside it stand whether their classes differ, and the class that each gives, with
        probabilities. `rows` is not needed: the signature is that of all kinds.
        """
        student_classes, teacher_classes = (np.asarray(classes) for classes in predictions)
        student_outputs, teacher_outputs = outputs
        student_probabilities = _probabilities(student_outputs)
        teacher_probabilities = _probabilities(teacher_outputs)
        differences = np.abs(student_probabilities - teacher_probabilities)
        return Disagreements(
            distances=differences.sum(axis=-1) / 2,
            differ=student_classes != teacher_classes,
            student=_with_probabilities(student_classes, student_probabilities, task),
            teacher=_with_probabilities(teacher_classes, teacher_probabilities, task),
        )

    def submitted(self, prediction: Any, task: Task, submission: Submission | None) -> str:
        """Return the name or the number of the class."""
        return submitted_class(int(prediction), task, submission)

    def held_out_predictions(self, logits: Any) -> Any:
        """Return the classes with the highest scores, `[rows]`."""
        return logits.argmax(-1)

    def hard_label(self) -> LabelTerm | None:
        """Return the cross entropy with the labels."""
        return LabelTerm("hard_label_ce")

    def soft_label(self) -> LabelTerm:
        """Return the divergence from the teacher's distribution over classes."""
        return LabelTerm("soft_label_kl", has_temperature=True)


def _probabilities(outputs: Outputs) -> NDArray[np.float64]:
    """Return the probabilities of classes by a head's outputs, `[rows, classes]`."""
    logits = np.stack(outputs[0]).astype(np.float64)
    return np.asarray(softmax(logits, axis=-1))


def _with_probabilities(numbers: NDArray[Any], probabilities: NDArray[np.float64], task: Task) -> list[str]:
    """Return classes in words, each with its probability.

    Args:
        numbers: The class of each row, `[rows]`.
        probabilities: The probabilities of all classes, `[rows, classes]`.
        task: The task, with the names of the classes.
    """
    words = []
    for number, row_probabilities in zip(numbers, probabilities, strict=True):
        words.append(f"{task.labels[number]} ({row_probabilities[number]:.0%})")
    return words


def figures_of_classes(labels: NDArray[Any], predictions: Sequence[NDArray[Any]], names: Sequence[str]) -> ClassFigures:
    """Return the F1 of each class for each model, and the student's confusion matrix.

    Args:
        labels: The number of the class of each row, or of each word; `[N]`.
        predictions: The student's classes, and the teacher's where there are any; `[N]` each.
        names: The names of the classes.
    """
    # [labels, predicted classes] for each model.
    confusions = [class_scores.confusion(labels, predicted, len(names)) for predicted in predictions]
    by_label = []
    for number, name in enumerate(names):
        f1_of_models = []
        for confusion in confusions:
            f1 = class_scores.class_f1(
                hits=confusion[number, number],
                predicted=confusion[:, number].sum(),
                labelled=confusion[number].sum(),
            )
            f1_of_models.append(f1)
        rows = int(confusions[0][number].sum())
        by_label.append(label_figures(name, rows, f1_of_models))
    return ClassFigures(by_label, labels=list(names), confusion=confusions[0].tolist())


def resampled_interval(
    metric: Metric, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
) -> intervals.Interval | None:
    """Return the 95 % interval of a metric by the bootstrap: rows are drawn with replacement, and scored again."""
    predictions_of_rows = cast(Sequence[Any], predictions)

    def score_sample(places: Sequence[int]) -> float:
        """Return the metric of the rows with these indices, which may come several times."""
        sampled_predictions = [predictions_of_rows[place] for place in places]
        sampled_rows = [rows[place] for place in places]
        return metric(sampled_predictions, sampled_rows, task)

    return intervals.of_resampled(score_sample, len(rows))


def submitted_class(number: int, task: Task, submission: Submission | None) -> str:
    """Return a class as a leaderboard's file has it: by its name, or by its number."""
    if submission is not None and submission.classes == "numbers":
        return str(number)
    return task.labels[number]
