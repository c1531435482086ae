"""ONNX files: traced, checked and written in float32, float16 or int8, run in ONNX Runtime on the CPU, and timed."""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.timing import speedup, summarise, tell_rounds
from limbeck.errors import ModelError, shorten_error
from limbeck.evaluation.latency import time_passes, wall_times
from limbeck.export.batches import Batch, Runner
from limbeck.export.source import OutputModule, is_per_token
from limbeck.models.loaded import LoadedModel

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession


LARGEST_FILE = 2_000_000_000
"""Bytes; protobuf ends at 2 GiB, so heavier weights go into a file beside the graph."""


def write_onnx(
    module: OutputModule,
    example: Batch,
    path: Path,
    *,
    opset: int,
    dtype: str = "float32",
    largest: int = LARGEST_FILE,
) -> None:
    """Trace a model and write it, with free batch and length axes.

    The graph comes from PyTorch's tracing exporter: it needs no further package, gives smaller files in a tenth of the
    time than the one on `torch.export`, and is the only one that all supported versions of PyTorch have. What a trace
    can get wrong, a shape that it takes for constant, shows when outputs are compared at other lengths.

    Args:
        module: In float32 and eval mode.
        example: Inputs of the trace: two rows or more, so that no axis has one entry.
        path: The file; weights that do not fit are written to `NAME_data` beside it.
        opset: Operator set.
        dtype: `"float32"`, or `"float16"` for weights and arithmetic with outputs in float32.
        largest: Bytes that one file may have.

    Raises:
        ModelError: naming the family, if PyTorch cannot trace the model or the file is not valid ONNX.
    """
    import onnx

    family = module.model.config.model_type
    axes = {name: {0: "batch"} for name in (*module.inputs, *module.outputs)}
    for name in axes:
        if name in module.inputs or is_per_token(name, module.head):
            axes[name][1] = "length"
    with TemporaryDirectory(dir=path.parent) as scratch:
        traced = Path(scratch) / "traced.onnx"
        try:
            with _quietly(), torch.no_grad():
                torch.onnx.export(
                    module,
                    tuple(example.inputs[name] for name in module.inputs),
                    str(traced),
                    input_names=list(module.inputs),
                    output_names=list(module.outputs),
                    dynamic_axes=axes,
                    opset_version=opset,
                    dynamo=False,
                )
            graph = onnx.load(str(traced)) if dtype == "float32" else _in_float16(traced)
        except Exception as error:  # A tracer raises whatever the model's own code raises.
            raise ModelError(
                f"The family {family} cannot be written as ONNX with this PyTorch: {shorten_error(error)}"
            ) from error
    beside = sum(len(tensor.raw_data) for tensor in graph.graph.initializer) >= largest
    onnx.save(graph, str(path), save_as_external_data=beside, location=data_file(path).name)
    try:
        onnx.checker.check_model(str(path), full_check=not beside)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"The ONNX file of the family {family} is not valid: {shorten_error(error)}") from error


def data_file(path: Path) -> Path:
    """Return where the weights of a large model are, under the name that Optimum fetches."""
    return path.with_name(path.name + "_data")


def onnx_bytes(path: Path) -> int:
    """Return the size of an ONNX model with its data file."""
    return sum(file.stat().st_size for file in (path, data_file(path)) if file.is_file())


def _in_float16(traced: Path) -> ModelProto:
    """Convert weights and arithmetic; operators without a float16 form keep float32 with casts around them."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with _quietly():  # Of weights that are rounded to 0; the differences are measured.
        return convert_float_to_float16(str(traced), keep_io_types=True)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence converters: warnings of the tracer on every shape, advice of ONNX Runtime to preprocess folded graphs."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def open_session(path: Path) -> InferenceSession:
    """Open an ONNX file with as many threads as PyTorch has, so that times can be compared.

    Raises:
        ModelError: if ONNX Runtime cannot run it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its exceptions have no common base.
        raise ModelError(f"ONNX Runtime cannot run '{path.name}': {shorten_error(error)}") from error


def session_runner(session: InferenceSession) -> Runner:
    """Return what runs a session on batches."""
    inputs = [tensor.name for tensor in session.get_inputs()]
    outputs = [tensor.name for tensor in session.get_outputs()]

    def run(batch: Batch) -> dict[str, Tensor]:
        values = session.run(outputs, {name: batch.inputs[name].numpy() for name in inputs})
        return {name: torch.from_numpy(value) for name, value in zip(outputs, values, strict=True)}

    return run


def session_pass(session: InferenceSession) -> Callable[..., Any]:
    """Return a function that runs a session on `input_ids` and `attention_mask`, so that it is timed as a model is."""
    names = [tensor.name for tensor in session.get_inputs()]

    def run(*, input_ids: Tensor, attention_mask: Tensor) -> Any:
        # Other inputs, such as segment ids, are zero.
        arrays = dict.fromkeys(names, torch.zeros_like(input_ids).numpy())
        arrays["input_ids"] = input_ids.numpy()
        arrays["attention_mask"] = attention_mask.numpy()
        return session.run(None, arrays)

    return run


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

    with _quietly():
        quantize_dynamic(
            full,
            path,
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=onnx_bytes(full) // 4 > LARGEST_FILE,
            extra_options={"MatMulConstBOnly": True},
        )


def needs_reduced_range(processor: Path = _PROCESSOR, machine: str | None = None) -> bool:
    """Whether 8-bit weights may saturate on this processor.

    x86 processors without VNNI add pairs of products in 16 bits, which overflows with full 8-bit weights; with 7 bits
    it cannot. Where the processor does not list its abilities, 7 bits are taken.

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


def measure_int8(
    source: LoadedModel, full: Path, path: Path, *, seconds: float, report: Report = no_progress
) -> dict[str, Any]:
    """Measure what int8 gains: sizes, and latency with both files alternating in this process.

    Args:
        source: The exported model.
        full: The model in float32.
        path: The model in int8.
        seconds: For all timings together; each case has five rounds anyway.
        report: Receives progress.

    Returns:
        `megabytes` of both, and `latency`, a row a batch size and length, with the milliseconds of both.
    """
    runs = {"float32": session_pass(open_session(full)), "int8": session_pass(open_session(path))}
    lengths = sorted({min(length, source.longest) for length in LATENCY_LENGTHS})
    cases = [(batch, length) for length in lengths for batch in LATENCY_BATCH_SIZES]
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index, (batch, length) in enumerate(cases):
        progress = part_of(report, index / len(cases), (index + 1) / len(cases))
        passes = time_passes(
            runs,
            torch.randint(source.model.config.vocab_size, (batch, length), generator=generator),
            seconds=seconds / len(cases),
            tell=tell_rounds(progress, f"latency, {batch} x {length} tokens"),
        )
        times = {name: wall_times(passes_of_file) for name, passes_of_file in passes.items()}
        row: dict[str, Any] = {
            "batch": batch,
            "length": length,
            "rounds": len(times["int8"]),
            "threads": torch.get_num_threads(),
        }
        for name, seconds_of_rounds in times.items():
            spread = summarise(seconds_of_rounds)
            row[f"{name}_ms"] = spread["median_ms"]
            row[f"{name}_p10_ms"] = spread["p10_ms"]
            row[f"{name}_p90_ms"] = spread["p90_ms"]
        row["speedup"] = speedup(times["float32"], times["int8"])
        rows.append(row)
    sizes = {"float32": onnx_bytes(full) / 1e6, "int8": onnx_bytes(path) / 1e6}
    return {"megabytes": sizes, "latency": rows}
