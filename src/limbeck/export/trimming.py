"""`trim_model`: a model folder with fewer pieces in its vocabulary, those that a text uses, and what that costs.

Nothing is trained: the rows of the embeddings that stay are those of the model, and so is all else.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.core import folders, progress, records
from limbeck.core.files import atomic_folder
from limbeck.core.permissions import give_ordinary_mode
from limbeck.core.trims import SourceCosts, Trim
from limbeck.errors import CorpusError, ModelError, OutputError
from limbeck.export.small_files import public_name, write_small_files
from limbeck.export.trim_measures import measure_costs, measure_outputs
from limbeck.models.heads import unknown_head
from limbeck.models.loaded import LoadedModel, open_model
from limbeck.models.loading import load_config, load_model
from limbeck.models.piece_choice import PieceAim, PieceCounts, choose_pieces
from limbeck.models.quiet import quiet
from limbeck.models.vocabulary_cut import CutTokenizer, Pieces
from limbeck.models.vocabulary_rows import cut_rows
from limbeck.models.weight_files import fetch_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

HELD_OUT_EVERY = 20
"""One text in so many is not counted, so that costs are measured on texts that the choice of pieces has not seen."""
MOST_HELD_OUT = 200
"""Most held-out texts of a source; the others are counted."""
MOST_COMPARED = 200
"""Most held-out texts on which outputs are compared."""
_PACKAGES = ("limbeck", "torch", "transformers", "tokenizers")
"""Packages whose versions are in a record."""

_COUNTED = 0.6
"""The progress of a trim once its text is counted, from 0 to 1."""
_WRITTEN = 0.8
"""Its progress once the model is written."""
Finish = Callable[[Path, Trim], None]
"""Called with the folder and its record when all else is in it, to write a model card."""


@dataclass(frozen=True)
class NamedTexts:
    """The texts of a source.

    Attributes:
        name: Name of the source.
        texts: The texts, which are read once.
    """

    name: str
    texts: Iterable[str]


def check_output(output: Path) -> None:
    """Refuse a folder that must not be written, before anything is computed.

    Args:
        output: The folder.

    Raises:
        OutputError: for a file, and for a folder that holds something.
    """
    if output.exists() and not output.is_dir():
        raise OutputError(f"Output '{output}' is a file; give a folder.")
    if output.is_dir() and any(output.iterdir()):
        raise OutputError(f"Output folder '{output}' is not empty; choose an empty or new folder.")


def trim_model(
    name: str,
    sources: Iterable[NamedTexts],
    aim: PieceAim,
    output: Path,
    *,
    check: bool = False,
    finish: Finish | None = None,
    report: progress.Report = progress.no_progress,
) -> Trim:
    """Write a model with the pieces that some texts use most, and measure what that costs.

    Args:
        name: A run's folder, a model's folder, `package:NAME` or a Hub name.
        sources: The texts.
        aim: How many pieces stay.
        output: The folder, which appears whole or not at all.
        check: Compare the outputs of both models on held-out texts.
        finish: Called before the folder appears.
        report: Receives progress.

    Returns:
        The record, as in the `trim.json` of the folder.

    Raises:
        ModelError: for a model that cannot be loaded or has an unknown head, a tokenizer that cannot be cut, and a
            wrong number of pieces.
        CorpusError: for texts that are too few to hold some out for a check.
        OutputError: for a folder that must not be written.
    """
    check_output(output)
    report(0.0, f"Loading {name}")
    source = open_model(name)
    _check_head(source)
    pieces = Pieces(source.tokenizer)

    counted = _count_texts(source, sources, progress.part_of(report, 0.0, _COUNTED))
    # The ids of the pieces that stay: some always do (`Pieces.staying`), and the others are chosen by their counts.
    chosen_pieces = choose_pieces(pieces, source.tokenizer, counted.counts, _with_prompts(aim, source))
    cut = pieces.cut(chosen_pieces)
    held_out = [text for texts in counted.held_out for text in texts]
    if check and not held_out:
        raise CorpusError(
            f"The text has fewer than {HELD_OUT_EVERY} paragraphs, so none can be held out for --check, which "
            "compares outputs; give more text, or leave out --check."
        )
    measure_costs(source.tokenizer, cut.tokenizer, counted.held_out, counted.costs)

    with folders.writing(output), atomic_folder(output, shared=True) as folder:
        report(_COUNTED, "Writing the model")
        parameters_before, parameters = _write_model(source, cut, folder)
        record = Trim(
            source=public_name(source.name),
            kind=pieces.kind,
            pieces_before=len(pieces.names),
            pieces=len(cut.old_ids),
            staying=len(pieces.staying),
            parameters_before=parameters_before,
            parameters=parameters,
            megabytes_before=_megabytes(fetch_weights(source.name, source.revision)),
            megabytes=_megabytes(fetch_weights(folder, revision=None)),
            costs=counted.costs,
            created=records.timestamp(),
            versions={package: importlib.metadata.version(package) for package in _PACKAGES},
        )
        if check:
            comparing = progress.part_of(report, _WRITTEN, 1.0)
            # Of many texts every second or third, and so on, so that those of every source are among them.
            step = math.ceil(len(held_out) / MOST_COMPARED)
            compared_texts = held_out[::step]
            record.differences = measure_outputs(source, open_model(folder), cut.old_ids, compared_texts, comparing)
        records.save(record, folder)
        if finish is not None:
            finish(folder, record)
    return record


def _check_head(source: LoadedModel) -> None:
    """Refuse a head that is not loaded, since the smaller model would lack it; sentence vectors need no head."""
    head_class = unknown_head(load_config(source.name, source.revision))
    if head_class is not None and source.sentence is None:
        raise ModelError(
            f"'{source.name}' is a {head_class}, whose head cannot be cut with the vocabulary and would be lost; "
            "if you do not need the head, save the model without it first: "
            "AutoModel.from_pretrained(FOLDER).save_pretrained(NEW), and the tokenizer beside it."
        )


@dataclass
class _CountedTexts:
    """Texts that were read.

    Attributes:
        counts: How often they use each piece, by its id.
        held_out: The texts of each source that were not counted.
        costs: For each source its name and number of counted texts.
    """

    counts: NDArray[np.int64]
    held_out: list[list[str]]
    costs: list[SourceCosts]


def _count_texts(source: LoadedModel, sources: Iterable[NamedTexts], report: progress.Report) -> _CountedTexts:
    """Count the pieces of all texts but those that are held out."""
    pieces = PieceCounts(source.tokenizer)
    held_out_of_sources = []
    costs = []
    for named_texts in sources:
        report(0.0, f"Counting the pieces of {named_texts.name}")
        texts_before = pieces.texts
        # Gets the texts that are held out, while the others are counted.
        held_out: list[str] = []
        pieces.add(_all_but_held_out(named_texts.texts, held_out))
        held_out_of_sources.append(held_out)
        costs.append(SourceCosts(source=named_texts.name, counted=pieces.texts - texts_before))
    return _CountedTexts(pieces.counts, held_out_of_sources, costs)


def _all_but_held_out(texts: Iterable[str], held_out: list[str]) -> Iterator[str]:
    """Iterate over texts, and put one in `HELD_OUT_EVERY` of the first ones into `held_out` instead."""
    for number, text in enumerate(texts, start=1):
        if number % HELD_OUT_EVERY == 0 and len(held_out) < MOST_HELD_OUT:
            held_out.append(text)
        else:
            yield text


def _with_prompts(aim: PieceAim, source: LoadedModel) -> PieceAim:
    """Let the pieces of prompts stay, which stand before every text that a model of sentence vectors reads."""
    if source.sentence is None:
        return aim
    prompts: Sequence[str] = [prompt for prompt in source.sentence.prompts.values() if prompt]
    return replace(aim, words=[*aim.words, *prompts])


def _write_model(source: LoadedModel, cut: CutTokenizer, folder: Path) -> tuple[int, int]:
    """Write a model with the rows that stay, in the number format of its weights; see `Safetensors.write`.

    Returns:
        The number of parameters before and after.
    """
    # The source was loaded in float32 and without its pooler, so the model is loaded again as it is to be saved.
    dtype = load_config(source.name, source.revision).dtype
    whole = load_model(source.name, revision=source.revision, dtype=dtype, head=source.head, pooler=True)
    # A configuration may lack the id of padding. The source then has that of its tokenizer.
    whole.config.pad_token_id = source.model.config.pad_token_id
    smaller = cut_rows(whole, cut.old_ids)
    with quiet():
        smaller.save_pretrained(str(folder))
    give_ordinary_mode(folder.glob("*.safetensors"))
    # `save_pretrained` has written the configuration.
    write_small_files(replace(source, model=smaller, tokenizer=cut.tokenizer), folder, config=False)
    return _parameters(whole), _parameters(smaller)


def _parameters(model: PreTrainedModel) -> int:
    """The number of parameters; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _megabytes(files: Iterable[Path]) -> float:
    """The size of files together, in megabytes of 10^6 bytes."""
    return sum(file.stat().st_size for file in files) / 1e6
