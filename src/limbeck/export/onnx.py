"""ONNX files: traced, checked and written in float32, float16 or int8, run in ONNX Runtime on the CPU, and timed."""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.errors import ModelError, shorten_error
from limbeck.evaluation.latency import measure_latency
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
    inputs = [found.name for found in session.get_inputs()]
    outputs = [found.name for found in session.get_outputs()]

    def run(batch: Batch) -> dict[str, Tensor]:
        values = session.run(outputs, {name: batch.inputs[name].numpy() for name in inputs})
        return {name: torch.from_numpy(value) for name, value in zip(outputs, values, strict=True)}

    return run


class SessionModule(nn.Module):
    """A session as a module, so that it is timed as any other model.

    Args:
        session: The session.
        config: Of its model.
    """

    def __init__(self, session: InferenceSession, config: PreTrainedConfig) -> None:
        super().__init__()
        self._session = session
        self._others = [found.name for found in session.get_inputs()]
        # A graph has no blocks to time by themselves, but a list of them is asked for.
        self.blocks = nn.ModuleList([nn.Identity()])
        self.config = SimpleNamespace(vocab_size=config.vocab_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Any]:
        """Run the session; its other inputs, such as segment ids, are zero.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`.
        """
        tensors = {"input_ids": input_ids, "attention_mask": attention_mask}
        feed = {name: tensors.get(name, torch.zeros_like(input_ids)).numpy() for name in self._others}
        return self._session.run(None, feed)


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
        `megabytes` of both, and `latency`, an entry a length, as `Latency` in plain values, the float32 file first.
    """
    sizes = {"float32": onnx_bytes(full) / 1e6, "int8": onnx_bytes(path) / 1e6}
    config = source.model.config
    modules = [SessionModule(open_session(file), config) for file in (full, path)]
    lengths = sorted({min(length, source.longest) for length in LATENCY_LENGTHS})
    rows = []
    for number, length in enumerate(lengths):
        here = part_of(report, number / len(lengths), (number + 1) / len(lengths))
        share = seconds / len(lengths)
        latency = measure_latency(*modules, batch_sizes=LATENCY_BATCH_SIZES, length=length, seconds=share, report=here)
        for batch in latency.batches:
            row = {"batch": batch.batch_size, "length": length, "rounds": batch.rounds, "threads": latency.threads}
            for name, times in (("float32", batch.teacher), ("int8", batch.student)):
                row |= {f"{name}_ms": times.median_ms, f"{name}_p10_ms": times.p10_ms, f"{name}_p90_ms": times.p90_ms}
            rows.append({**row, "speedup": batch.speedup})
    return {"megabytes": sizes, "latency": rows}
