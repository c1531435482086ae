"""`export_model`: a student in another format, compared with the student before its folder appears.

The folder appears whole or not at all, and replaces nothing but an earlier export. The *source* is the model that is
exported, and the *record* (`export.json`) is the file in the folder with the facts of the export.
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

from limbeck.core import exports, folders, process_pools, progress, records
from limbeck.core.exports import Differences
from limbeck.core.files import atomic_folder
from limbeck.errors import CorpusError, RecipeError
from limbeck.export.batches import make_batches, tokenise
from limbeck.export.differences import ExportMismatchError, decides, measure_differences
from limbeck.export.format import Format, FormatOptions
from limbeck.export.formats import FORMATS
from limbeck.export.outputs import OutputModule
from limbeck.export.request import ExportRequest, default_output
from limbeck.export.safe_copies import safe_copy
from limbeck.export.small_files import public_name
from limbeck.models import families
from limbeck.models.loaded import LoadedModel
from limbeck.models.locating import locate_model
from limbeck.models.sample_texts import Text, built_in_texts
from limbeck.models.tokenizers import load_tokenizer

Finish: TypeAlias = Callable[[Path, Mapping[str, Any]], None]
"""Called with an export's folder and its record."""
CHECKED_TEXTS = 32
"""Texts of the user on which every export is compared; `verify` compares on all of them."""

# The progress of an export, from 0 to 1, when loading, writing and comparing are done.
_LOADED = 0.1
_WRITTEN = 0.7
_COMPARED = 0.85
_COMPARED_ON_ROWS = 0.95
_PACKAGES = ("limbeck", "torch", "transformers", "onnx", "onnxruntime", "sentence-transformers")
"""Packages whose versions are in a record."""


@dataclass(frozen=True)
class Export:
    """The result of an export.

    Attributes:
        folder: The folder.
        record: The record, as in its `export.json`.
        files: Bytes of each of its files.
    """

    folder: Path
    record: dict[str, Any]
    files: dict[str, int]


