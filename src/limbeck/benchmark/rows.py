"""Rows of a benchmark, with the machine they were measured on, as CSV, as JSON and as tables."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from limbeck.core import files, records, timing
from limbeck.core.blocks import NOTHING, Block, Layout, Notes, Paragraph, Table
from limbeck.core.escaping import escape_csv_rows
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import OutputError, RecipeError

Value: TypeAlias = str | int | float | None
Row: TypeAlias = dict[str, Value]
SUFFIXES = (".csv", ".json")
_DIGITS = 6


Machine: TypeAlias = dict[str, Any]
"""What rows were measured on, fit for JSON; see `describe_machine`."""


def describe_machine(device_type: str) -> Machine:
    """Describe this machine, now.

    Args:
        device_type: Kind of the device that computes, such as `"cpu"`.

    Returns:
        `device`: name of the accelerator or the processor that computed. `hardware`: as in a run's record. `versions`:
        of limbeck, Python and the packages that figures depend on. `commit`: of the limbeck checkout, `-dirty` after
        local changes; None outside of one. `created`: when, in UTC.
    """
    found = hardware()
    return {
        "device": str(found["cpu"] if device_type == "cpu" else found["device"]),
        "hardware": found,
        "versions": versions(),
        "commit": git_commit(),
        "created": records.timestamp(),
    }


def tidy(row: Mapping[str, Value]) -> Row:
    """Round measured numbers to six digits, and replace undefined values (NaN, infinite, empty) by None."""
    return {key: _tidy_value(value) for key, value in row.items()}


def _tidy_value(value: Value) -> Value:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return None if value == "" else value


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
        whole = [{"benchmark": benchmark, **row, **_machine_columns(machine)} for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            # Text is quoted and numbers are not, by which readers tell them apart.
            columns = list(whole[0]) if whole else []
            writer = csv.DictWriter(file, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
            writer.writerows(escape_csv_rows(columns, whole))
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror}.") from None


def _machine_columns(machine: Machine) -> Row:
    """The columns that every row of a CSV file ends with."""
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


Rows: TypeAlias = Sequence[Mapping[str, Value]]
Column: TypeAlias = str | Callable[[Mapping[str, Value]], str]


def loss_blocks(rows: Rows) -> list[Block]:
    """Return the tables and notes of `limbeck benchmark loss`."""
    size = next((name for name in ("heads", "classes") if rows and rows[0][name] is not None), "heads")
    title = ""
    if rows:
        first = rows[0]
        kind = ", ".join(str(first[key]) for key in ("relation", "mask", "dtype", "device_type") if first[key])
        title = f"{first['objective']}, widths {first['teacher_width']} and {first['student_width']}, {kind}"
    columns: dict[str, Column] = {
        "backend": "backend",
        "batch x\nlength": _batch,
        size: size,
        "median\nms": "median_ms",
        "p10–p90": _spread,
        "speedup": _speedup,
        "peak\nMB": "peak_extra_mb",
        "value\nerror": lambda row: _number(row["value_error"], 2),
        "gradient\nerror": lambda row: _number(row["gradient_error"], 2),
    }
    return [Paragraph(title), _table(columns, rows), _notes(rows, "backend")]


def step_blocks(rows: Rows) -> list[Block]:
    """Return the tables and notes of `limbeck benchmark step`."""
    whole = rows[0]
    ceilings = {str(row["dtype"]): row["ceiling_gflops"] for row in rows if row["ceiling_gflops"] is not None}
    rates = ", ".join(f"{_number(rate)} Gflop/s in {dtype}" for dtype, rate in ceilings.items())
    found = f"{_number(whole['tokens_per_second'], 4)} valid tokens/s"
    if whole["peak_mb"] is not None:
        extra = _number(whole["peak_extra_mb"], 4)
        found += f"; peak memory {_number(whole['peak_mb'], 4)} MB ({extra} MB of it extra)"
    floor = (
        f"Floor: the matrix products at the rate of a large one ({rates}), plus the optimizer's memory traffic at the "
        f"rate of a large copy ({_number(rows[-1]['ceiling_gbytes'])} GB/s), in % of the measured time."
    )
    columns: dict[str, Column] = {
        "part": "part",
        "format": "dtype",
        "median\nms": "median_ms",
        "p10–p90": _spread,
        "share": lambda row: f"{float(row['share'] or 0):.0%}",
        "Gflop": "gflop",
        "floor": lambda row: NOTHING if row["floor_percent"] is None else f"{_number(row['floor_percent'])} %",
    }
    return [
        Paragraph(f"{whole['method']}: {whole['teacher']} -> {whole['student']}"),
        Paragraph(
            f"{_batch(whole)} tokens x {whole['micro_batches']}, {whole['mask']}, on {whole['device_type']}; "
            f"teacher in {whole['teacher_dtype']}"
        ),
        _table(columns, rows),
        Notes((found, floor)),
        _notes(rows, "part"),
    ]


def model_blocks(rows: Rows) -> list[Block]:
    """Return the tables and notes of `limbeck benchmark model`."""
    first = rows[0]
    columns: dict[str, Column] = {
        "model": "model",
        "batch x\nlength": _batch,
        "median\nms": "median_ms",
        "p10–p90": _spread,
        "sentences\nper s": "sentences_per_second",
        "tokens\nper s": "tokens_per_second",
        "speedup": _speedup,
    }
    return [
        Paragraph(f"Forward passes in {first['dtype']} on {first['device_type']}"),
        _table(columns, rows),
        Notes((f"Speedups are relative to {first['model']}.", *_uneven(rows))),
        Paragraph("Size"),
        _size_table(rows),
    ]


def _uneven(rows: Rows) -> Iterator[str]:
    """Say of models whose speedup is not that of their medians which of the two holds."""
    first = {(row["batch"], row["length"]): row["median_ms"] for row in rows if row["model"] == rows[0]["model"]}
    for row in rows:
        before: Any = first[row["batch"], row["length"]]
        median, ratio, rounds = (cast(Any, row[name]) for name in ("median_ms", "speedup", "rounds"))
        if rounds >= timing.FEWEST_ROUNDS and timing.is_doubtful(before, median, ratio, rounds):
            yield (
                f"The machine was uneven: at {_batch(row)} the medians of {row['model']} give "
                f"{_number(before / median)}x. Trust {_number(ratio)}x, of passes side by side; more --seconds make it "
                "surer."
            )


def _size_table(rows: Rows) -> Table:
    """A row a model; operations depend on the length, so there is a column for each."""
    models = {row["model"]: row for row in reversed(rows)}
    operations = {(row["model"], row["length"]): row["megaflops_per_token"] for row in rows}
    columns: dict[str, Column] = {
        "model": lambda row: f"{row['model']}\n{row['shape']}",
        "embedding\nM": lambda row: _millions(row["embedding_parameters"]),
        "Transformer\nM": lambda row: _millions(row["transformer_parameters"]),
        "all\nM": lambda row: _millions(row["parameters"]),
        "MB": lambda row: f"{float(row['megabytes'] or 0):.1f}",
    }
    for length in dict.fromkeys(row["length"] for row in rows):
        columns[f"Mflop/token\nof {length}"] = lambda row, length=length: _number(  # type: ignore[misc]
            operations[row["model"], length]
        )
    return _table(columns, list(reversed(models.values())))


def _table(columns: Mapping[str, Column], rows: Rows) -> Table:
    """Make a table whose columns, by heading, are a key of the rows or a function of a row."""
    cells = [[_number(row[at]) if isinstance(at, str) else at(row) for at in columns.values()] for row in rows]
    # All columns fit into a terminal of 80.
    layout = Layout(padding=0 if len(columns) > 7 else 1, no_wrap=True, label_width=12)
    return Table("", tuple(columns), tuple(map(tuple, cells)), words=(0,), layout=layout)


def _number(value: Value, digits: int = 3) -> str:
    """Write a number with so many digits, whole from there on; text as it is."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _batch(row: Mapping[str, Value]) -> str:
    return f"{row['batch']} x {row['length']}"


def _spread(row: Mapping[str, Value]) -> str:
    return NOTHING if row["p10_ms"] is None else f"{_number(row['p10_ms'])}–{_number(row['p90_ms'])}"


def _speedup(row: Mapping[str, Value]) -> str:
    return NOTHING if row["speedup"] is None else f"{_number(row['speedup'])}x"


def _millions(value: Value) -> str:
    return f"{float(value or 0) / 1e6:.2f}"


def _notes(rows: Rows, name: str) -> Notes:
    """Return the notes of the rows, each once."""
    return Notes(tuple(dict.fromkeys(f"{row[name]}: {row['note']}" for row in rows if row["note"])), warning=True)
