"""Numbers of labelled rows by class, messages about rare classes, and the weights of classes in the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from limbeck.core import IGNORED_LABEL
from limbeck.core.kinds import KindFacts
from limbeck.errors import CorpusError, RecipeError, suggestion

if TYPE_CHECKING:
    from datasets import Dataset

ClassWeights: TypeAlias = tuple[float, ...] | Literal["balanced"]
"""A weight for each class, in the order of class numbers; or "balanced", weights that make all classes count alike."""

RARE = 0.05
"""Share of the rows below which a class is called rare."""
_RARE_OF_EQUAL_SHARE = 0.5
"""The same as a part of an equal share, 1 / classes. With more than ten classes this bound is the lower one."""
_CLASSES_SHOWN = 12
"""Most classes that a line lists with their numbers."""
_NAMES_SHOWN = 3
"""Most names of classes in a sentence."""


@dataclass(frozen=True)
class ClassCounts:
    """The number of rows of each class; for tagged words, the number of words.

    Args:
        names: Names of the classes, in the order of class numbers.
        counts: Number of rows of each class. A row that has several classes counts for each of them.
        total: Number of all rows.
        kind: The kind of the task, which has classes.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    total: int
    kind: KindFacts

    @property
    def has_one(self) -> bool:
        """Whether all rows have the same class or classes, so that there is nothing to learn from them."""
        # Every class is one of all rows or of none.
        return all(count in (0, self.total) for count in self.counts)

    def describe_one(self) -> str:
        """Return a sentence that names the class or classes of all rows; for rows that are all alike."""
        shared_names = [name for name, count in zip(self.names, self.counts, strict=True) if count > 0]
        unit = "words" if self.kind.of_words else "rows"
        return f"All {self.total:,} {unit} have {_in_words(shared_names)}"

    def describe_rare(self) -> str | None:
        """Return a line with the number of rows of each class if a class is rare; None if none is."""
        # Most words of a text are outside of any entity, so all other classes of words are rare by nature.
        if self.total == 0 or self.kind.of_words:
            return None
        # With many classes each has a small share, so that a rare one is judged by an equal share.
        smallest_share = min(self.counts) / self.total
        equal_share = 1 / len(self.names)
        is_rare = smallest_share < min(RARE, _RARE_OF_EQUAL_SHARE * equal_share)
        if not is_rare:
            return None

        rarest_first = sorted(zip(self.counts, self.names, strict=True))
        phrases = []
        for count, name in rarest_first[:_CLASSES_SHOWN]:
            if count == 0:
                phrases.append(f"{name} none")
            else:
                phrases.append(f"{name} {count:,} ({count / self.total:.1%})")
        text = f"Classes are uneven in {self.total:,} rows: {', '.join(phrases)}"
        classes_left = len(rarest_first) - len(phrases)
        if classes_left > 0:
            text += f" and {classes_left} classes with more"
        return text


def labels_of(rows: Dataset) -> NDArray[np.int64]:
    """Return the labels of all rows of a data set in one flat array, as `count_classes` takes them."""
    column = rows.with_format("arrow")["labels"][:].combine_chunks()
    if pa.types.is_list(column.type):  # A row has a label for each token, or a flag for each class.
        column = column.flatten()
    return column.to_numpy().astype(np.int64)


def count_classes(labels: ArrayLike, names: Sequence[str], kind: KindFacts) -> ClassCounts:
    """Count the rows of each class.

    Args:
        labels: The class number of each row or each token, -100 for a token without one. Where a row may have several
            classes: the 1 or 0 of each class, row after row.
        names: Names of the classes.
        kind: The kind of the task, which has classes.
    """
    if kind.has_several:
        flags = np.asarray(labels).reshape(-1, len(names))  # [rows, classes]
        rows_by_class = flags.sum(axis=0).astype(int)
        total = len(flags)
    else:
        numbers = np.asarray(labels, dtype=np.int64)
        rows_by_class = np.bincount(numbers[numbers != IGNORED_LABEL], minlength=len(names))
        total = int(rows_by_class.sum())
    return ClassCounts(tuple(names), tuple(rows_by_class.tolist()), total, kind)


