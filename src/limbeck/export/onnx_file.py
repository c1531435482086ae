"""Writing a model as one ONNX file: traced, checked, in float32 or float16, beyond 2 GB with its weights beside it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch

from limbeck.errors import ModelError, RecipeError
from limbeck.export.batches import Batch
from limbeck.export.outputs import SENTENCE, OutputModule, is_per_token
from limbeck.export.source import ExportHead
from limbeck.models.loading import one_line

if TYPE_CHECKING:
    from onnx import ModelProto

DEFAULT_OPSET, OPSETS = 17, range(14, 21)
"""The operator set of ONNX: 17 has LayerNormalization; 20 is the last that PyTorch's tracer writes."""
LARGEST_FILE = 2_000_000_000
"""Bytes; protobuf ends at 2 GiB, so heavier weights go into a file beside the graph."""
ONNX_DTYPES = ("float32", "float16")


def check_opset(opset: int) -> None:
    """Refuse an operator set that cannot be written.

    Raises:
        RecipeError: with the range.
    """
    if opset not in OPSETS:
        raise RecipeError(f"--opset {opset} is not one of {OPSETS.start} to {OPSETS.stop - 1}; leave it out for 17.")


def write_onnx(
    module: OutputModule,
    example: Batch,
    head: ExportHead | None,
    path: Path,
    *,
    opset: int = DEFAULT_OPSET,
    dtype: str = "float32",
    largest: int = LARGEST_FILE,
) -> None:
    """Trace a model and write it, with free batch and length axes.

    The graph comes from PyTorch's tracing exporter: it needs no further package, gives smaller files in a tenth of the
    time than the one on `torch.export`, and is the only one that all supported versions of PyTorch have. What a trace
    can get wrong, a shape that it takes for constant, shows when outputs are compared at other lengths.

    Args:
        module: In float32 and eval mode.
        example: What it is traced with: two rows or more, so that no axis has one entry.
        head: The module's head.
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
            with _without_noise(), torch.no_grad():
                torch.onnx.export(
                    module,
                    tuple(example.inputs[name] for name in module.inputs),
                    str(traced),
                    input_names=list(module.inputs),
                    output_names=list(module.outputs),
                    dynamic_axes=_free_axes(module, head),
                    opset_version=opset,
                    dynamo=False,
                )
            graph = onnx.load(str(traced)) if dtype == "float32" else _in_float16(traced)
        except Exception as error:  # A tracer raises whatever the model's own code raises.
            raise ModelError(
                f"The family {family} cannot be written as ONNX with this PyTorch: {one_line(error)}"
            ) from error
    _save(graph, path, largest)
    try:
        onnx.checker.check_model(str(path), full_check=not _has_data_file(path))
    except onnx.checker.ValidationError as error:
        raise ModelError(f"The ONNX file of the family {family} is not valid: {one_line(error)}") from error


def data_file(path: Path) -> Path:
    """Return where the weights of a large model are, under the name that Optimum fetches."""
    return path.with_name(path.name + "_data")


def onnx_bytes(path: Path) -> int:
    """Return the size of an ONNX model with its data file."""
    return sum(file.stat().st_size for file in (path, data_file(path)) if file.is_file())


def _free_axes(module: OutputModule, head: ExportHead | None) -> dict[str, dict[int, str]]:
    axes = {name: {0: "batch", 1: "length"} for name in module.inputs}
    for name in module.outputs:
        axes[name] = {0: "batch", 1: "length"} if is_per_token(name, head) and name != SENTENCE else {0: "batch"}
    return axes


def _in_float16(traced: Path) -> ModelProto:
    """Convert weights and arithmetic; operators without a float16 form keep float32 with casts around them."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with _without_noise():  # Of weights that are rounded to 0; the differences are measured.
        return convert_float_to_float16(str(traced), keep_io_types=True)


def _save(graph: ModelProto, path: Path, largest: int) -> None:
    import onnx

    weights = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
    if weights < largest:
        onnx.save(graph, str(path))
        return
    onnx.save(graph, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=data_file(path).name)


def _has_data_file(path: Path) -> bool:
    return data_file(path).is_file()


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silence the tracer: every shape that transformers looks at gives a warning, and the exporter calls itself old."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
