"""Tables of the rows of the three benchmarks: losses, a training step, models.

A *row* of a benchmark maps columns to values. A table is declared by its headings, each with the key or the function
that gives the cells of its column. A line break in a heading is a line break on the console.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from limbeck.benchmark.rows import Value
from limbeck.core import timing
from limbeck.core.blocks import NOTHING, Block, Layout, Notes, Paragraph, Table

Rows: TypeAlias = Sequence[Mapping[str, Value]]
Column: TypeAlias = str | Callable[[Mapping[str, Value]], str]
"""A key of the rows whose values are shown, or a function that returns the cell of a row."""
_MOST_PADDED_COLUMNS = 7
"""Most columns that fit into a terminal of 80 letters with spaces beside them; more columns get no spaces."""


def loss_blocks(rows: Rows) -> list[Block]:
    """Return the tables and notes of `limbeck benchmark loss`."""
    title = ""
    # An objective depends on a number of heads, or on the classes of a vocabulary: the table has a column for one.
    size = "heads"
    if rows:
        # All rows are of one objective.
        first = rows[0]
        if first["heads"] is None and first["classes"] is not None:
            size = "classes"
        facts = [str(first["objective"]), f"widths {first['teacher_width']} and {first['student_width']}"]
        facts += [str(first[key]) for key in ("relation", "mask", "dtype", "device_type") if first[key]]
        title = ", ".join(facts)
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
    # The first row is that of the whole step, the others are of its parts.
    whole = rows[0]
    columns: dict[str, Column] = {
        "part": "part",
        "format": "dtype",
        "median\nms": "median_ms",
        "p10–p90": _spread,
        "share": lambda row: f"{float(row['share'] or 0):.0%}",
        "Gflop": "gflop",
        "floor": _floor,
    }
    conditions = f"{_batch(whole)} tokens x {whole['micro_batches']}, {whole['mask']}, on {whole['device_type']}"
    return [
        Paragraph(f"{whole['method']}: {whole['teacher']} -> {whole['student']}"),
        Paragraph(f"{conditions}; teacher in {whole['teacher_dtype']}"),
        _table(columns, rows),
        Notes((_throughput(whole), _floor_note(rows))),
        _notes(rows, "part"),
    ]


def _floor(row: Mapping[str, Value]) -> str:
    """Return the floor of a part, the shortest time that its products could take, in percent of the measured time."""
    if row["floor_percent"] is None:
        return NOTHING
    return f"{_number(row['floor_percent'])} %"


def _throughput(whole: Mapping[str, Value]) -> str:
    """Return tokens a second of a whole step, and its peak memory where that was measured."""
    line = f"{_number(whole['tokens_per_second'], 4)} valid tokens/s"
    if whole["peak_mb"] is not None:
        extra = _number(whole["peak_extra_mb"], 4)
        line += f"; peak memory {_number(whole['peak_mb'], 4)} MB ({extra} MB of it extra)"
    return line


def _floor_note(rows: Rows) -> str:
    """Return a note that explains the floor, with the peak rates of the machine."""
    rate_by_dtype = {}
    for row in rows:
        if row["ceiling_gflops"] is not None:
            rate_by_dtype[row["dtype"]] = _number(row["ceiling_gflops"])
    products = ", ".join(f"{rate} Gflop/s in {dtype}" for dtype, rate in rate_by_dtype.items())
    # The optimizer is the last part of a step.
    optimizer = rows[-1]
    return (
        f"Floor: the matrix products at the rate of a large one ({products}), plus the optimizer's memory traffic at "
        f"the rate of a large copy ({_number(optimizer['ceiling_gbytes'])} GB/s), in % of the measured time."
    )


def model_blocks(rows: Rows) -> list[Block]:
    """Return the tables and notes of `limbeck benchmark model`."""
    first = rows[0]
    columns: dict[str, Column] = {
        "model": "model",
        "batch x\nlength": _batch,
        "median\nms": _marked_median,
        "p10–p90": _spread,
        "sentences\nper s": "sentences_per_second",
        "tokens\nper s": "tokens_per_second",
        "speedup": _speedup,
    }
    return [
        Paragraph(f"Forward passes in {first['dtype']} on {first['device_type']}"),
        _table(columns, rows),
        Notes((f"Speedups are relative to {first['model']}.", *_uneven_notes(rows))),
        _notes(rows, "model"),
        Paragraph("Size"),
        _size_table(rows),
    ]


def _uneven_notes(rows: Rows) -> Iterator[str]:
    """Yield a note for each row whose speedup differs from the ratio of the two medians in the table.

    The speedup is the median of the ratios of neighbouring passes, so that it suffers less from other programs.
    """
    # Every model is compared with the first one at the same batch size and length.
    median_of_first_by_batch: dict[str, Any] = {}
    for row in rows:
        if row["model"] == rows[0]["model"]:
            median_of_first_by_batch[_batch(row)] = row["median_ms"]
    for row in rows:
        median_of_first = median_of_first_by_batch[_batch(row)]
        median: Any = row["median_ms"]
        speedup: Any = row["speedup"]
        rounds: Any = row["rounds"]
        # With too few rounds every speedup is doubtful, and no better than the ratio of the medians.
        has_enough_rounds = rounds >= timing.FEWEST_ROUNDS
        if has_enough_rounds and timing.is_doubtful(median_of_first, median, speedup, rounds):
            yield (
                f"The machine was uneven: at {_batch(row)} the medians of {row['model']} give "
                f"{_number(median_of_first / median)}x. Trust {_number(speedup)}x, of passes side by side; more "
                "--seconds make it surer."
            )


def _size_table(rows: Rows) -> Table:
    """Lay out the size of each model, with a column of operations a token for each length of text.

    Args:
        rows: Rows of all models, batch sizes and lengths.
    """
    # The size of a model is the same in all of its rows, but its operations depend on the length.
    first_row_by_model: dict[Value, Mapping[str, Value]] = {}
    operations: dict[tuple[Value, Value], Value] = {}
    for row in rows:
        first_row_by_model.setdefault(row["model"], row)
        operations[row["model"], row["length"]] = row["megaflops_per_token"]
    columns: dict[str, Column] = {
        "model": lambda row: f"{row['model']}\n{row['shape']}",
        "embedding\nM": lambda row: _millions(row["embedding_parameters"]),
        "Transformer\nM": lambda row: _millions(row["transformer_parameters"]),
        "all\nM": lambda row: _millions(row["parameters"]),
        "MB": lambda row: f"{float(row['megabytes'] or 0):.1f}",
    }
    for length in dict.fromkeys(row["length"] for row in rows):
        columns[f"Mflop/token\nof {length}"] = _operations_column(operations, length)
    return _table(columns, list(first_row_by_model.values()))


def _operations_column(operations: Mapping[tuple[Value, Value], Value], length: Value) -> Column:
    """Return the column of operations a token at one length.

    Args:
        operations: Operations a token, by model and length.
        length: The length.
    """

    def write_cell(row: Mapping[str, Value]) -> str:
        return _number(operations[row["model"], length])

    return write_cell


def _table(columns: Mapping[str, Column], rows: Rows) -> Table:
    """Make a table of rows.

    Args:
        columns: The columns by their headings, in order.
        rows: The rows.
    """
    cells = [tuple(_cell(column, row) for column in columns.values()) for row in rows]
    padding = 1 if len(columns) <= _MOST_PADDED_COLUMNS else 0
    layout = Layout(padding=padding, no_wrap=True, label_width=12)
    return Table(caption="", headings=tuple(columns), rows=tuple(cells), words=(0,), layout=layout)


def _cell(column: Column, row: Mapping[str, Value]) -> str:
    """Return the text of a row's cell in a column."""
    if isinstance(column, str):
        return _number(row[column])
    return column(row)


