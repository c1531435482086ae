"""`export_model`: a student in another format, compared with the student before its folder appears.

The folder appears whole or not at all, and replaces nothing but an earlier export.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch

from limbeck.core import exports, folders, progress, records, workers
from limbeck.core.exports import Differences
from limbeck.core.files import atomic_folder
from limbeck.errors import CorpusError, OutputError, RecipeError
from limbeck.export import batches, formats, onnx
from limbeck.export.batches import ExportMismatchError, Text
from limbeck.export.router import Pair
from limbeck.export.source import OutputModule, Source, locate, safe_copy
from limbeck.models import families, loading, locating


def compare_folder(
    source: Source,
    chosen: formats.Format,
    folder: Path,
    texts: Sequence[Text],
    report: progress.Report = progress.no_progress,
) -> Differences:
    """Run source and export side by side on sample text; the export's own tokenizer has to read it alike.

    Args:
        source: The exported model, as the format opens it.
        chosen: The format.
        folder: Of the export.
        texts: Sample text.
        report: Receives progress.

    Raises:
        ExportMismatchError: if the tokenizer that was saved splits a text differently.
        CorpusError: if no text has a token.
    """
    module = OutputModule(source)
    tokenizers = (source.tokenizer, loading.load_tokenizer(folder / chosen.tokenizer_folder))
    read = (batches.tokenise(tokenizer, texts, module.inputs, source.longest) for tokenizer in tokenizers)
    for text, ours, theirs in zip(texts, *read, strict=True):
        if ours != theirs:
            raise ExportMismatchError(f"The exported tokenizer splits {text!r:.60} differently from the source's.")
    sample = batches.make_batches(source.tokenizer, texts, module.inputs, source.longest, left=not chosen.reads_text)
    if not sample:
        raise CorpusError("The sample text has no token; give other text with --text FILE.")
    runners = chosen.reference(source), chosen.runner(source, folder)
    return batches.measure_differences(*runners, sample, source.head, report)


def compare_in_fresh_process(name: str, chosen: formats.Format, folder: Path, texts: Sequence[Text]) -> Differences:
    """Do what `compare_folder` does in a new process that loads source and export from disk.

    Args:
        name: The source, as it was located.
        chosen: The format.
        folder: Of the export.
        texts: Sample text.

    Raises:
        ExportMismatchError: as in `compare_folder`, or if the process ends.
    """
    try:
        with workers.process_pool(1, "spawn", torch.get_num_threads()) as pool:
            return pool.submit(_compare, name, chosen, folder, list(texts)).result()
    except BrokenProcessPool as error:
        raise ExportMismatchError("The process that loaded the export ended; is there enough memory?") from error


def _compare(name: str, chosen: formats.Format, folder: Path, texts: Sequence[Text]) -> Differences:
    return compare_folder(chosen.open(name), chosen, folder, texts)


def default_output(located: str, export_format: str) -> Path:
    """Return where an export goes by default: beside the model's folder, or here for a package or a Hub name.

    Args:
        located: The model, as `limbeck.export.source.locate` gives it.
        export_format: Name of the format.
    """
    folder = Path(located).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        return folder.with_name(f"{folder.name}-{export_format}")
    return Path(f"{located.removeprefix(locating.PACKAGE_PREFIX).replace('/', '-')}-{export_format}")


def check_output(output: Path, source: str, *, overwrite: bool) -> None:
    """Refuse a folder that must not be written, before anything is computed.

    Args:
        output: The export's folder.
        source: The model, as it was located; never replaced.
        overwrite: An earlier export may be replaced.

    Raises:
        OutputError: for a file, a folder that holds something, or one that the source is in.
    """
    output = output.expanduser()
    if output.exists() and not output.is_dir():
        raise OutputError(f"Output '{output}' is a file; give a folder.")
    origin = Path(source).expanduser().resolve()
    if origin.is_dir() and origin.is_relative_to(output.resolve()):
        raise OutputError(f"Output '{output}' holds the model that is exported; choose another folder.")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / exports.Export.FILE).is_file():
        raise OutputError(f"Output folder '{output}' is not empty and holds no export; choose an empty or new folder.")
    if not overwrite:
        raise OutputError(f"Output folder '{output}' holds an export; replace it with --overwrite, or choose another.")


def list_files(folder: Path) -> dict[str, int]:
    """Return the bytes of every file below a folder, by relative name in order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


Finish: TypeAlias = Callable[[Path, Mapping[str, Any]], None]
CHECKED_TEXTS = 32
"""Texts of the check that every export has; `verify` takes all."""
# Shares of the progress.
_LOADED, _WRITTEN, _COMPARED = 0.1, 0.7, 0.85
_PACKAGES = ("limbeck", "torch", "transformers", "onnx", "onnxruntime", "sentence-transformers")


