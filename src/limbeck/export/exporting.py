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

from limbeck.core import exports, folders, paths, process_pools, progress, records
from limbeck.core.exports import Differences
from limbeck.core.files import atomic_folder
from limbeck.errors import CorpusError, RecipeError
from limbeck.export import batches, formats
from limbeck.export.batches import ExportMismatchError
from limbeck.export.request import DEFAULT_OPSET, DTYPES, ExportRequest, default_output
from limbeck.export.source import OutputModule, safe_copy
from limbeck.models import families, tokenizers
from limbeck.models.loaded import LoadedModel
from limbeck.models.locating import locate_model
from limbeck.models.router import Pair
from limbeck.models.sample_texts import Text, built_in_texts


def compare_folder(
    source: LoadedModel,
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
    both = (source.tokenizer, tokenizers.load_tokenizer(folder / chosen.tokenizer_folder))
    read = (batches.tokenise(tokenizer, texts, module.inputs, source.longest) for tokenizer in both)
    for text, ours, theirs in zip(texts, *read, strict=True):
        if ours != theirs:
            raise ExportMismatchError(f"The exported tokenizer splits {text!r:.60} differently from the source's.")
    sample = batches.make_batches(source.tokenizer, texts, module.inputs, source.longest, left=not chosen.reads_text)
    if not sample:
        raise CorpusError("The sample text has no tokens; give other text with --text FILE.")
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
        with process_pools.process_pool(1, "spawn", torch.get_num_threads()) as pool:
            return pool.submit(_compare, name, chosen, folder, list(texts)).result()
    except BrokenProcessPool as error:
        raise ExportMismatchError("The process that loaded the export ended; is there enough memory?") from error


def _compare(name: str, chosen: formats.Format, folder: Path, texts: Sequence[Text]) -> Differences:
    return compare_folder(chosen.open(name), chosen, folder, texts)


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
    request.check()
    chosen = formats.FORMATS[request.format] if request.documents is None else formats.Router(request.documents)
    dtype = request.dtype or DTYPES[request.format][0]
    check_packages(chosen.packages)
    located = locate_model(request.student)
    output = (request.output or default_output(located, chosen.name)).expanduser()
    report(0.0, f"Loading {located}")
    with safe_copy(located, output) if request.read_pickled else nullcontext(located) as readable:
        source = chosen.open(readable)
        named = replace(source, name=located)
        given, built_in = request.texts, built_in_texts(pairs=source.sentence is None)
        texts, few = (built_in, built_in) if given is None else (list(given), list(given[:CHECKED_TEXTS]))
        with folders.writing(output), atomic_folder(output, shared=True) as folder:
            options = formats.Writing(
                dtype, request.opset or DEFAULT_OPSET, few, request.seconds, progress.part_of(report, _LOADED, _WRITTEN)
            )
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


def _describe(
    source: LoadedModel,
    chosen: formats.Format,
    dtype: str,
    folder: Path,
    found: Differences,
    verified: Differences | None,
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
        **({"prompts": sentence.said_prompts} if sentence is not None and chosen.onnx_file else {}),
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
    return f"{folder.parent.name}/{folder.name}" if folder.name == paths.STUDENT else folder.name


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name.replace("-", "_")) is not None
