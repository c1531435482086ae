"""The value of a row as the numbers of a stream: read by its form, and refused where a student could not learn it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.messages import safe_name
from limbeck.corpus.rows.class_numbers import is_missing
from limbeck.errors import CorpusError
from limbeck.targets.target_file import Form, TargetFile, TargetRow

LEAST_PROBABILITY = 1e-6
"""A probability of 0 counts as this: its logarithm would not be finite."""
LEAST_LENGTH = 1e-6
MOST_LENGTH = 1e6
"""Range of the lengths of vectors. Losses add a small number to lengths, and square them, in float32."""
_ROUNDING = 0.02
"""Probabilities of a row that were rounded may have a sum that differs so much from 1."""
_SHOWN_CHARACTERS = 60
_LISTED_CLASSES = 8


def read_target(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Return what a teacher said of a text as the numbers of a stream, `[width]`.

    Probabilities p become the logits log p, whose softmax is p again. A class becomes the probability 1.

    Args:
        row: The row.
        file: Its file, which says what the value is.

    Raises:
        CorpusError: for a value that is missing, of another form, not finite, or a vector of zeros.
    """
    # A list is neither missing nor comparable.
    if not isinstance(row.value, list | np.ndarray) and is_missing(row.value):
        raise CorpusError(
            f"{safe_name(row.where)} has a text, but nothing in '{_column(file)}'; fill that column in, or leave "
            "the row out."
        )
    return _READERS[file.form](row, file)


def _read_vector(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Read a vector, and refuse one without a direction that can be computed."""
    values = _read_numbers(row, file)
    if not values.any():
        raise CorpusError(
            f"{safe_name(row.where)} has a vector of only zeros in '{_column(file)}', which has no direction to "
            "learn; leave the row out."
        )
    length = float(np.linalg.norm(values.astype(np.float64)))
    if not LEAST_LENGTH <= length <= MOST_LENGTH:
        raise CorpusError(
            f"{safe_name(row.where)} has a vector of length {length:.3g} in '{_column(file)}', but a direction can "
            f"be computed only for lengths from {LEAST_LENGTH:g} to {MOST_LENGTH:g}; scale the vectors to length 1."
        )
    return values


def _read_probabilities(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Read the probabilities of the classes, and return logits that give them."""
    values = _read_numbers_of_classes(row, file)
    are_shares = bool((values >= 0).all() and (values <= 1).all())
    has_sum_of_one = abs(float(values.sum()) - 1) <= _ROUNDING
    if not are_shares or not has_sum_of_one:
        raise CorpusError(
            f"{safe_name(row.where)} has {_shown(values)} in '{_column(file)}', which are not probabilities, "
            "because these sum to 1; if they are logits, set teacher.scores.form to logits."
        )
    return _logits_of(values)


def _read_logits(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Read the logits of the classes."""
    return _read_numbers_of_classes(row, file)


def _read_label(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Read one class, and return logits that give it the probability 1."""
    probabilities = np.zeros(len(file.classes), dtype=np.float32)
    probabilities[_read_number_of_class(row, file)] = 1
    return _logits_of(probabilities)


def _read_score(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Read a single number."""
    values = _read_numbers(row, file)
    if len(values) != 1:
        raise CorpusError(
            f"{safe_name(row.where)} has {len(values)} numbers in '{_column(file)}', but 'score' means a single "
            "number; use 'scores' with the classes, or 'vector'."
        )
    return values


_READERS: dict[Form, Callable[[TargetRow, TargetFile], NDArray[np.float32]]] = {
    "vector": _read_vector,
    "probabilities": _read_probabilities,
    "logits": _read_logits,
    "labels": _read_label,
    "score": _read_score,
}


def _read_numbers_of_classes(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Return the number of each class, from a list in the order of the classes or from a mapping by their names."""
    value = _parse_if_text(row.value)
    if isinstance(value, Mapping):
        if set(value) != set(file.classes):
            raise CorpusError(
                f"{safe_name(row.where)} has the classes {_list_names(value)} in '{_column(file)}', but "
                f"teacher.scores.classes names {_list_names(file.classes)}; make both the same."
            )
        row = row._replace(value=[value[name] for name in file.classes])
    values = _read_numbers(row, file)
    if len(values) != len(file.classes):
        raise CorpusError(
            f"{safe_name(row.where)} has {len(values)} numbers in '{_column(file)}', but teacher.scores.classes "
            f"names {len(file.classes)} classes ({_list_names(file.classes)}); give one number for each class."
        )
    return values


def _read_numbers(row: TargetRow, file: TargetFile) -> NDArray[np.float32]:
    """Return the numbers of a list; a number alone counts as a list of one.

    Raises:
        CorpusError: for anything else, and numbers that are not finite.
    """
    try:
        # A number that float32 cannot hold becomes infinite, which is refused below.
        with np.errstate(over="ignore"):
            values = np.atleast_1d(np.asarray(_parse_if_text(row.value), dtype=np.float32))
    except (TypeError, ValueError):
        raise _no_numbers_error(row, file) from None
    if values.ndim != 1 or not len(values):
        raise _no_numbers_error(row, file)
    if not np.isfinite(values).all():
        raise CorpusError(
            f"{safe_name(row.where)} has a number in '{_column(file)}' that is not finite; correct the number, or "
            "leave the row out."
        )
    return values


def _no_numbers_error(row: TargetRow, file: TargetFile) -> CorpusError:
    """Return the error for a value that has no numbers."""
    way_out = ""
    if row.value in file.classes:
        way_out = "; set teacher.scores.form to labels, as it names a class"
    return CorpusError(
        f"{safe_name(row.where)} has {_shown(row.value)} in '{_column(file)}', which is no list of numbers{way_out}."
    )


def _parse_if_text(value: Any) -> Any:
    """Return the list or mapping that a text spells as JSON, as tables hold them; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _read_number_of_class(row: TargetRow, file: TargetFile) -> int:
    """Return the index among the recipe's classes of the class that a row names.

    A row may have the name of a class, or a number. A number counts in the classes that the file itself states, else in
    those of the recipe.
    """
    value = row.value
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    # The order of the classes that a file states need not be that of the recipe, so the number becomes a name.
    if is_number and 0 <= value < len(row.class_names):
        value = row.class_names[int(value)]
        is_number = False
    name = str(value).strip()
    if name in file.classes:
        return file.classes.index(name)
    # Of classes that are numbers themselves, such as "1" to "5", 0 is none, and not the first.
    are_words = not any(class_name.isdecimal() for class_name in file.classes)
    if is_number and are_words and 0 <= value < len(file.classes):
        return int(value)
    raise CorpusError(
        f"{safe_name(row.where)} has the class {_shown(row.value)} in '{_column(file)}', which is not one of "
        f"teacher.scores.classes ({_list_names(file.classes)}); add it there, or correct the row."
    )


def _logits_of(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logarithms of probabilities."""
    return np.log(np.maximum(probabilities, np.float32(LEAST_PROBABILITY)))


def _column(file: TargetFile) -> str:
    """Return the name of the column of the targets, as messages show it; of an array that of its file."""
    return safe_name(file.place if file.column is None else file.column)


def _shown(value: Any) -> str:
    """Return the beginning of a value, as messages show it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    text = repr(value)
    return safe_name(text[:_SHOWN_CHARACTERS])


def _list_names(names: Collection[Any]) -> str:
    """Return the first names of some classes, as messages list them."""
    listed = [safe_name(name) for name in list(names)[:_LISTED_CLASSES]]
    if len(names) > _LISTED_CLASSES:
        listed.append("…")
    return ", ".join(listed)
