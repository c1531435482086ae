"""Dynamic int8: weights of matrix products and tables in 8 bits, activations quantised as they come."""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limbeck.core.progress import Report, part_of, quietly
from limbeck.evaluation.costs import Latency, measure_latency
from limbeck.export.onnx_file import LARGEST_FILE, onnx_bytes
from limbeck.export.onnx_session import SessionModule, open_session
from limbeck.export.source import Source

_ARM = ("arm64", "aarch64")
_PROCESSOR = Path("/proc/cpuinfo")
LATENCY_LENGTHS, LATENCY_BATCH_SIZES = (16, 128), (1, 32)


def quantise(full: Path, path: Path, *, reduce_range: bool) -> None:
    """Write the int8 form of an ONNX file.

    Weights have a scale per output channel, which costs nothing at run time and keeps far more quality than one per
    matrix; tables of embeddings are quantised too, since they are half of a small model.

    Args:
        full: The model in float32.
        path: The new file.
        reduce_range: Give weights 7 bits, see `needs_reduced_range`.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet_logging(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(
            full,
            path,
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=onnx_bytes(full) // 4 > LARGEST_FILE,
            extra_options={"MatMulConstBOnly": True},
        )


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Keep back the advice that ONNX Runtime's quantiser gives the root logger: to preprocess, which changes nothing
    for a graph whose constants are folded."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)


def needs_reduced_range(processor: Path = _PROCESSOR, machine: str | None = None) -> bool:
    """Whether 8-bit weights may saturate on this processor.

    x86 processors without VNNI add pairs of products in 16 bits, which overflows with full 8-bit weights; with 7 bits
    it cannot. Where the processor does not say what it can, 7 bits are taken.

    Args:
        processor: Linux' description of the processor.
        machine: Kind of machine; None is this one.
    """
    if (machine or platform.machine()).lower() in _ARM:
        return False
    try:
        return "vnni" not in processor.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True


def measure_int8(source: Source, full: Path, path: Path, *, seconds: float, report: Report = quietly) -> dict[str, Any]:
    """Measure what int8 gains: sizes, and latency with both files in turns in this process.

    Args:
        source: What was exported.
        full: The model in float32.
        path: The model in int8.
        seconds: For all timings together; each case has five rounds anyway.
        report: Is told how far it is.

    Returns:
        `megabytes` of both, and `latency`, an entry a length, as `Latency` in plain values, the float32 file first.
    """
    sizes = {"float32": onnx_bytes(full) / 1e6, "int8": onnx_bytes(path) / 1e6}
    config = source.model.config
    modules = [SessionModule(open_session(file), config) for file in (full, path)]
    lengths = sorted({min(length, source.longest) for length in LATENCY_LENGTHS})
    timed = [
        measure_latency(
            *modules,
            batch_sizes=LATENCY_BATCH_SIZES,
            length=length,
            seconds=seconds / len(lengths),
            report=part_of(report, number / len(lengths), (number + 1) / len(lengths)),
        )
        for number, length in enumerate(lengths)
    ]
    return {"megabytes": sizes, "latency": [row for latency in timed for row in _rows(latency)]}


def _rows(latency: Latency) -> list[dict[str, Any]]:
    """One row a batch size: both files' times, and how many times as fast int8 is."""
    return [
        {
            "batch": batch.batch_size,
            "length": latency.length,
            "rounds": batch.rounds,
            "threads": latency.threads,
            "float32_ms": batch.teacher.median_ms,
            "float32_p10_ms": batch.teacher.p10_ms,
            "float32_p90_ms": batch.teacher.p90_ms,
            "int8_ms": batch.student.median_ms,
            "int8_p10_ms": batch.student.p10_ms,
            "int8_p90_ms": batch.student.p90_ms,
            "speedup": batch.speedup,
        }
        for batch in latency.batches
    ]