def export_model(
    request: ExportRequest, *, finish: Finish | None = None, report: progress.Report = progress.no_progress
) -> Export:
    """Write a student in another format, and compare it with the student before the folder appears.

    The largest difference of every output on sample text of several lengths and paddings is always measured and is
    part of the record; one beyond the bound of the dtype (`limbeck.export.differences.BOUNDS`) is an error, and nothing
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
    request.check()
    export_format = FORMATS[request.format]
    check_packages(export_format.needs)
    located = locate_model(request.student)
    output = (request.output or default_output(located, export_format.name)).expanduser()
    options = replace(request.format_options, report=progress.part_of(report, _LOADED, _WRITTEN))

    report(0.0, f"Loading {located}")
    # Pickled weights, which may run code, are read from a copy of the model that has safetensors in their place.
    readable_model = safe_copy(located, output) if request.read_pickled else nullcontext(located)
    with readable_model as readable:
        source = export_format.open(readable, options)
        # The built-in texts are few, so that all of them are always compared.
        if request.texts is None:
            texts = built_in_texts(pairs=source.sentence is None)
            checked_texts = texts
        else:
            texts = list(request.texts)
            checked_texts = texts[:CHECKED_TEXTS]
        options = replace(options, texts=checked_texts)
        with folders.writing(output), atomic_folder(output, shared=True) as folder:
            options.report(0.0, f"Writing {export_format.name}")
            format_facts = export_format.write(source, folder, options)

            comparing = progress.part_of(report, _WRITTEN, _COMPARED)
            differences = compare_folder(source, export_format, folder, checked_texts, comparing)
            # Only the verification refuses a low quality of int8.
            export_format.check(differences, options.dtype, strict=False)
            held_out = None
            if request.held_out and decides(source.head):
                held_out = compare_folder(
                    source,
                    export_format,
                    folder,
                    request.held_out,
                    progress.part_of(report, _COMPARED, _COMPARED_ON_ROWS),
                    "Comparing on held-out rows",
                )
            verified = None
            if request.verify:
                report(_COMPARED_ON_ROWS, "Comparing again in a fresh process")
                verified = compare_in_fresh_process(readable, export_format, folder, replace(options, texts=texts))
                export_format.check(verified, options.dtype, strict=True)

            # The record names the model that the user gave, not the copy that `safe_copy` made of it. Facts of the
            # format come last, and replace common ones of the same name.
            values = _common_facts(replace(source, name=located), export_format, options.dtype, folder)
            values |= {"differences": differences, "verified": verified, "development": held_out}
            values |= format_facts
            export_record = exports.Export.read(values)
            records.save(export_record, folder)
            record = export_record.to_dict()
            if finish is not None:
                finish(folder, record)
    return Export(output, record, list_files(output))


def compare_folder(
    source: LoadedModel,
    export_format: Format,
    folder: Path,
    texts: Sequence[Text],
    report: progress.Report = progress.no_progress,
    what: str = "Comparing with the source",
) -> Differences:
    """Compare how source and export cut sample text into tokens, then measure the differences of their outputs on it.

    Args:
        source: The exported model, as the format opens it.
        export_format: The format.
        folder: The export's folder.
        texts: Sample text.
        report: Receives progress.
        what: The comparison in words, for lines of progress.

    Raises:
        ExportMismatchError: if the tokenizer that was saved splits a text differently.
        CorpusError: if no text has a token.
    """
    inputs = OutputModule(source).inputs
    source_rows = tokenise(source.tokenizer, texts, inputs, source.longest)
    exported_tokenizer = load_tokenizer(folder / export_format.tokenizer_folder)
    exported_rows = tokenise(exported_tokenizer, texts, inputs, source.longest)
    for text, source_row, exported_row in zip(texts, source_rows, exported_rows, strict=True):
        if source_row != exported_row:
            raise ExportMismatchError(
                f"The exported tokenizer splits {text!r:.60} differently from the source's, so the export is "
                "refused; please report the model."
            )

    # A format that is run on text pads it by its own library, always on the right.
    pads_left = not export_format.reads_text
    batches = make_batches(source.tokenizer, texts, inputs, source.longest, left=pads_left)
    if not batches:
        raise CorpusError("The sample text has no tokens; give other text with --text FILE.")
    run_source = export_format.reference(source)
    run_export = export_format.runner(source, folder)
    return measure_differences(run_source, run_export, batches, source.head, report, what)


def compare_in_fresh_process(name: str, export_format: Format, folder: Path, options: FormatOptions) -> Differences:
    """Do what `compare_folder` does in a new process that loads source and export from disk.

    Args:
        name: The source, as it was located.
        export_format: The format.
        folder: The export's folder.
        options: Options of the export, with all of the text.

    Raises:
        ExportMismatchError: as in `compare_folder`, or if the process ends.
    """
    options = replace(options, report=progress.no_progress)
    try:
        with process_pools.process_pool(1, "spawn", torch.get_num_threads()) as pool:
            return pool.submit(_compare, name, export_format.name, folder, options).result()
    except BrokenProcessPool as error:
        raise ExportMismatchError(
            "The process that loaded the export ended before its comparison, perhaps because memory ran out; free "
            "some memory and export again."
        ) from error


def _compare(name: str, format_name: str, folder: Path, options: FormatOptions) -> Differences:
    """Load an export and its source, and compare them; this runs in the new process."""
    export_format = FORMATS[format_name]
    source = export_format.open(name, options)
    return compare_folder(source, export_format, folder, options.texts)


def list_files(folder: Path) -> dict[str, int]:
    """Return the bytes of every file below a folder, by relative name in order."""
    bytes_by_name = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bytes_by_name[path.relative_to(folder).as_posix()] = path.stat().st_size
    return bytes_by_name


def check_packages(names: Sequence[str]) -> None:
    """Refuse to begin without the packages of a format.

    Raises:
        RecipeError: naming the extra.
    """
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RecipeError(
            f'This format needs {" and ".join(missing)}, which {verb} not installed: pip install "limbeck[export]"'
        )


def _common_facts(source: LoadedModel, export_format: Format, dtype: str, folder: Path) -> dict[str, Any]:
    """Return the part of the record that all formats have."""
    pooling = None
    normalize = None
    if source.sentence is not None:
        pooling = source.sentence.pooling
        normalize = source.sentence.normalize
    weight_bytes = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    return {
        "format": export_format.name,
        "dtype": dtype,
        "source": public_name(source.name),
        "shape": str(families.shape_of(source.model.config)),
        "head": source.head,
        "pooling": pooling,
        "normalize": normalize,
        "longest": source.longest,
        "megabytes": weight_bytes / 1e6,
        "created": records.timestamp(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if _is_installed(name)},
    }


def _is_installed(name: str) -> bool:
    """Whether a package is installed, by the name of its distribution or of its module."""
    return importlib.util.find_spec(name.replace("-", "_")) is not None
