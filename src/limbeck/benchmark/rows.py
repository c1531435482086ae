"""Rows of a benchmark, with the machine that they were measured on, as CSV and as JSON.

A *row* is one measurement, such as a model at one batch size and length, as a mapping of columns to values.
"""

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
"""The value of one column; None where it was not measured."""
Row: TypeAlias = dict[str, Value]
"""The values of a row, by the names of their columns."""
Machine: TypeAlias = dict[str, Any]
"""Facts about the machine that rows were measured on, fit for JSON; see `describe_machine`."""
SUFFIXES = (".csv", ".json")
"""Endings of the files that rows can be written to."""
_DIGITS = 6
"""Significant digits that numbers are rounded to."""


def describe_machine(device_type: str) -> Machine:
    """Describe this machine, with the versions of the software and the present time.

    Args:
        device_type: Type of the device that computes, such as `"cpu"`.

    Returns:
        A mapping with `device`, the name of the processor or accelerator that computes; `hardware`, processor, cores,
        threads and memory, as in a run's record; `versions`, those of limbeck, Python and the packages that
        measurements depend on; `commit`, that of the limbeck checkout, which ends with `-dirty` after local changes and
        is None outside of a checkout; and `created`, the time in UTC.
    """
    facts = hardware()
    device = facts["cpu"] if device_type == "cpu" else facts["device"]
    return {
        "device": str(device),
        "hardware": facts,
        "versions": versions(),
        "commit": git_commit(),
        "created": records.timestamp(),
    }


def tidy(row: Mapping[str, Value]) -> Row:
    """Round floats to six significant digits, and replace undefined values by None: NaN, infinity and empty text."""
    return {column: _tidy_value(value) for column, value in row.items()}


def _tidy_value(value: Value) -> Value:
    """Return one value of a row as `tidy` changes it; whole numbers and other text stay as they are."""
    if value == "":
        return None
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def report_dict(benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> dict[str, Any]:
    """Return a whole benchmark as plain values, fit for JSON.

    Args:
        benchmark: Name of the benchmark, such as `step`.
        rows: Its rows.
        machine: The machine that they were measured on.
    """
    return {"benchmark": benchmark, "machine": machine, "rows": [dict(row) for row in rows]}


def check_output(path: Path | None) -> None:
    """Refuse an output file that could not be written, before anything is measured.

    Args:
        path: The file, or None if no file was asked for.

    Raises:
        RecipeError: for a suffix that is not one of `SUFFIXES`.
        OutputError: for a folder, or a place where nothing can be written.
    """
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise RecipeError(f"--output '{path}' ends with '{path.suffix}'; give a file that ends with .csv or .json.")
    if path.is_dir():
        raise OutputError(f"--output '{path}' is a folder; give the path of a file, which may lie in that folder.")
    files.check_writable(path, path.parent)


def write_rows(path: Path, benchmark: str, rows: Sequence[Mapping[str, Value]], machine: Machine) -> None:
    """Write rows as CSV or JSON, by the suffix of the file.

    In CSV, the name of the benchmark and the facts about the machine are columns of every row; JSON has them once.

    Args:
        path: The file. It is replaced if it exists, and missing folders are made.
        benchmark: Name of the benchmark.
        rows: The rows; all have the same columns.
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
    """Write rows as CSV; the columns are those of the first row.

    Text is quoted and numbers are not, so that readers can tell the text `1` from the number.
    """
    columns = list(rows[0]) if rows else []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        # These rows begin with the headings. Text that a spreadsheet would run as a formula is escaped in them.
        writer.writerows(escape_csv_rows(columns, rows))


def _machine_columns(machine: Machine) -> Row:
    """Return the facts about the machine as the last columns of a row of a CSV file."""
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
