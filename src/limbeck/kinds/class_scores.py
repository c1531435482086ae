"""Scores of classes and values, by arrays of predictions and labels.

Scikit-learn and SciPy are imported where they are used: they take a second, which a run need not wait for.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow


def labels_of(rows: Sequence[LabelledRow]) -> NDArray[Any]:
    """The labels of rows: `[rows]`, or `[rows, classes]` where a row may have several classes."""
    return np.array([row.label for row in rows])


def accuracy(predicted: ArrayLike, labels: ArrayLike) -> float:
    """Share of right classes, `[N]`, or of rows with all of their classes right, `[N, classes]`."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predicted))


def mean_f1(predicted: ArrayLike, labels: ArrayLike, average: Literal["micro", "macro", "weighted"]) -> float:
    """F1 over classes as `sklearn.metrics.f1_score` defines it, with `zero_division=0`.

    Of classes, those count that occur among the labels or the predictions. Of flags every class counts. A class without
    a hit has an F1 of 0.

    Args:
        predicted: Classes, `[N]`, or flags, 1 or 0 for each class, `[N, classes]`.
        labels: The right ones, of the same shape.
        average: `"micro"` is the F1 of all decisions together, which is the accuracy of single classes. `"macro"` is
            the mean over classes, and `"weighted"` the mean with the number of rows of each class as its weight.
    """
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predicted, average=average, zero_division=0.0))


def f1_of_class(predicted: ArrayLike, labels: ArrayLike, number: int) -> float:
    """F1 of one class against all others; 0 where the class is neither predicted nor there.

    Args:
        predicted: Classes, `[N]`.
        labels: The right ones, `[N]`.
        number: The number of the class.
    """
    is_predicted = np.asarray(predicted) == number
    is_labelled = np.asarray(labels) == number
    return class_f1(hits=(is_predicted & is_labelled).sum(), predicted=is_predicted.sum(), labelled=is_labelled.sum())


def matthews(predicted: ArrayLike, labels: ArrayLike) -> float:
    """Matthews' correlation coefficient of classes, -1 to 1; 0 where all labels or all predictions are one class."""
    from sklearn.metrics import matthews_corrcoef

    # scikit-learn warns of a single class in both.
    if len(np.union1d(predicted, labels)) < 2:
        return 0.0
    return float(matthews_corrcoef(labels, predicted))


def mean_average_precision(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean over classes of the average precision; classes that no row has are left out, since they have none.

    Args:
        probabilities: The probability of each class in each row, `[N, classes]`.
        labels: 1 or 0, `[N, classes]`.
    """
    from sklearn.metrics import average_precision_score

    flags = np.asarray(labels)
    has_rows = flags.any(axis=0)  # [classes]
    if not has_rows.any():
        return 0.0
    scores = np.asarray(probabilities)
    return float(average_precision_score(flags[:, has_rows], scores[:, has_rows], average="macro"))


def correlation(predicted: ArrayLike, labels: ArrayLike, name: Literal["pearsonr", "spearmanr"]) -> float:
    """Pearson's or Spearman's correlation, -1 to 1; NaN of fewer than two values, or of values that are all equal."""
    from scipy import stats

    predictions = np.asarray(predicted).astype(np.float64)
    values = np.asarray(labels).astype(np.float64)
    are_equal = len(predictions) < 2 or np.ptp(predictions) == 0 or np.ptp(values) == 0
    if are_equal:
        return float("nan")
    coefficient = stats.pearsonr if name == "pearsonr" else stats.spearmanr
    return float(coefficient(predictions, values).statistic)


def class_f1(hits: float, predicted: float, labelled: float) -> float:
    """F1 of one class by counts; 0 where the class is neither predicted nor there.

    Args:
        hits: Rows of the class that are predicted to be of it.
        predicted: Rows that are predicted to be of the class.
        labelled: Rows of the class.
    """
    total = predicted + labelled
    if total == 0:
        return 0.0
    return float(2 * hits / total)


def confusion(labels: NDArray[Any], predicted: ArrayLike, classes: int) -> NDArray[np.int64]:
    """The confusion matrix, `[classes, classes]`: the count of each label (row) with each predicted class (column)."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    # `counts[...] += 1` would count a pair of label and prediction that comes several times only once.
    np.add.at(counts, (labels, np.asarray(predicted)), 1)
    return counts


def flat(values: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The values of the words of all rows in one array: the lists of the rows are joined."""
    return np.array([value for row in values for value in row])
