"""Rows of a benchmark, with the machine they were measured on, as CSV and as JSON."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.core import files, records
from limbeck.core.escaping import escape_csv_rows
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import OutputError, RecipeError

Value: TypeAlias = str | int | float | None
Row: TypeAlias = dict[str, Value]
"""Column to value."""
Machine: TypeAlias = dict[str, Any]
"""The machine that rows were measured on, fit for JSON; see `describe_machine`."""
SUFFIXES = (".csv", ".json")
_DIGITS = 6
"""Significant digits of a number."""


def describe_machine(device_type: str) -> Machine:
    """Describe this machine, now.

    Args:
        device_type: Kind of the device that computes, such as `"cpu"`.

    Returns:
        `device`: name of the accelerator or the processor that computed. `hardware`: as in a run's record. `versions`:
        of limbeck, Python and the packages that figures depend on. `commit`: of the limbeck checkout, `-dirty` after
        local changes; None outside of one. `created`: when, in UTC.
    """
    machine = hardware()
    return {
        "device": str(machine["cpu"] if device_type == "cpu" else machine["device"]),
        "hardware": machine,
        "versions": versions(),
        "commit": git_commit(),
        "created": records.timestamp(),
    }


def tidy(row: Mapping[str, Value]) -> Row:
    """Round measured numbers to six digits, and replace undefined values (NaN, infinite, empty) by None."""
    return {key: _tidy_value(value) for key, value in row.items()}


def _tidy_value(value: Value) -> Value:
    """Round a number; None for an undefined value."""
    if value == "":
        return None
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def report_dict(benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> dict[str, Any]:
    """Return a whole benchmark as plain values, fit for JSON."""
    return {"benchmark": benchmark, "machine": machine, "rows": [dict(row) for row in rows]}


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
    files.check_writable(path, path.parent)


def write_rows(path: Path, benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> None:
    """Write rows as CSV (the machine in columns) or JSON (the machine once), by the suffix.

    Args:
        path: Replaced if it exists; missing folders are made.
        benchmark: Its name.
        rows: All with the same columns.
        machine: The machine that they were measured on.

    Raises:
        RecipeError: see `check_output`.
        OutputError: if the file cannot be written.
    """
    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            values = report_dict(benchmark, rows, machine)
            text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
            path.write_text(f"{text}\n", encoding="utf-8")
        else:
            _write_csv(path, [{"benchmark": benchmark, **row, **_machine_columns(machine)} for row in rows])
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror}.") from None


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV; text is quoted and numbers are not, by which readers tell them apart."""
    columns = list(rows[0]) if rows else []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerows(escape_csv_rows(columns, rows))


def _machine_columns(machine: Machine) -> Row:
    """Return the columns that every row of a CSV file ends with."""
    machine_hardware = machine["hardware"]
    named_versions = [f"{name}={version}" for name, version in machine["versions"].items()]
    return {
        "device": machine["device"],
        "cores": machine_hardware["cores"],
        "threads": machine_hardware["threads"],
        "platform": machine_hardware["platform"],
        "versions": " ".join(named_versions),
        "commit": machine["commit"],
        "created": machine["created"],
    }
