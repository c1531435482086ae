"""Comparing the folder of an export with its source, here or in a fresh process that knows nothing but the disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from limbeck.core.progress import Report, quietly
from limbeck.core.workers import settle_worker
from limbeck.errors import CorpusError
from limbeck.export.batches import make_batches, tokenise
from limbeck.export.differences import Differences, ExportMismatchError, measure_differences
from limbeck.export.formats import FORMATS, Format, folder_runner, sentence_settings, source_runner
from limbeck.export.outputs import input_names
from limbeck.export.sample_text import Text
from limbeck.export.source import Source, open_source
from limbeck.models.vocabulary import load_tokenizer


def compare_folder(
    source: Source, chosen: Format, folder: Path, texts: Sequence[Text], report: Report = quietly
) -> Differences:
    """Run source and export side by side on sample text; the export's own tokenizer has to read it alike.

    Args:
        source: What was exported.
        chosen: The format.
        folder: Of the export.
        texts: Sample text.
        report: Is told how far it is.

    Raises:
        ExportMismatchError: if the tokenizer that was saved splits a text differently.
        CorpusError: if no text has a token.
    """
    sentence = sentence_settings(chosen, source)
    names = input_names(source.model, source.tokenizer)
    saved = load_tokenizer(folder)
    before, after = (tokenise(tokenizer, texts, names, source.longest) for tokenizer in (source.tokenizer, saved))
    for text, ours, theirs in zip(texts, before, after, strict=True):
        if ours != theirs:
            raise ExportMismatchError(f"The exported tokenizer splits {text!r:.60} differently from the source's.")
    # sentence-transformers reads text, and pads it itself: on the right.
    padded_both_ways = chosen.name != "sentence-transformers"
    batches = make_batches(source.tokenizer, texts, names, source.longest, left=padded_both_ways)
    if not batches:
        raise CorpusError("The sample text has no token; give other text with --text FILE.")
    head = source.head if sentence is None else None
    return measure_differences(
        source_runner(source, sentence), folder_runner(chosen, folder, source, sentence), batches, head, report
    )


def compare_in_fresh_process(name: str, chosen: Format, folder: Path, texts: Sequence[Text]) -> Differences:
    """Do what `compare_folder` does in a new process that loads source and export from disk.

    Args:
        name: The source, as it was located.
        chosen: The format.
        folder: Of the export.
        texts: Sample text.

    Raises:
        ExportMismatchError: as in `compare_folder`, or if the process ends.
    """
    with ProcessPoolExecutor(
        max_workers=1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=settle_worker,
        initargs=(torch.get_num_threads(), None),
    ) as pool:
        try:
            return pool.submit(_compare, name, chosen.name, folder, list(texts)).result()
        except BrokenProcessPool as error:
            raise ExportMismatchError("The process that loaded the export ended; is there enough memory?") from error


def _compare(name: str, format_name: str, folder: Path, texts: Sequence[Text]) -> Differences:
    return compare_folder(open_source(name), FORMATS[format_name], folder, texts)
