"""Targets as objects: arrays, dictionaries and tables of what a teacher said of texts, in the place of a teacher.

They become a table that a recipe names as `teacher.targets`, with the keys of the teacher that name its columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.api.classes import is_of
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_LOOKED_AT = 100
"""Members at the beginning of a list or dictionary that decide whether it holds numbers."""
_ROWS_AT_ONCE = 10_000
"""Rows of a data set that are read at once."""


class TargetTable(NamedTuple):
    """Targets as a table.

    Attributes:
        tables: The rows.
        keys: The keys of a recipe's teacher that name the columns.
    """

    tables: Iterable["pa.Table"]
    keys: dict[str, Any]


def table_of_targets(teacher: Any, texts: Sequence[str] | None, place: str) -> TargetTable | None:
    """Return the outputs by which a call gives a teacher in place of a model, as a table; None for any other teacher.

    Args:
        teacher: An array with a row for each text; a dictionary of texts, or of pairs of texts, and their targets; a
            table of pandas, Arrow or `datasets`; or the keys of a recipe's teacher with one of these as `targets`.
        texts: The texts of an array; None where the call gives none.
        place: Key of the recipe, for messages.

    Raises:
        RecipeError: for an array without texts, or with more or fewer rows than texts, and targets of several widths.
    """
    # The targets stand beside further keys of a recipe's teacher, or alone.
    keys: dict[str, Any] = {}
    targets = teacher
    if isinstance(teacher, Mapping) and "targets" in teacher:
        keys = {key: value for key, value in teacher.items() if key != "targets"}
        targets = teacher["targets"]
        if isinstance(targets, str | Path):
            return None  # They are the path of a file.
    elif not _is_table(teacher) and not _holds_numbers(teacher):
        return None

    if _is_table(targets):
        return TargetTable(_arrow_tables(targets), keys)
    if isinstance(targets, Mapping):
        columns = _columns_of_texts(list(targets), place)
        return _table_of_columns(columns, list(targets.values()), keys, place)
    if texts is None:
        raise RecipeError(
            f"{place}: an array of targets holds no texts; give corpus as a list of texts, one for each row of the "
            "array, or give targets as a dictionary of texts and vectors."
        )
    return _table_of_columns({"text": list(texts)}, targets, keys, place)


def _is_table(value: Any) -> bool:
    """Whether a value is a table of pandas, Arrow or `datasets`."""
    if is_of(value, "pandas"):
        return hasattr(value, "columns")
    return hasattr(value, "column_names") and hasattr(value, "num_rows")


def _arrow_tables(value: Any) -> Iterable["pa.Table"]:
    """Return the rows of a table as tables of Arrow."""
    if is_of(value, "pandas"):
        from pyarrow import Table

        return [Table.from_pandas(value, preserve_index=False)]
    if is_of(value, "pyarrow"):
        return [value]
    # Any other table is a data set of `datasets`.
    tables: Iterable[pa.Table] = value.with_format("arrow").iter(_ROWS_AT_ONCE)
    return tables


def _holds_numbers(value: Any) -> bool:
    """Whether a value is an array or list of numbers, or a dictionary of these."""
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_numeric, islice(value.values(), _MOST_LOOKED_AT)))
    return _is_numeric(value) and not isinstance(value, int | float)


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number, or an array or list of numbers."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float) or is_of(value, "torch", "Tensor"):
        return True
    if isinstance(value, np.ndarray | np.generic):
        return np.issubdtype(value.dtype, np.number)
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_numeric, value[:_MOST_LOOKED_AT]))
    return False


def _columns_of_texts(members: Sequence[Any], place: str) -> dict[str, list[str]]:
    """Return the columns of the texts, or of the first and second texts, that are the keys of a dictionary."""
    if all(isinstance(member, str) for member in members):
        return {"text": list(members)}
    for member in members:
        is_pair = isinstance(member, tuple) and len(member) == 2
        if not is_pair or not all(isinstance(text, str) for text in member):
            raise RecipeError(
                f"{place}: the dictionary of targets mixes texts and pairs of texts as keys; use only texts, or "
                "only pairs of texts."
            )
    return {"text": [first for first, _ in members], "pair": [second for _, second in members]}


def _table_of_columns(
    columns: Mapping[str, list[str]], targets: Any, keys: Mapping[str, Any], place: str
) -> TargetTable:
    """Return columns of texts and the target of each row as a table.

    Args:
        columns: The columns of texts, by the keys of a recipe's teacher that name them.
        targets: The targets.
        keys: Further keys of the teacher.
        place: Key of the recipe, for messages.
    """
    import pyarrow as pa

    texts = columns["text"]
    if len(targets) != len(texts):
        raise RecipeError(
            f"{place}: there are {len(targets):,} targets, but {len(texts):,} texts; give one target for each text, in "
            "their order."
        )
    rows = [_plain(target) for target in targets]
    are_lists = any(isinstance(row, np.ndarray) for row in rows)
    # Each column is called like the key that names it.
    keys_of_columns = {name: name for name in columns}
    named_columns: dict[str, Any] = {**keys, **keys_of_columns}
    # The keys say whether numbers are scores of classes. Without them, several numbers are a vector.
    scores = keys.get("scores")
    if isinstance(scores, Mapping):
        target_column = "scores"
        named_columns["scores"] = {**scores, "column": target_column}
    else:
        target_column = "vector" if are_lists else "score"
        named_columns[target_column] = target_column
    try:
        table = pa.table({**columns, target_column: pa.array(rows)})
    except pa.ArrowException as error:
        raise RecipeError(
            f"{place}: the targets have different forms ({error}); give every target in the same form."
        ) from None
    return TargetTable([table], named_columns)


def _plain(target: Any) -> NDArray[Any] | Any:
    """Return a list of numbers of any library as an array, and one number or label as Python has it."""
    if is_of(target, "torch", "Tensor"):
        # NumPy has no bfloat16.
        target = target.detach().float().cpu().numpy()
    if isinstance(target, list | tuple):
        target = np.asarray(target)
    is_number = isinstance(target, np.generic) or (isinstance(target, np.ndarray) and target.ndim == 0)
    return target.item() if is_number else target