def _number(value: Value, digits: int = 3) -> str:
    """Write a value: a number with `digits` significant digits, text as it is, None as a dash.

    Larger numbers are written in full, with a comma between thousands: `0.0123`, `12.3`, `12,345`.
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _batch(row: Mapping[str, Value]) -> str:
    """Return the batch size and the length of a row: `32 x 128`."""
    return f"{row['batch']} x {row['length']}"


def _marked_median(row: Mapping[str, Value]) -> str:
    """Return the median of the milliseconds, with a mark where a note says that the machine was busy."""
    median = _number(row["median_ms"])
    return f"{median}{timing.BUSY_MARK}" if row["note"] else median


def _spread(row: Mapping[str, Value]) -> str:
    """Return the 10th and the 90th percentile of the milliseconds: `9.1–10.4`."""
    if row["p10_ms"] is None:
        return NOTHING
    return f"{_number(row['p10_ms'])}–{_number(row['p90_ms'])}"


def _speedup(row: Mapping[str, Value]) -> str:
    """Return how many times as fast a row is as the first."""
    if row["speedup"] is None:
        return NOTHING
    return f"{_number(row['speedup'])}x"


def _millions(value: Value) -> str:
    """Write a count in millions; a missing one as 0."""
    return f"{float(value or 0) / 1e6:.2f}"


def _notes(rows: Rows, name: str) -> Notes:
    """Return the notes of the rows as warnings, each once, behind the names of its rows.

    Args:
        rows: The rows.
        name: The column that names a row in its note.
    """
    names_by_note: dict[Value, dict[str, None]] = {}
    for row in rows:
        if row["note"]:
            names_by_note.setdefault(row["note"], {})[str(row[name])] = None
    return Notes(tuple(f"{', '.join(names)}: {note}" for note, names in names_by_note.items()), warning=True)
