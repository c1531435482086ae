"""The latencies of int8 beside float32, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table

from limbeck.report.export_section import milliseconds, speed_of


def latency_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the table: medians with their 10th and 90th percentile, in milliseconds.

    Args:
        rows: As an export's record has them.
    """
    table = Table(box=box.SIMPLE_HEAVY, pad_edge=False)
    for heading in ("texts x tokens", "rounds", "float32 ms", "10th–90th", "int8 ms", "10th–90th", "int8 is"):
        table.add_column(heading, justify="left" if heading == "texts x tokens" else "right")
    for row in rows:
        cells = [f"{row['batch']} x {row['length']}", str(row["rounds"])]
        for kind in ("float32", "int8"):
            median, low, high = milliseconds(row, kind)
            cells += [median, f"{low}–{high}"]
        table.add_row(*cells, speed_of(row))
    return table
