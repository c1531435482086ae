"""Typed records: reading JSON files of any age and state, and writing them whole.

A record is read by `load` and written by `save`. What an older version did not write is None or empty; what this
version does not know is kept; what is damaged is left out and named in `Record.damage`. `limbeck.core.records` has the
records of runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator

from limbeck.core.files import atomic_text

Number: TypeAlias = int | float
MOST_BYTES = 400 * 2**20
"""Of a record; more is read as damaged."""
_MOST = 2**1000
"""Of a number; more is no float."""


class Record(BaseModel):
    """A record or a part of one: unknown keys are kept, and values are taken as they are or not at all.

    Attributes:
        KIND: The key by whose value a record is of one of the `KINDS`; empty where there is one kind.
    """

    model_config = ConfigDict(extra="allow", strict=True, populate_by_name=True, defer_build=True)

    KIND: ClassVar[str] = ""
    KINDS: ClassVar[Mapping[str, type[Record]]] = {}

    _damage: tuple[str, ...] = PrivateAttr(default=())
    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, values: Any, handler: Callable[[Any], Self]) -> Self:
        record = handler(values)
        if isinstance(values, dict):
            record._order = tuple(values)
        return record

    @classmethod
    def read(cls, values: Any, name: str = "") -> Self:
        """Read plain values, as far as they are what they should be.

        Args:
            values: A mapping, as JSON holds it.
            name: Of the file, for `damage`.
        """
        values, damage = plain(values), []
        if not isinstance(values, dict):
            values, damage = {}, [f"'{name}' is damaged and cannot be read."]
        kind = cls.KINDS.get(str(values.get(cls.KIND)), cls)
        kind = kind if issubclass(kind, cls) else cls
        while True:
            try:
                record = kind.model_validate(values)
            except ValidationError as error:
                damage += _drop(values, error, name)
            else:
                record._damage = tuple(dict.fromkeys(damage))
                return record

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, in whatever order."""
        return isinstance(other, Record) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read of the file, a line each."""
        return self._damage

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return not self.model_fields_set

    def to_dict(self) -> dict[str, Any]:
        """Return what was read or set as JSON has it, in the order of then; numbers that are not finite are None."""
        fields = type(self).model_fields
        known = {name: self.__dict__[name] for name in fields if name in self.model_fields_set}
        found = {fields[name].alias or name: plain(value) for name, value in known.items()}
        found |= {name: plain(value) for name, value in (self.model_extra or {}).items()}
        order = [fields[key].alias or key if key in fields else key for key in self._order]
        return {key: found[key] for key in dict.fromkeys([*order, *found]) if key in found}


class File(Record):
    """A record that is a file.

    Attributes:
        FILE: Its name.
    """

    FILE: ClassVar[str]


F = TypeVar("F", bound=File)


def load(kind: type[F], folder: Path) -> F:
    """Read the record of a folder; an empty one where there is none.

    Args:
        kind: Of the record; of `studies.Search` the record is of the kind that its file names.
        folder: The folder, or the file itself.

    Returns:
        The record; `damage` says what could not be read.
    """
    path = folder if folder.suffix == ".json" and not folder.is_dir() else folder / kind.FILE
    record = kind.read({})
    try:
        if not path.is_file():  # Of a pipe or a device there is no end.
            return record
        if path.stat().st_size > MOST_BYTES:
            record._damage = (f"'{path.name}' is larger than {MOST_BYTES // 2**20} MB, which no record is.",)
            return record
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        record._damage = (f"'{path.name}' cannot be read: {error.strerror}.",)
        return record
    except (ValueError, RecursionError):
        values = None
    return kind.read(values, path.name)


def save(record: File, folder: Path) -> None:
    """Write a record whole or not at all, as JSON that every reader takes.

    Args:
        record: The record.
        folder: Where its file is.
    """
    atomic_text(folder / record.FILE, text_of(record.to_dict()))


def timestamp() -> str:
    """Return the time as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def text_of(values: Any) -> str:
    """Return values as the text of a record's file."""
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records and dataclasses as mappings, tuples as lists, NaN and infinity as None."""
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int):
        return value if abs(value) < _MOST else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted names, so that the first that differs can be named."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _drop(values: dict[str, Any], error: ValidationError, name: str) -> list[str]:
    """Take out the values that an error is about; return a line about each."""
    said: dict[tuple[Any, ...], str] = {}
    for problem in error.errors(include_url=False, include_context=False):
        reason = problem["msg"].lower().partition(" or instance of")[0]
        said[_damaged_path(values, problem["loc"], problem["type"])] = reason
    # From the end, so that the places of a list's other items hold.
    for path in sorted(said, key=lambda path: [(isinstance(key, int), key) for key in path], reverse=True):
        holder: Any = values
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]
    return [f"'{name}': {_shown(path)} is damaged ({reason})." for path, reason in said.items()]


def _damaged_path(values: Any, place: Sequence[int | str], problem: str) -> tuple[Any, ...]:
    """The keys to the value that has to go: a field, or an item of a list of records.

    A list of numbers that lacks one would say something else, so it goes as a whole.
    """
    path: list[int | str] = []
    for key in place:  # It ends with names of types where a field may be of several.
        is_there = key in values if isinstance(values, dict) else isinstance(values, list) and key in range(len(values))
        if not is_there:
            break
        path.append(key)
        values = values[key]
    while isinstance(path[-1], int) and problem not in ("model_type", "missing"):
        path.pop()
    return tuple(path)


def _shown(path: Sequence[int | str]) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in ".".join(map(str, path)))[:200]