def read_weights(setting: Any, names: Sequence[str], where: str) -> ClassWeights:
    """Return the weights of classes that a setting gives, in the order of the classes.

    Args:
        setting: `"balanced"`, a mapping of class names to weights (1 for a class that it does not name), or a list with
            a weight for each class.
        names: Names of the classes.
        where: Name of the setting, for messages.

    Raises:
        RecipeError: if there are no classes, the setting names an unknown class or has another number of weights than
            classes, or a weight is not above 0.
    """
    if not names:
        raise RecipeError(
            f"{where} gives weights to classes, but the labels of this task have no classes: leave it out."
        )
    if setting == "balanced":
        return "balanced"
    if isinstance(setting, Mapping):
        weights: Sequence[Any] = _weights_by_name(setting, names, where)
    elif isinstance(setting, Sequence) and not isinstance(setting, str):
        weights = setting
    else:
        raise RecipeError(
            f"{where} is {setting!r}; give 'balanced', a weight for each class name, such as {{yes: 2, no: 1}}, or "
            "a list of weights, one for each class."
        )
    if len(weights) != len(names):
        raise RecipeError(
            f"{where} has {len(weights)} weights, but there are {len(names)} classes: give one weight for each class."
        )
    for weight in weights:
        if not _is_weight(weight):
            raise RecipeError(f"{where} has the weight {weight!r}; weights must be numbers above 0.")
    return tuple(float(weight) for weight in weights)


def balance(weights: ClassWeights, counts: ClassCounts) -> tuple[float, ...]:
    """Return the weight of each class, w_c.

    Let n be the number of rows, C the number of classes, and n_c the number of rows in class c. Balanced weights are
    w_c = n / (C n_c), so that each class has the same part of the loss, and the weights of all rows add up to n. Where
    a row may have several classes, w_c weighs the rows with class c against those without it: w_c = (n − n_c) / n_c.

    Args:
        weights: As `read_weights` returns them.
        counts: Numbers of the rows to train on.

    Raises:
        CorpusError: for balanced weights, if a class has no row, or if rows may have several classes and all have one.

    Source:
        `class_weight="balanced"` of scikit-learn, after King and Zeng, Logistic Regression in Rare Events Data (2001);
        for several classes the ratio of its weights of the two values of a class, as the documentation of
        `torch.nn.BCEWithLogitsLoss` has it.
    """
    if weights != "balanced":
        return weights
    for name, count in zip(counts.names, counts.counts, strict=True):
        problem = None
        if count == 0:
            problem = "none of them has"
        elif counts.kind.has_several and count == counts.total:
            problem = "all of them have"
        if problem is not None:
            raise CorpusError(
                f"'class_weights: balanced' cannot be computed from these {counts.total:,} labels: {problem} the "
                f"class '{name}'; give the weight of each class by name, or add rows of every class."
            )

    if counts.kind.has_several:
        return tuple((counts.total - count) / count for count in counts.counts)
    number_of_classes = len(counts.counts)
    return tuple(counts.total / (number_of_classes * count) for count in counts.counts)


def _in_words(names: Sequence[str]) -> str:
    """Return the names of the classes that all rows have, as the end of the sentence "All rows have …"."""
    if not names:
        return "no class"
    quoted_names = " and ".join(f"'{name}'" for name in names[:_NAMES_SHOWN])
    if len(names) > _NAMES_SHOWN:
        return f"the class {quoted_names} …"
    return f"the class {quoted_names}"


def _weights_by_name(setting: Mapping[Any, Any], names: Sequence[str], where: str) -> list[Any]:
    """Return the weight of each class, 1 for a class that the setting does not name.

    Raises:
        RecipeError: if the setting names something that is not a class.
    """
    weight_of_class = {str(name): weight for name, weight in setting.items()}
    for name in weight_of_class:
        if name not in names:
            raise RecipeError(f"{where} names '{name}', which is not a class.{suggestion(name, names)}")
    return [weight_of_class.get(name, 1.0) for name in names]


def _is_weight(value: Any) -> bool:
    if isinstance(value, bool):  # Python counts True and False as integers.
        return False
    return isinstance(value, int | float) and 0 < value < math.inf
