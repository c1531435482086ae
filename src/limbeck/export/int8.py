"""ONNX files with weights of 8 bits: made of a file in float32 (*quantised*), and measured beside it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.timing import CoreDemand, speedup, summarise, tell_rounds
from limbeck.evaluation.latency import PassTime, time_passes, wall_times
from limbeck.export.onnx import LARGEST_FILE, onnx_bytes, open_session, quiet_converters
from limbeck.models.loaded import LoadedModel

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_ARM = ("arm64", "aarch64")
"""Names of ARM processors by `platform.machine`."""
_PROCESSOR = Path("/proc/cpuinfo")
"""Linux' description of the processor."""
LATENCY_LENGTHS = (16, 128)
"""Lengths of texts, in tokens, at which latencies are measured."""
LATENCY_BATCH_SIZES = (1, 32)
"""Numbers of texts in a batch at which latencies are measured."""


def quantise(full: Path, path: Path, *, reduce_range: bool) -> None:
    """Write the int8 form of an ONNX file.

    Weights have a scale per output channel, which costs nothing at run time and keeps far more quality than one per
    matrix. Tables of embeddings are quantised too, since they are half of a small model.

    Args:
        full: The model in float32.
        path: The new file.
        reduce_range: Whether to use only 7 bits of the weights' 8, see `needs_reduced_range`.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet_converters():
        quantize_dynamic(
            full,
            path,
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            # A weight of 8 bits has a quarter of the bytes of one in float32.
            use_external_data_format=onnx_bytes(full) // 4 > LARGEST_FILE,
            # Products of two activations, as in attention, stay in float32.
            extra_options={"MatMulConstBOnly": True},
        )


def needs_reduced_range(processor: Path = _PROCESSOR, machine: str | None = None) -> bool:
    """Return whether weights must have 7 bits on this processor, because sums with 8 bits may overflow.

    x86 processors without the VNNI instructions add pairs of products in 16 bits, which may overflow with 8-bit weights
    but not with 7 bits. Where the abilities of the processor are not known, 7 bits are used.

    Args:
        processor: The file in which Linux describes the processor.
        machine: The type of machine, as `platform.machine` names it; None is this one.
    """
    if machine is None:
        machine = platform.machine()
    if machine.lower() in _ARM:
        return False
    try:
        description = processor.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Not on Linux.
        return True
    return "vnni" not in description


def measure_int8(
    source: LoadedModel, full: Path, path: Path, *, seconds: float, report: Report = no_progress
) -> dict[str, Any]:
    """Measure what int8 gains: sizes, and latency with both files alternating in this process.

    Args:
        source: The exported model.
        full: The model in float32.
        path: The model in int8.
        seconds: Time for all timings together; each batch size and length has five rounds at least, however long.
        report: Receives progress.

    Returns:
        `megabytes` of both files, and `latency`, a row for each batch size and length, as
        `limbeck.core.exports.Int8Latency` in plain values.
    """
    runs = {"float32": _session_pass(open_session(full)), "int8": _session_pass(open_session(path))}
    lengths = sorted({min(length, source.longest) for length in LATENCY_LENGTHS})
    # Every batch size at every length.
    cases = [(batch, length) for length in lengths for batch in LATENCY_BATCH_SIZES]
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index, (batch, length) in enumerate(cases):
        progress = part_of(report, index / len(cases), (index + 1) / len(cases))
        core_demand = CoreDemand(torch.get_num_threads())
        passes = time_passes(
            runs,
            torch.randint(source.model.config.vocab_size, (batch, length), generator=generator),
            seconds=seconds / len(cases),
            tell=tell_rounds(progress, f"latency, {batch} x {length} tokens"),
        )
        row = _latency_row(batch, length, passes)
        row["demand"] = core_demand.for_each_core()
        rows.append(row)
    sizes = {"float32": onnx_bytes(full) / 1e6, "int8": onnx_bytes(path) / 1e6}
    return {"megabytes": sizes, "latency": rows}


def _latency_row(batch: int, length: int, passes: Mapping[str, list[PassTime]]) -> dict[str, Any]:
    """Return the latencies at one batch size and length, as `limbeck.core.exports.Int8Latency` in plain values.

    The demand for cores is added by the caller, who knows when the passes began.

    Args:
        batch: Number of texts.
        length: Their tokens.
        passes: The passes of both files, `float32` and `int8`.
    """
    times = {name: wall_times(passes_of_file) for name, passes_of_file in passes.items()}
    row: dict[str, Any] = {
        "batch": batch,
        "length": length,
        "rounds": len(times["int8"]),
        "threads": torch.get_num_threads(),
    }
    for name, times_of_file in times.items():
        spread = summarise(times_of_file)
        row[f"{name}_ms"] = spread["median_ms"]
        row[f"{name}_p10_ms"] = spread["p10_ms"]
        row[f"{name}_p90_ms"] = spread["p90_ms"]
    row["speedup"] = speedup(times["float32"], times["int8"])
    return row


def _session_pass(session: InferenceSession) -> Callable[..., Any]:
    """Return a function that runs a session on `input_ids` and `attention_mask`, as a model is run."""
    names = [tensor.name for tensor in session.get_inputs()]

    def run(*, input_ids: Tensor, attention_mask: Tensor) -> Any:
        # All other inputs, such as segment ids, are zero.
        arrays = dict.fromkeys(names, torch.zeros_like(input_ids).numpy())
        arrays["input_ids"] = input_ids.numpy()
        arrays["attention_mask"] = attention_mask.numpy()
        # None asks for all outputs.
        return session.run(None, arrays)

    return run
