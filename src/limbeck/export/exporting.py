"""`export_model`: from a student to a folder in another format, measured against the student before it appears."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from limbeck.core.progress import Report, part_of, quietly
from limbeck.errors import RecipeError
from limbeck.export.batches import make_batches
from limbeck.export.comparing import compare_folder, compare_in_fresh_process
from limbeck.export.differences import (
    Differences,
    check_differences,
    check_int8_quality,
    measure_differences,
)
from limbeck.export.formats import (
    Format,
    choose_dtype,
    choose_format,
    output_module,
    sentence_settings,
    source_runner,
    write_small_files,
    write_weights,
)
from limbeck.export.onnx_file import DEFAULT_OPSET, check_opset, onnx_bytes, write_onnx
from limbeck.export.onnx_session import open_session, session_runner
from limbeck.export.output import check_output, default_output, list_files, whole_folder, write_record
from limbeck.export.quantising import measure_int8, needs_reduced_range, quantise
from limbeck.export.sample_text import Text, built_in_texts
from limbeck.export.source import RUN_STUDENT, Source, locate, open_source
from limbeck.models.families import shape_of

Finish: TypeAlias = Callable[[Path, Mapping[str, Any]], None]
CHECKED_TEXTS = 32
"""Texts of the check that every export has; `verify` takes all."""
# Shares of the progress: of the whole, then of the writing of int8.
_LOADED, _WRITTEN, _COMPARED = 0.1, 0.7, 0.85
_TRACED, _QUANTISED = 0.2, 0.4
_PACKAGES = ("limbeck", "torch", "transformers", "onnx", "onnxruntime", "sentence-transformers")


@dataclass(frozen=True)
class Export:
    """What an export leaves.

    Attributes:
        folder: The folder.
        record: As in its `export.json`.
        files: Bytes of each of its files.
    """

    folder: Path
    record: dict[str, Any]
    files: dict[str, int]


@dataclass(frozen=True)
class ExportRequest:
    """What is asked for.

    Attributes:
        student: A run's folder, a model's folder, `package:NAME` or a Hub name.
        format: `"onnx"`, `"onnx-int8"`, `"sentence-transformers"` or `"safetensors"`.
        output: The folder; None is beside the model's, see `default_output`.
        dtype: Of the weights; None is the format's own.
        opset: Operator set of ONNX; None is 17.
        texts: Sample text to compare on; None is the built-in one.
        verify: Compare in a fresh process too, on all of the text.
        overwrite: Replace an earlier export.
        seconds: For the latencies of int8.
    """

    student: str
    format: str
    output: Path | None = None
    dtype: str | None = None
    opset: int | None = None
    texts: Sequence[Text] | None = None
    verify: bool = False
    overwrite: bool = False
    seconds: float = 20.0


def export_model(request: ExportRequest, *, finish: Finish | None = None, report: Report = quietly) -> Export:
    """Write a student in another format, and compare it with the student before the folder appears.

    The largest difference of every output on sample text of several lengths and paddings is always measured and is
    part of the record; one beyond the bound of the dtype (`limbeck.export.differences.BOUNDS`) is an error, and nothing
    is left. int8 has no such bound: what it keeps is measured, and only `verify` refuses too little.

    Args:
        request: What is asked for.
        finish: Called with the folder and its record when all else is in it, to write a model card.
        report: Is told what is being done.

    Raises:
        RecipeError: for an unknown format, a dtype or operator set that does not go with it, or a missing package.
        ModelError: if the student cannot be loaded, or its family not be converted.
        OutputError: if the folder must not be written.
        ExportMismatchError: if the export does not give what the student gives.
    """
    chosen = choose_format(request.format)
    dtype = choose_dtype(chosen, request.dtype)
    opset = _choose_opset(chosen, request.opset)
    check_packages(chosen.packages)
    located = locate(request.student)
    output = request.output or default_output(located, chosen.name)
    check_output(output, located, overwrite=request.overwrite)
    report(0.0, f"Loading {located}")
    source = open_source(located)
    sentence = sentence_settings(chosen, source)
    texts = list(request.texts) if request.texts is not None else built_in_texts(pairs=sentence is None)
    few = texts if request.texts is None else texts[:CHECKED_TEXTS]
    with whole_folder(output) as folder:
        facts = _write(source, chosen, folder, dtype, opset, few, request.seconds, part_of(report, _LOADED, _WRITTEN))
        found = compare_folder(source, chosen, folder, few, part_of(report, _WRITTEN, _COMPARED))
        _check(found, dtype, strict=False)
        verified = None
        if request.verify:
            report(_COMPARED, "Comparing again in a fresh process")
            verified = compare_in_fresh_process(located, chosen, folder, texts)
            _check(verified, dtype, strict=True)
        record = _describe(source, chosen, dtype, folder, found, verified) | facts
        write_record(folder, record)
        if finish is not None:
            finish(folder, record)
    return Export(output.expanduser(), record, list_files(output.expanduser()))


def check_packages(names: Sequence[str]) -> None:
    """Refuse to begin without the packages of a format.

    Raises:
        RecipeError: naming the extra.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise RecipeError(
            f'This format needs {" and ".join(missing)}, which {are} not installed: pip install "limbeck[export]"'
        )


