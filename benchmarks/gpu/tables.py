"""The tables of a result file, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.gpu.parts import PARTS, Row


def render(found: Mapping[str, Any]) -> str:
    """Return all tables, with a line for each part that is not done."""
    titles, blocks = {part.name: part.title for part in PARTS}, []
    for part in found["parts"]:
        rows = [row for row in part["rows"] if not row.get("errors_only")]
        lines = [f"### {titles[part['part']]}", ""]
        if part.get("created") != found["parts"][0].get("created"):
            lines += [f"measured at {part['created']}, commit {part['commit'][:12]}", ""]
        if part["status"] != "done":
            lines += [f"{part['status']}{': ' if part.get('problem') else ''}{part.get('problem') or ''}", ""]
        if rows:
            lines += _table(COLUMNS[part["part"]], rows)
        blocks.append("\n".join(lines).rstrip())
    return "\n\n".join(blocks)


def _number(key: str, digits: int = 3) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.get(key)
        if not isinstance(value, int | float):
            return "–" if value is None else str(value)
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"

    return cell


def _percent(key: str) -> Callable[[Row], str]:
    return lambda row: "–" if row.get(key) is None else f"{row[key]:.0%}"


_LOSSES = {
    "relation": _number("relation"),
    "backend": _number("backend"),
    "B x L": lambda row: f"{row['batch']} x {row['length']}",
    "ms": _number("median_ms"),
    "faster": _number("speedup"),
    "extra MB": _number("peak_extra_mb"),
    "error of the value": _number("value_error", 2),
    "error of the gradient": _number("gradient_error", 2),
    "note": lambda row: row.get("note") or "",
}
_STEPS = {
    "side": lambda row: f"{row['side']}, {row['dtype']}",
    "B x L": lambda row: f"{row.get('batch', '–')} x {row['length']}",
    "ms": _number("median_ms"),
    "tokens/s": _number("tokens_per_second"),
    "limbeck is faster": _number("limbeck_is_faster"),
    "peak MB": _number("peak_mb"),
    "limbeck takes": _percent("limbeck_takes_of_memory"),
    "of the data sheet's peak": _percent("share_of_data_sheet"),
    "of the measured peak": _percent("share_of_measured_peak"),
    "note": lambda row: row.get("problem") or "",
}
COLUMNS: dict[str, dict[str, Callable[[Row], str]]] = {
    "device": {
        "device": lambda row: row["machine"]["device"],
        "torch": lambda row: row["machine"]["versions"]["torch"],
        "memory GB": _number("memory_gb"),
        "Tflop/s of the data sheet": _number("data_sheet_tflops"),
        "measured": _number("measured_tflops"),
        "GB/s of a copy": _number("copy_gbytes"),
    },
    "relation": _LOSSES,
    "soft_labels": {"classes": _number("classes")} | {k: v for k, v in _LOSSES.items() if k != "relation"},
    "step_base": _STEPS,
    "step_large": _STEPS,
    "loop": {
        "method": _number("method"),
        "syncs a step": _number("syncs_a_step"),
        "places": lambda row: ", ".join(f"{place} ({count})" for place, count in row["places"].items()),
    },
    "generation": {
        "students": lambda row: f"{row['students']} x {row['student']} from {row['teacher']}",
        "together / one by one": _number("ratio"),
        "sharing alone gives": _number("sharing_alone"),
        "largest difference": _number("largest_difference"),
    },
    "tests": {word: _number(word) for word in ("passed", "failed", "skipped", "error")},
}


def _table(columns: Mapping[str, Callable[[Row], str]], rows: Sequence[Row]) -> list[str]:
    rule = "|".join("---" if index == 0 else "---:" for index in range(len(columns)))
    cells = [" | ".join(cell(row) for cell in columns.values()) for row in rows]
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {row} |" for row in cells)]
