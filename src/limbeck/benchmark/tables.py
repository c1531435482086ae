"""The tables of benchmarks on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from limbeck.benchmark.rows import Value

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
