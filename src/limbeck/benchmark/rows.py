"""Rows of a benchmark, with the machine they were measured on: to CSV or JSON, and back."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.core.files import check_writable
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import OutputError, RecipeError

Value: TypeAlias = str | int | float | None
Row: TypeAlias = dict[str, Value]
SUFFIXES = (".csv", ".json")
_DIGITS = 6


@dataclass(frozen=True)
class Machine:
    """What rows were measured on.

    Attributes:
        device: Name of the accelerator or the processor that computed.
        hardware: As in a run's record.
        versions: Of limbeck, Python and the packages that figures depend on.
        commit: Of the limbeck checkout, `-dirty` after local changes; None outside of one.
        created: When, in UTC.
    """

    device: str
    hardware: Mapping[str, Any]
    versions: Mapping[str, str]
    commit: str | None
    created: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        return {
            "device": self.device,
            "hardware": dict(self.hardware),
            "versions": dict(self.versions),
            "commit": self.commit,
            "created": self.created,
        }

    def columns(self) -> Row:
        """Return it as the columns that every row of a CSV file ends with."""
        return _machine_columns(self.to_dict())


def describe_machine(device_type: str) -> Machine:
    """Describe this machine, now.

    Args:
        device_type: Kind of the device that computes, such as `"cpu"`.
    """
    found = hardware()
    name = found["cpu"] if device_type == "cpu" else found["device"]
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Machine(str(name), found, versions(), git_commit(), created)


def tidy(row: Mapping[str, Value]) -> Row:
    """Round measured numbers to six digits, and make what is undefined (NaN, infinite, empty) None."""
    return {key: _tidy_value(value) for key, value in row.items()}


def report_dict(benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> dict[str, Any]:
    """Return a whole benchmark as plain values, fit for JSON."""
    return {"benchmark": benchmark, "machine": machine.to_dict(), "rows": [dict(row) for row in rows]}


def check_output(path: Path | None) -> None:
    """Refuse a file that could not be written, before anything is measured.

    Raises:
        RecipeError: for a suffix that is none of `SUFFIXES`.
        OutputError: for a folder, or where nothing can be written.
    """
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise RecipeError(f"--output '{path}' ends with '{path.suffix}'; give a file that ends with .csv or .json.")
    if path.is_dir():
        raise OutputError(f"--output '{path}' is a folder; give a file in it.")
    check_writable(path, path.parent)


def write_rows(path: Path, benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> None:
    """Write rows as CSV (the machine in columns) or JSON (the machine once), by the suffix.

    Args:
        path: Replaced if it exists; missing folders are made.
        benchmark: Its name.
        rows: All with the same columns.
        machine: Where they were measured.

    Raises:
        RecipeError: see `check_output`.
        OutputError: if the file cannot be written.
    """
    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            text = json.dumps(report_dict(benchmark, rows, machine), indent=2, ensure_ascii=False, allow_nan=False)
            path.write_text(text + "\n", encoding="utf-8")
            return
        whole = [{"benchmark": benchmark, **row, **machine.columns()} for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            # Text is quoted and numbers are not, which is how they are told apart again.
            writer = csv.DictWriter(
                file, list(whole[0]) if whole else [], lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
            )
            writer.writeheader()
            writer.writerows(whole)
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror}.") from None


def read_rows(path: Path) -> list[Row]:
    """Read what `write_rows` wrote: the same rows from both formats, each with the columns of its machine."""
    if path.suffix == ".json":
        report = json.loads(path.read_text(encoding="utf-8"))
        columns = _machine_columns(report["machine"])
        return [{"benchmark": report["benchmark"], **row, **columns} for row in report["rows"]]
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: _from_csv(value) for key, value in row.items()}
            for row in csv.DictReader(file, quoting=csv.QUOTE_NONNUMERIC)
        ]


def _machine_columns(machine: Mapping[str, Any]) -> Row:
    found = machine["hardware"]
    return {
        "device": machine["device"],
        "cores": found["cores"],
        "threads": found["threads"],
        "platform": found["platform"],
        "versions": " ".join(f"{name}={version}" for name, version in machine["versions"].items()),
        "commit": machine["commit"],
        "created": machine["created"],
    }


def _tidy_value(value: Value) -> Value:
    if not isinstance(value, float):
        return None if value == "" else value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def _from_csv(value: Any) -> Value:
    """None was written as empty text; a whole number is one again."""
    if value == "":
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value
