"""Typed records: reading JSON files of any age and state, and writing them whole.

A record is read by `load` and written by `save`. Values that an older version did not write are None or empty; values
that this version does not know are kept; damaged values are left out and named in `Record.damage`.
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
"""Largest size of a record's file; a larger file counts as damaged."""
_LARGEST_NUMBER = 2**1000
"""Whole numbers from here on are left out; those from 2**1024 on do not fit a float."""
_LONGEST_PLACE = 200
"""Most characters of the place of a wrong field in a message."""


class Record(BaseModel):
    """A record or a part of one: unknown keys are kept, and values are taken as they are or not at all.

    Attributes:
        KIND: The key whose value names the kind of a record, such as `kind` of a search; empty where there is one kind.
        KINDS: The class of each kind, by that value.
    """

    model_config = ConfigDict(extra="allow", strict=True, populate_by_name=True, defer_build=True)

    KIND: ClassVar[str] = ""
    KINDS: ClassVar[Mapping[str, type[Record]]] = {}

    _damage: tuple[str, ...] = PrivateAttr(default=())
    # The keys in the order of reading, by which `to_dict` writes them again.
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
        """Read plain values; those that are not of the right type are left out, and named in `damage`.

        Args:
            values: A mapping, as JSON holds it.
            name: Name of the file, for `damage`.
        """
        values = plain(values)
        damage: list[str] = []
        if not isinstance(values, dict):
            values = {}
            damage.append(f"'{name}' is damaged and cannot be read.")
        record_type = cls._type_of(values)
        record = None
        while record is None:
            try:
                record = record_type.model_validate(values)
            except ValidationError as error:
                # The damaged values are deleted, and the others are tried again. Each attempt deletes at least one
                # value, so that the attempts end.
                reasons = _damaged_values(values, error)
                _delete_values(values, list(reasons))
                damage += [f"'{name}': {_shown(path)} is damaged ({reason})." for path, reason in reasons.items()]
        record._damage = tuple(dict.fromkeys(damage))
        return record

    @classmethod
    def _type_of(cls, values: dict[str, Any]) -> type[Self]:
        """Return the class of the record that has these values: one of `KINDS`, or else this class."""
        record_type = cls.KINDS.get(str(values.get(cls.KIND)), cls)
        return record_type if issubclass(record_type, cls) else cls

    def __eq__(self, other: object) -> bool:
        """Whether both have the same values, in whatever order."""
        return isinstance(other, Record) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def damage(self) -> tuple[str, ...]:
        """The values of the file that could not be read, one line for each."""
        return self._damage

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return not self.model_fields_set

    def to_dict(self) -> dict[str, Any]:
        """Return the values that were read or set as JSON has them, in the order of reading.

        Numbers that are not finite are None.
        """
        values: dict[str, Any] = {}
        for name in type(self).model_fields:
            if name in self.model_fields_set:
                values[self._key_of(name)] = plain(self.__dict__[name])
        for key, value in (self.model_extra or {}).items():
            values[key] = plain(value)

        # Keys that were read come first, in their order; then those that were set since.
        in_order: dict[str, Any] = {}
        for name in self._order:
            key = self._key_of(name)
            if key in values:
                in_order[key] = values[key]
        for key, value in values.items():
            in_order.setdefault(key, value)
        return in_order

    @classmethod
    def _key_of(cls, name: str) -> str:
        """Return the key under which a field is written: its alias, or else its name; any other name as it is."""
        field = cls.model_fields.get(name)
        if field is not None and field.alias:
            return field.alias
        return name


class File(Record):
    """A record that is a file.

    Attributes:
        FILE: Its name.
    """

    FILE: ClassVar[str]


F = TypeVar("F", bound=File)


def load(cls: type[F], folder: Path) -> F:
    """Read the record of a folder; an empty one where there is none.

    Args:
        cls: Type of the record; of `studies.Search` the record is of the kind that its file names.
        folder: The folder, or the file itself.

    Returns:
        The record; `damage` names the values that could not be read.
    """
    path = folder / cls.FILE
    is_file_itself = folder.suffix == ".json" and not folder.is_dir()
    if is_file_itself:
        path = folder
    record = cls.read({})
    try:
        # A pipe or a device would never end.
        if not path.is_file():
            return record
        if path.stat().st_size > MOST_BYTES:
            record._damage = (f"'{path.name}' is larger than {MOST_BYTES // 2**20} MB, which no record is.",)
            return record
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        record._damage = (f"'{path.name}' cannot be read: {error.strerror}.",)
        return record
    except (ValueError, RecursionError):
        # The file is not JSON. `read` makes an empty record of anything but a mapping, and notes the damage.
        values = None
    return cls.read(values, path.name)


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
        # Some readers of JSON take all numbers for floats.
        return value if abs(value) < _LARGEST_NUMBER else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values in one level, by names joined with dots: `{"a": {"b": 1}}` as `{"a.b": 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{name}.")
        else:
            leaves[name] = value
    return leaves


def _damaged_values(values: dict[str, Any], error: ValidationError) -> dict[tuple[Any, ...], str]:
    """Return the reason of each damaged value that an error is about, by the keys that lead to the value."""
    reasons: dict[tuple[Any, ...], str] = {}
    for problem in error.errors(include_url=False, include_context=False):
        # Cut a message such as "input should be a valid dictionary or instance of Teacher" before the class.
        reason, _, _ = problem["msg"].lower().partition(" or instance of")
        reasons[_damaged_path(values, problem["loc"], problem["type"])] = reason
    return reasons


def _delete_values(values: dict[str, Any], paths: Sequence[tuple[Any, ...]]) -> None:
    """Delete the values at some paths, in place."""
    # From the end of each list, so that the positions of its other items stay valid.
    for path in sorted(paths, key=_sortable, reverse=True):
        *parents, last = path
        holder: Any = values
        for key in parents:
            holder = holder[key]
        del holder[last]


def _sortable(path: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    """Return the sort key of a path; its parts are names and numbers, which Python cannot compare with each other."""
    return [(isinstance(key, int), key) for key in path]


def _damaged_path(values: Any, place: Sequence[int | str], problem: str) -> tuple[Any, ...]:
    """Find the keys to the value that is left out because of an error: a field, or an item of a list of records.

    A list of plain values is left out as a whole: without one of them it would have another meaning.

    Args:
        values: The values of the record.
        place: The place of the error, as pydantic reports it.
        problem: Pydantic's name for the error.
    """
    # For a field of a union the place ends with the names of its types, which are not keys of the values.
    path: list[int | str] = []
    for key in place:
        keys: Any = ()
        if isinstance(values, dict):
            keys = values
        elif isinstance(values, list):
            keys = range(len(values))
        if key not in keys:
            break
        path.append(key)
        values = values[key]

    # These problems are of a whole record: it is no mapping, or lacks a key. It alone is left out of a list of records.
    # Any other problem of an item in a list is one of a plain value, which takes its whole list with it.
    is_about_record = problem in ("model_type", "missing")
    if not is_about_record:
        while isinstance(path[-1], int):
            path.pop()
    return tuple(path)


def _shown(path: Sequence[int | str]) -> str:
    """Return the path of a value for a message: keys joined by dots, printable and not too long."""
    text = ".".join(map(str, path))
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:_LONGEST_PLACE]
