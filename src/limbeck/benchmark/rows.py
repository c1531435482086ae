"""Rows of a benchmark, with the machine they were measured on: to CSV or JSON and back, and as tables."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

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


Rows = Sequence[Mapping[str, Value]]
_NOTHING = "–"


def loss_table(rows: Rows) -> RenderableType:
    """Return the table of `limbeck benchmark loss`."""
    sizes = ("heads", "classes")
    size = next((name for name in sizes if rows and rows[0][name] is not None), "heads")
    headings = "backend", "batch x\nlength", size, "median\nms", "p10–p90", "speedup", "peak\nMB"
    table = _table((*headings, "value\nerror", "gradient\nerror"))
    for row in rows:
        table.add_row(
            str(row["backend"]),
            f"{row['batch']} x {row['length']}",
            _number(row[size]),
            _number(row["median_ms"]),
            _spread(row),
            _times(row["speedup"]),
            _number(row["peak_extra_mb"]),
            _number(row["value_error"], 2),
            _number(row["gradient_error"], 2),
        )
    title = ""
    if rows:
        first = rows[0]
        kind = ", ".join(str(first[key]) for key in ("relation", "mask", "dtype", "device_type") if first[key])
        title = f"{first['objective']}, widths {first['teacher_width']} and {first['student_width']}, {kind}"
    return Group(Text(title, style="bold"), table, *_notes(rows, "backend"))


def step_table(rows: Rows) -> RenderableType:
    """Return the table of `limbeck benchmark step`."""
    table = _table(("part", "format", "median\nms", "p10–p90", "share", "Gflop", "floor"))
    for row in rows:
        percent = row["floor_percent"]
        table.add_row(
            str(row["part"]),
            str(row["dtype"]),
            _number(row["median_ms"]),
            _spread(row),
            f"{float(row['share'] or 0):.0%}",
            _number(row["gflop"]),
            _NOTHING if percent is None else f"{_number(percent)} %",
        )
    whole = rows[0]
    lines = [
        f"{whole['method']}: {whole['teacher']} -> {whole['student']}",
        f"{whole['batch']} x {whole['length']} tokens x {whole['micro_batches']}, {whole['mask']}, on "
        f"{whole['device_type']}; teacher in {whole['teacher_dtype']}",
    ]
    ceilings = {str(row["dtype"]): row["ceiling_gflops"] for row in rows if row["ceiling_gflops"] is not None}
    rates = ", ".join(f"{_number(rate)} Gflop/s in {dtype}" for dtype, rate in ceilings.items())
    found = f"{_number(whole['tokens_per_second'], 4)} valid tokens/s"
    if whole["peak_mb"] is not None:
        found += (
            f"; peak memory {_number(whole['peak_mb'], 4)} MB ({_number(whole['peak_extra_mb'], 4)} MB of it extra)"
        )
    return Group(
        *(Text(line, style="bold") for line in lines),
        table,
        Text(found),
        Text(
            f"Floor: what matrix products alone take at the rate of a large one, {rates}, and the optimizer's bytes at "
            f"that of a large copy, {_number(rows[-1]['ceiling_gbytes'])} GB/s; in % of the time.",
            style="dim",
        ),
        *_notes(rows, "part"),
    )


def model_table(rows: Rows) -> RenderableType:
    """Return the table of `limbeck benchmark model`."""
    table = _table(
        ("model", "batch x\nlength", "median\nms", "p10–p90", "sentences\nper s", "tokens\nper s", "speedup")
    )
    first = rows[0]
    for row in rows:
        table.add_row(
            str(row["model"]),
            f"{row['batch']} x {row['length']}",
            _number(row["median_ms"]),
            _spread(row),
            _number(row["sentences_per_second"]),
            _number(row["tokens_per_second"]),
            _times(row["speedup"]),
        )
    title = f"Forward passes in {first['dtype']} on {first['device_type']}"
    against = [Text(f"Speedup: how many times as fast as {first['model']}.", style="dim")]
    return Group(Text(title, style="bold"), table, *against, Text("Size", style="bold"), _size_table(rows))


def _size_table(rows: Rows) -> Table:
    """A row a model; operations depend on the length, so there is a column for each."""
    models: dict[str, dict[str, Mapping[str, Value]]] = {}
    for row in rows:
        models.setdefault(str(row["model"]), {})[str(row["length"])] = row
    lengths = list(dict.fromkeys(str(row["length"]) for row in rows))
    operations = [f"Mflop/token\nof {length}" for length in lengths]
    table = _table(("model", "embedding\nM", "Transformer\nM", "all\nM", "MB", *operations))
    for name, by_length in models.items():
        row = next(iter(by_length.values()))
        parts = (f"{float(row[f'{part}parameters'] or 0) / 1e6:.2f}" for part in ("embedding_", "transformer_", ""))
        flops = (_number(by_length[length]["megaflops_per_token"]) for length in lengths)
        table.add_row(f"{name}\n{row['shape']}", *parts, f"{float(row['megabytes'] or 0):.1f}", *flops)
    return table


def _table(headings: Sequence[str]) -> Table:
    # All columns fit into a terminal of 80.
    room = 0 if len(headings) > 7 else 1
    table = Table(expand=False, box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True, padding=(0, room))
    for index, heading in enumerate(headings):
        first = index == 0
        table.add_column(
            heading,
            justify="left" if first else "right",
            overflow="fold",
            no_wrap=not first,
            min_width=12 if first else None,
        )
    return table


def _number(value: Value, digits: int = 3) -> str:
    """Write a number with so many digits, whole from there on; text as it is."""
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _spread(row: Mapping[str, Value]) -> str:
    return _NOTHING if row["p10_ms"] is None else f"{_number(row['p10_ms'])}–{_number(row['p90_ms'])}"


def _times(value: Value) -> str:
    return _NOTHING if value is None else f"{_number(value)}x"


def _notes(rows: Rows, name: str) -> list[Text]:
    """Say what could not be had, once each."""
    found = dict.fromkeys(f"{row[name]}: {row['note']}" for row in rows if row["note"])
    return [Text(line, style="yellow") for line in found]