@dataclass(frozen=True)
class Export:
    """The result of an export.

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
    """The request of an export.

    Attributes:
        student: A run's folder, a model's folder, `package:NAME` or a Hub name.
        format: `"onnx"`, `"onnx-int8"`, `"sentence-transformers"`, `"router"` or `"safetensors"`.
        output: The folder; None is beside the model's, see `default_output`.
        dtype: Of the weights; None is the format's own.
        opset: Operator set of ONNX; None is 17.
        texts: Sample text to compare on; None is the built-in one.
        verify: Compare in a fresh process too, on all of the text.
        overwrite: Replace an earlier export.
        seconds: For the latencies of int8.
        read_pickled: The weights are pickles, and are read as `limbeck.export.source.safe_copy` says.
        documents: Of a router, the model for documents; None takes the teacher that the student's run names.
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
    read_pickled: bool = False
    documents: str | None = None


def export_model(
    request: ExportRequest, *, finish: Finish | None = None, report: progress.Report = progress.no_progress
) -> Export:
    """Write a student in another format, and compare it with the student before the folder appears.

    The largest difference of every output on sample text of several lengths and paddings is always measured and is
    part of the record; one beyond the bound of the dtype (`limbeck.export.batches.BOUNDS`) is an error, and nothing
    is left. int8 has no such bound: its quality is measured, and only `verify` refuses too little.

    Args:
        request: The request.
        finish: Called with the folder and its record when all else is in it, to write a model card.
        report: Receives progress.

    Raises:
        RecipeError: for an unknown format, a dtype or operator set that does not go with it, or a missing package.
        ModelError: if the student cannot be loaded, or its family not be converted.
        OutputError: if the folder must not be written.
        ExportMismatchError: if the outputs of the export are not those of the student.
    """
    chosen = formats.choose_format(request.format, request.documents)
    dtype = formats.choose_dtype(chosen, request.dtype)
    opset = _choose_opset(chosen, request.opset)
    check_packages(chosen.packages)
    located = locate(request.student)
    output = (request.output or default_output(located, chosen.name)).expanduser()
    check_output(output, located, overwrite=request.overwrite)
    report(0.0, f"Loading {located}")
    with safe_copy(located, output) if request.read_pickled else nullcontext(located) as readable:
        source = chosen.open(readable)
        named = replace(source, name=located)
        given, built_in = request.texts, batches.built_in_texts(pairs=source.sentence is None)
        texts, few = (built_in, built_in) if given is None else (list(given), list(given[:CHECKED_TEXTS]))
        with folders.writing(output), atomic_folder(output, shared=True) as folder:
            options = formats.Writing(dtype, opset, few, request.seconds, progress.part_of(report, _LOADED, _WRITTEN))
            options.report(0.0, f"Writing {chosen.name}")
            facts = chosen.write(source, folder, options)
            found = compare_folder(source, chosen, folder, few, progress.part_of(report, _WRITTEN, _COMPARED))
            chosen.check(found, dtype, strict=False)
            verified = None
            if request.verify:
                report(_COMPARED, "Comparing again in a fresh process")
                verified = compare_in_fresh_process(readable, chosen, folder, texts)
                chosen.check(verified, dtype, strict=True)
            saved = exports.Export.read(_describe(named, chosen, dtype, folder, found, verified) | facts)
            records.save(saved, folder)
            record = saved.to_dict()
            if finish is not None:
                finish(folder, record)
    return Export(output, record, list_files(output))


def check_packages(names: Sequence[str]) -> None:
    """Refuse to begin without the packages of a format.

    Raises:
        RecipeError: naming the extra.
    """
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise RecipeError(
            f'This format needs {" and ".join(missing)}, which {are} not installed: pip install "limbeck[export]"'
        )


def _choose_opset(chosen: formats.Format, opset: int | None) -> int:
    if opset is not None:
        if not chosen.onnx_file:
            raise RecipeError(f"--opset is for ONNX, not for --format {chosen.name}; leave it out.")
        if opset not in onnx.OPSETS:
            first, last = onnx.OPSETS[0], onnx.OPSETS[-1]
            raise RecipeError(f"--opset {opset} is not one of {first} to {last}; leave it out for 17.")
    return opset or onnx.DEFAULT_OPSET


def _describe(
    source: Source, chosen: formats.Format, dtype: str, folder: Path, found: Differences, verified: Differences | None
) -> dict[str, Any]:
    """Return the part of the record that all formats have."""
    sentence = source.sentence
    return {
        "format": chosen.name,
        "file": chosen.onnx_file or None,
        "dtype": dtype,
        "source": _public_name(source.name),
        **({"documents": _public_name(source.documents.name)} if isinstance(source, Pair) else {}),
        "shape": str(families.shape_of(source.model.config)),
        "head": source.head,
        "pooling": None if sentence is None else sentence.pooling,
        "normalize": None if sentence is None else sentence.normalize,
        "longest": source.longest,
        "megabytes": sum(size for name, size in list_files(folder).items() if name.endswith(".safetensors")) / 1e6,
        "differences": found,
        "verified": verified,
        "created": records.timestamp(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if _is_installed(name)},
    }


def _public_name(located: str) -> str:
    """Name the source without the folders of this machine: the record is made to be published."""
    folder = Path(located).expanduser()
    if not folder.is_dir():
        return located
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if folder.name == records.RUN_STUDENT else folder.name


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name.replace("-", "_")) is not None