def _choose_opset(chosen: Format, opset: int | None) -> int:
    if opset is not None:
        if chosen.onnx_file is None:
            raise RecipeError(f"--opset is for ONNX, not for --format {chosen.name}; leave it out.")
        check_opset(opset)
    return opset or DEFAULT_OPSET


def _write(
    source: Source,
    chosen: Format,
    folder: Path,
    dtype: str,
    opset: int,
    texts: Sequence[Text],
    seconds: float,
    report: Report,
) -> dict[str, Any]:
    """Write the files of a format, and return what else is known of them."""
    report(0.0, f"Writing {chosen.name}")
    sentence = sentence_settings(chosen, source)
    if chosen.onnx_file is None:
        write_weights(source, folder, dtype, sentence)
        return {}
    write_small_files(source, folder, sentence)
    path = chosen.path(folder)
    path.parent.mkdir()
    module = output_module(source, sentence)
    batches = make_batches(source.tokenizer, texts, module.inputs, source.longest)
    head = source.head if sentence is None else None
    # Not of the given texts, which may be one: a trace takes an axis of one entry for constant.
    own = make_batches(source.tokenizer, built_in_texts(pairs=False), module.inputs, source.longest)
    example = max(own, key=lambda batch: len(batch.texts))
    facts = {"opset": opset, "inputs": list(module.inputs), "outputs": list(module.outputs)}
    if chosen.name == "onnx":
        write_onnx(module, example, head, path, opset=opset, dtype=dtype)
        return facts | {"megabytes": onnx_bytes(path) / 1e6}
    with TemporaryDirectory(dir=folder) as scratch:
        full = Path(scratch) / "model.onnx"
        write_onnx(module, example, head, full, opset=opset)
        # A wrong graph must not pass as the error of 8 bits.
        exact = measure_differences(source_runner(source, sentence), session_runner(open_session(full)), batches, head)
        check_differences(exact, "float32")
        reduced = needs_reduced_range()
        report(_TRACED, "Quantising")
        quantise(full, path, reduce_range=reduced)
        measured = measure_int8(source, full, path, seconds=seconds, report=part_of(report, _QUANTISED, 1.0))
    return facts | {"megabytes": onnx_bytes(path) / 1e6, "weight_bits": 7 if reduced else 8, "int8": measured}


def _check(found: Differences, dtype: str, *, strict: bool) -> None:
    if dtype != "int8":
        check_differences(found, dtype)
    elif strict:
        check_int8_quality(found)


def _describe(
    source: Source, chosen: Format, dtype: str, folder: Path, found: Differences, verified: Differences | None
) -> dict[str, Any]:
    """What every export's record holds."""
    sentence = sentence_settings(chosen, source)
    return {
        "format": chosen.name,
        "file": chosen.onnx_file,
        "dtype": dtype,
        "source": _public_name(source.name),
        "shape": str(shape_of(source.model.config)),
        "head": source.head if sentence is None else None,
        "pooling": None if sentence is None else sentence.pooling,
        "normalize": None if sentence is None else sentence.normalize,
        "longest": source.longest,
        "megabytes": sum(size for name, size in list_files(folder).items() if name.endswith(".safetensors")) / 1e6,
        "differences": found.to_dict(),
        "verified": None if verified is None else verified.to_dict(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
    }


def _public_name(located: str) -> str:
    """Name the source without the folders of this machine: the record is made to be published."""
    folder = Path(located).expanduser()
    if not folder.is_dir():
        return located
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if folder.name == RUN_STUDENT else folder.name


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        if importlib.util.find_spec(name.replace("-", "_")) is not None:
            found[name] = importlib.metadata.version(name)
    return found
