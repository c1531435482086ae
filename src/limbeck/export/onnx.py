"""ONNX files: traced, checked and written in float32 or float16, and run in ONNX Runtime on the CPU.

A model is *traced* by running it once on an example, while its operators are recorded as a graph.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from limbeck.errors import ModelError, shorten_error
from limbeck.export.batches import Batch, Runner
from limbeck.export.outputs import OutputModule, is_per_token

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession


LARGEST_FILE = 2_000_000_000
"""Most bytes of a graph with its weights; protobuf ends at 2 GiB, so heavier weights get a file beside the graph."""
_ERRORS_ALONE = 3
"""The level of ONNX Runtime's log at which only errors are shown."""


def write_onnx(
    module: OutputModule,
    example: Batch,
    path: Path,
    *,
    opset: int,
    dtype: str = "float32",
    largest: int = LARGEST_FILE,
) -> None:
    """Trace a model and write its graph, for any batch size and length.

    PyTorch has two exporters. The tracing one is used: it needs no further package, is the only one that all supported
    versions of PyTorch have, and gives smaller files in a tenth of the time of the one on `torch.export`. A trace may
    take a shape for constant by mistake, which shows when outputs are compared at other lengths.

    Args:
        module: The model, in float32 and eval mode.
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
    with TemporaryDirectory(dir=path.parent) as scratch:
        traced = Path(scratch) / "traced.onnx"
        try:
            _trace(module, example, traced, opset=opset)
            graph = onnx.load(str(traced)) if dtype == "float32" else _in_float16(traced)
        except Exception as error:  # A tracer raises whatever the model's own code raises.
            raise ModelError(
                f"The family {family} cannot be written as ONNX with this PyTorch: {shorten_error(error)}"
            ) from error

    # Heavy weights are split off into a file of their own.
    weight_bytes = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
    is_split = weight_bytes >= largest
    onnx.save(graph, str(path), save_as_external_data=is_split, location=data_file(path).name)
    try:
        # The checker cannot check a split model in full.
        onnx.checker.check_model(str(path), full_check=not is_split)
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"PyTorch wrote an invalid ONNX file of the family {family}; please report the model: "
            f"{shorten_error(error)}"
        ) from error


def data_file(path: Path) -> Path:
    """Return where the weights of a large model are, under the name that Optimum fetches."""
    return path.with_name(path.name + "_data")


def onnx_bytes(path: Path) -> int:
    """Return the size of an ONNX model with its data file."""
    return sum(file.stat().st_size for file in (path, data_file(path)) if file.is_file())


def open_session(path: Path) -> InferenceSession:
    """Open an ONNX file with as many threads as PyTorch has, so that times can be compared.

    Raises:
        ModelError: if ONNX Runtime cannot run it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = _ERRORS_ALONE
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its exceptions have no common base.
        raise ModelError(f"ONNX Runtime cannot run '{path.name}': {shorten_error(error)}") from error


def session_runner(session: InferenceSession) -> Runner:
    """Return a function that runs a session on batches."""
    input_names = [tensor.name for tensor in session.get_inputs()]
    output_names = [tensor.name for tensor in session.get_outputs()]

    def run(batch: Batch) -> dict[str, Tensor]:
        arrays = session.run(output_names, {name: batch.inputs[name].numpy() for name in input_names})
        return {name: torch.from_numpy(array) for name, array in zip(output_names, arrays, strict=True)}

    return run


@contextmanager
def quiet_converters() -> Iterator[None]:
    """Silence Python's warnings, and logs up to warnings, while a model is traced or converted.

    PyTorch's tracer warns at every use of a shape, and ONNX Runtime advises to preprocess the graph, which is not
    needed for one whose constants are folded.
    """
    # Logging is disabled for the whole process, up to a level; that of before is restored at the end.
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(previous_level)


def _trace(module: OutputModule, example: Batch, path: Path, *, opset: int) -> None:
    """Write the graph of a model in float32, with its weights.

    Args:
        module: The model.
        example: The batch that the model runs on for the trace.
        path: The file.
        opset: Operator set.
    """
    # Names of the axes that may have any size, by input or output and by the axis's number.
    axes = {name: {0: "batch"} for name in (*module.inputs, *module.outputs)}
    for name in axes:
        if name in module.inputs or is_per_token(name, module.head):
            axes[name][1] = "length"
    with quiet_converters(), torch.no_grad():
        torch.onnx.export(
            module,
            tuple(example.inputs[name] for name in module.inputs),
            str(path),
            input_names=list(module.inputs),
            output_names=list(module.outputs),
            dynamic_axes=axes,
            opset_version=opset,
            dynamo=False,
        )


def _in_float16(traced: Path) -> ModelProto:
    """Return a traced graph with weights and arithmetic in float16; its inputs and outputs stay as they are.

    Operators without a float16 form keep float32, with casts around them.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    # The converter warns of weights that are rounded to 0. The effect of that is measured with the differences.
    with quiet_converters():
        return convert_float_to_float16(str(traced), keep_io_types=True)
