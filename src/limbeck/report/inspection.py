"""Inspections: tables for the terminal, and the files that they leave.

An *inspection* is a measurement of a model's layers, alone or beside a teacher's: of `similarity`, `contribution`,
`phrases` or `attention`. Its result is a type of `limbeck.inspection.results`; that of attention is a mapping with
`maps` and `divergence`, which is None without a teacher.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from limbeck.core import files, records
from limbeck.core.blocks import BOXED, NOTHING, AnyCell, Block, Cell, Figure, Notes, Table, counted
from limbeck.core.console_blocks import console
from limbeck.inspection.results import (
    AttentionDivergence,
    AttentionMaps,
    Contribution,
    LayerSimilarity,
    PhraseClustering,
)
from limbeck.report.names import name_in_picture, name_roles
from limbeck.report.output_files import DATA_SUFFIX, check_output


def inspection_blocks(name: str, result: Any) -> list[Block]:
    """Return the table of an inspection and its notes as blocks.

    Attention maps without a teacher have no table, but a note on what was drawn.

    Args:
        name: Name of the inspection.
        result: Its result; for attention the mapping with `maps` and `divergence`.
    """
    if name == "similarity":
        return _similarity_blocks(result)
    if name == "contribution":
        return _contribution_blocks(result)
    if name == "phrases":
        return _phrase_blocks(result)
    # What is left is attention. Without a teacher, no divergence was measured.
    if result["divergence"] is None:
        return [Notes((_describe_maps(result["maps"]),))]
    return _divergence_blocks(result["divergence"])


def inspection_table(name: str, result: Any) -> RenderableType:
    """Return the table of an inspection for the terminal."""
    return console(*inspection_blocks(name, result))


def _similarity_blocks(result: LayerSimilarity) -> list[Block]:
    """Lay out for each layer of the student the most similar layer of the teacher; layer 0 is the embedding output."""
    rows: list[tuple[AnyCell, ...]] = []
    for layer, nearest in enumerate(result.nearest):
        similarities = result.values[layer]
        nearest_value = _number(similarities[nearest])
        last_value = _number(similarities[-1])
        rows.append((str(layer), str(nearest), nearest_value, last_value))
    notes = [f"{result.tokens:,} tokens{_describe_cut(result.cut)}."]
    if not result.reliable:
        notes.append(
            f"Too few tokens for models of width {result.width}, so all values are biased upwards; read "
            f"{result.least_tokens:,} or more."
        )
    headings = ("Student layer", "Most similar teacher layer", "CKA", "CKA with last teacher layer")
    return _table_and_notes("Similarity of layers (linear CKA)", headings, rows, notes)


def _contribution_blocks(result: Sequence[Contribution]) -> list[Block]:
    """Lay out the mean cosine between the input and the output of each layer, with a column for each model."""
    names = name_roles([model.name for model in result])
    notes = []
    for name, model in zip(names, result, strict=True):
        most_changing = ", ".join(map(str, model.ranking[:3]))
        notes.append(f"{name}: layers {most_changing} change most; {model.tokens:,} tokens{_describe_cut(model.cut)}.")

    # The models may differ in depth. There is a row for each layer of the deepest one, and cells of others are blank.
    columns = [[_number(cosine) for cosine in model.cosines] for model in result]
    rows: list[tuple[AnyCell, ...]] = []
    for layer, cells in enumerate(zip_longest(*columns, fillvalue=Cell(None)), start=1):
        rows.append((str(layer), *cells))
    title = "Cosine between a layer's input and output (lower: the layer changes more)"
    return _table_and_notes(title, ("Layer", *names), rows, notes)


def _phrase_blocks(result: PhraseClustering) -> list[Block]:
    """Lay out the score of each layer, as mean and deviation over the seeds of k-means, with a column for each model.

    Layer 0 is the embedding output.
    """
    runs = len(result.sample.seeds)
    columns = []
    for model in result.models:
        cells = []
        for layer_mean, deviation in zip(model.means, model.deviations, strict=True):
            spread = f" ± {deviation:.3f}" if runs > 1 else ""
            cells.append(f"{layer_mean:.3f}{spread}")
        columns.append(cells)
    # The models may differ in depth: cells of layers that a model does not have hold a dash.
    rows: list[tuple[AnyCell, ...]] = []
    for layer, layer_cells in enumerate(zip_longest(*columns, fillvalue=NOTHING)):
        rows.append((str(layer), *layer_cells))

    spans = sum(result.labels.values())
    counts = ", ".join(f"{label} {count:,}" for label, count in result.labels.items())
    notes = [f"{spans:,} spans ({counts}), k = {result.clusters}, {result.scored:,} scored; runs of k-means: {runs}."]
    if result.left_out:
        notes.append(f"Left out: {result.left_out:,} spans in sentences that are too long, or of words without tokens.")
    title = "Phrase clustering: normalised mutual information by layer"
    names = name_roles([model.name for model in result.models])
    return _table_and_notes(title, ("Layer", *names), rows, notes)


def _divergence_blocks(result: AttentionDivergence) -> list[Block]:
    """Lay out for each layer of the student the nearest layer of the teacher, with the nearest and the farthest head.

    Heads are named only where both models have the same number of them.
    """
    headings = ["Student layer", "Nearest teacher layer", "Mean", "From last teacher layer"]
    compared_maps = "of maps averaged over heads, since the numbers of heads differ"
    if result.by_head:
        headings.append("Nearest and farthest head")
        compared_maps = "head by head"
    rows = []
    # Layers are counted from 1, and lists from 0: `nearest` is the number of a teacher layer.
    for index, nearest in enumerate(result.nearest):
        means = result.means[index]
        cells: list[AnyCell] = [str(index + 1), str(nearest), _number(means[nearest - 1]), _number(means[-1])]
        if result.by_head:
            cells.append(_nearest_and_farthest_head(result.values[index][nearest - 1]))
        rows.append(tuple(cells))
    note = f"{result.tokens:,} tokens{_describe_cut(result.cut)}; {compared_maps}."
    return _table_and_notes("Divergence of attention, KL(teacher ‖ student) in nats", headings, rows, [note])


def _nearest_and_farthest_head(divergences: Sequence[float]) -> str:
    """Return the heads of the least and the greatest divergence, counted from 1: `3 (0.120), 1 (0.850)`."""
    least = min(divergences)
    greatest = max(divergences)
    nearest_head = divergences.index(least) + 1
    farthest_head = divergences.index(greatest) + 1
    return f"{nearest_head} ({_number(least)}), {farthest_head} ({_number(greatest)})"


def _describe_maps(maps: AttentionMaps) -> str:
    """Return the number of attention maps, the model, the length of the sentence and the layers in a line."""
    layers = sorted({student.layer for student, _ in maps.pairs})
    return (
        f"{counted(len(maps.pairs), 'attention map')} of {name_in_picture(maps.student)}, {len(maps.tokens)} tokens, "
        f"layers {', '.join(map(str, layers))}."
    )


def _table_and_notes(
    title: str, headings: Sequence[str], rows: Sequence[tuple[AnyCell, ...]], notes: Sequence[str]
) -> list[Block]:
    """Return a table in a box, and the notes below it."""
    return [Table(title, tuple(headings), tuple(rows), layout=BOXED), Notes(tuple(notes))]


def _number(value: float | None) -> Cell:
    """Return a cell with three decimals; a dash for a value that is missing, infinite or NaN."""
    if value is None or not math.isfinite(value):
        return Cell(None)
    return Cell(value, "{:.3f}")


def _describe_cut(cut_texts: int) -> str:
    """Return the end of a note on the texts that were longer than the models read; empty for none."""
    if not cut_texts:
        return ""
    return f", {counted(cut_texts, 'text')} cut to the maximum length"


def write_inspection(path: Path, name: str, data: Mapping[str, Any], pictures: Mapping[str, Figure]) -> list[Path]:
    """Write the data and the pictures of an inspection into a folder, or either of them to a file.

    The suffix of the path decides: without a suffix it is a folder, `.json` is the file of the data, and another suffix
    is that of the pictures.

    Args:
        path: A folder, made if missing; or a file.
        name: Name of the inspection, which is the name of the files in a folder.
        data: The result as plain values.
        pictures: The pictures by the end of their files' names. It is empty for the first picture, whose file has the
            name of the inspection or of `path`, and `-divergence` for another.

    Returns:
        Paths of the files.

    Raises:
        RecipeError: see `check_output`.
        OutputError: if a file cannot be written.
    """
    # Imports matplotlib, which the tables do not need.
    from limbeck.report.pictures import write_figure

    check_output(path)
    data_file: Path | None = None
    first_picture: Path | None = None
    if path.is_dir() or not path.suffix:
        data_file = path / f"{name}{DATA_SUFFIX}"
        first_picture = path / f"{name}.png"
    elif path.suffix == DATA_SUFFIX:
        data_file = path
    else:
        first_picture = path

    written: list[Path] = []
    if data_file is not None:
        with files.writing(data_file):
            files.atomic_text(data_file, records.text_of(data))
        written.append(data_file)
    if first_picture is not None:
        for end, picture in pictures.items():
            picture_file = first_picture.with_stem(f"{first_picture.stem}{end}")
            write_figure(picture, picture_file, titled=True)
            written.append(picture_file)
    return written
