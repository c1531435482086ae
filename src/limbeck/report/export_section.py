"""What an export is, in Markdown and in plain lines: size, differences, and what int8 gains or costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.evaluation.costs import FEWEST_ROUNDS
from limbeck.report.steadiness import is_doubtful

_UNTOLD = "–"
_NAMES = {
    "onnx": "ONNX",
    "onnx-int8": "ONNX with int8 weights",
    "sentence-transformers": "a sentence-transformers folder",
    "safetensors": "safetensors",
}


def export_title(export: Mapping[str, Any]) -> str:
    """Return what an export is, for a sentence: `ONNX in float32, operator set 17`."""
    title = _NAMES[export["format"]]
    if export["dtype"] != "int8":
        title += f" in {export['dtype']}"
    return f"{title}, operator set {export['opset']}" if export.get("opset") else title


def export_lines(export: Mapping[str, Any]) -> list[str]:
    """Return what was measured of an export, a plain sentence an entry.

    Args:
        export: The record of the export.
    """
    found = export["differences"]
    lines = [] if export.get("int8") else [f"Weights: {export['megabytes']:.1f} MB."]
    largest = ", ".join(
        f"{value:.2g} in {name} (largest value {found['scale'][name]:.2g})" if value is not None else f"none in {name}"
        for name, value in found["largest"].items()
    )
    lines.append(
        f"Largest difference from the source, on {found['texts']} sample texts in {found['batches']} batches of up to "
        f"{found['tokens']} tokens: {largest}."
    )
    if export["dtype"] != "float32":
        lines += _quality(found)
    if export.get("int8"):
        lines += _int8_lines(export)
    if export["dtype"] == "float16" and export["format"] == "onnx":
        lines.append(
            "On a CPU, ONNX Runtime computes many float16 operators in float32 with casts; it is meant for a GPU."
        )
    verified = export.get("verified")
    if verified:
        lines.append(f"Verified in a fresh process on {verified['texts']} texts in {verified['batches']} batches.")
    return lines


def latency_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the latencies of float32 and int8 as a table."""
    lines = [
        "| Texts x tokens | Rounds | float32, ms (10th–90th) | int8, ms (10th–90th) | int8 is |",
        "|---|---:|---:|---:|---|",
    ]
    for row in rows:
        cells = [f"{row['batch']} x {row['length']}", str(row["rounds"])]
        cells += ["{} ({}–{})".format(*milliseconds(row, kind)) for kind in ("float32", "int8")]
        lines.append("| " + " | ".join([*cells, speed_of(row)]) + " |")
    return "\n".join(lines)


def milliseconds(row: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    """Return median, 10th and 90th percentile of `"float32"` or `"int8"`, in three digits or more."""
    values = (float(row[f"{kind}{part}_ms"]) for part in ("", "_p10", "_p90"))
    median, low, high = (f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in values)
    return median, low, high


def speed_of(row: Mapping[str, Any]) -> str:
    """Say how fast int8 is in a row of the latencies; nothing where that cannot be told, see `busy_line`."""
    return _UNTOLD if _is_doubtful(row) else speed_words(row["speedup"])


def busy_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which rows have no speed, and why; empty where all have."""
    untold = [f"{row['batch']} x {row['length']}" for row in rows if _is_doubtful(row)]
    if not untold:
        return ""
    return (
        f"The machine was busy: at {', '.join(untold)} tokens rounds were fewer than {FEWEST_ROUNDS}, or their ratios "
        f"are not those of the medians, so no speed is told ({_UNTOLD}); export again with more --seconds."
    )


def _is_doubtful(row: Mapping[str, Any]) -> bool:
    return is_doubtful(row["float32_ms"], row["int8_ms"], row["speedup"], row["rounds"])


def speed_words(speedup: float) -> str:
    """Say how fast int8 is beside float32; within 3 % they are alike."""
    if 0.97 <= speedup <= 1.03:
        return "as fast"
    return f"{speedup:.2f}x faster" if speedup > 1 else f"{1 / speedup:.2f}x slower"


def _quality(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if cosine := found.get("cosine"):
        lines.append(
            f"Cosine with the source's vectors: {cosine['mean']:.4f} on average, {cosine['lowest']:.4f} at worst."
        )
    if found.get("equal_decisions") is not None:
        lines.append(
            f"Decisions equal to the source's: {found['equal_decisions']:.1%}; KL of the probabilities "
            f"{found['mean_kl']:.2g} nats."
        )
    return lines


def _int8_lines(export: Mapping[str, Any]) -> list[str]:
    sizes, rows = export["int8"]["megabytes"], export["int8"]["latency"]
    lines = [f"Size: {sizes['int8']:.1f} MB, float32 {sizes['float32']:.1f} MB."]
    slower = [row for row in rows if row["speedup"] < 0.97 and not _is_doubtful(row)]
    if slower:
        where = ", ".join(f"{row['batch']} x {row['length']} ({1 / row['speedup']:.2f} times)" for row in slower)
        lines.append(f"int8 is slower than float32 here at {where} tokens: use --format onnx for that.")
    lines += [busy] if (busy := busy_line(rows)) else []
    if export.get("weight_bits") == 7:
        lines.append("Weights have 7 bits: the processor that exported it has no VNNI, where 8 could overflow.")
    else:
        lines.append("Weights have 8 bits: for x86 processors without VNNI, where that may overflow, export it on one.")
    return lines
