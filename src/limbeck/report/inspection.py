"""Tables for the terminal of what an inspection found, and plain values for JSON."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from limbeck import inspection
from limbeck.core import blocks
from limbeck.core.files import check_writable
from limbeck.core.records import text_of
from limbeck.errors import OutputError, RecipeError, suggestion
from limbeck.report import figures
from limbeck.report.findings import InspectionFound
from limbeck.report.plot_drawing import FILE_SUFFIXES, write_figure


def phrase_table(found: inspection.PhraseClustering) -> RenderableType:
    """Return the scores by layer, mean and deviation over the seeds."""
    names = figures.name_roles([model.name for model in found.models])
    rows: list[tuple[blocks.AnyCell, ...]] = [
        (str(layer), *(_score(model, layer) for model in found.models))
        for layer in range(max(len(model.scores) for model in found.models))
    ]
    counts = ", ".join(f"{label} {count:,}" for label, count in found.labels.items())
    notes = [
        f"{sum(found.labels.values()):,} spans ({counts}), k = {found.clusters}, {found.scored:,} scored; "
        f"runs of k-means: {len(found.sample.seeds)}."
    ]
    if found.left_out:
        notes.append(f"Not drawn from: {found.left_out:,} spans in too long sentences, or of words without a token.")
    return _shown("Phrase clustering: normalised mutual information by layer", ("Layer", *names), rows, notes)


def contribution_table(found: Sequence[inspection.Contribution]) -> RenderableType:
    """Return the mean cosine of each layer's input and output."""
    names = figures.name_roles([model.name for model in found])
    rows: list[tuple[blocks.AnyCell, ...]] = [
        (str(layer + 1), *(_number(dict(enumerate(model.cosines)).get(layer)) for model in found))
        for layer in range(max(len(model.cosines) for model in found))
    ]
    notes = [
        f"{label}: layers {', '.join(map(str, model.ranking[:3]))} change most; "
        f"{model.tokens:,} tokens{_cut(model.cut)}."
        for label, model in zip(names, found, strict=True)
    ]
    title = "Cosine between a layer's input and output (the lower, the more it changes)"
    return _shown(title, ("Layer", *names), rows, notes)


def similarity_table(found: inspection.LayerSimilarity) -> RenderableType:
    """Return the teacher layer that is most like each layer of the student."""
    rows = [
        (str(layer), str(near), _number(values[near]), _number(values[-1]))
        for layer, (near, values) in enumerate(zip(found.nearest, found.values, strict=True))
    ]
    notes = [f"{found.tokens:,} tokens{_cut(found.cut)}."]
    if not found.reliable:
        notes.append(
            f"Few tokens for models {found.width} wide, so all values are too high; read {10 * found.width:,} or more."
        )
    headings = ("Student layer", "Most alike teacher layer", "CKA", "CKA of last teacher layer")
    return _shown("Similarity of layers (linear CKA)", headings, rows, notes)


def divergence_table(found: inspection.AttentionDivergence) -> RenderableType:
    """Return the nearest teacher layer of each layer of the student, and its best and worst head."""
    headings = ["Student layer", "Nearest teacher layer", "Mean", "From last teacher layer"]
    headings += ["Nearest and farthest head"] if found.by_head else []
    rows = []
    for layer, near in enumerate(found.nearest, start=1):
        means, heads = found.means[layer - 1], found.values[layer - 1][near - 1]
        cells: list[blocks.AnyCell] = [str(layer), str(near), _number(means[near - 1]), _number(means[-1])]
        if found.by_head:
            low, high = (pick(range(len(heads)), key=heads.__getitem__) for pick in (min, max))
            cells.append(f"{low + 1} ({_number(heads[low])}), {high + 1} ({_number(heads[high])})")
        rows.append(tuple(cells))
    how = "head by head" if found.by_head else "of maps averaged over heads, since the models differ in their number"
    title = "Divergence of attention, KL(teacher ‖ student) in nats"
    return _shown(title, headings, rows, [f"{found.tokens:,} tokens{_cut(found.cut)}; {how}."])


def _shown(
    title: str, headings: Sequence[str], rows: Sequence[tuple[blocks.AnyCell, ...]], notes: Sequence[str]
) -> RenderableType:
    return blocks.console(
        blocks.Table(title, tuple(headings), tuple(rows), layout=blocks.BOXED), blocks.Notes(tuple(notes))
    )


def _score(model: inspection.LayerScores, layer: int) -> blocks.Cell:
    """Return a layer's mean, with its deviation where there are several runs."""
    if layer >= len(model.scores):
        return blocks.Cell(None)
    spread = f" ± {model.deviations[layer]:.3f}" if len(model.scores[layer]) > 1 else ""
    return blocks.Cell(model.means[layer], f"{{:.3f}}{spread}")


def _number(value: float | None) -> blocks.Cell:
    return blocks.Cell(value if value is not None and math.isfinite(value) else None, "{:.3f}")


def _cut(cut: int) -> str:
    return f", {cut:,} texts cut to the longest length" if cut else ""


def maps_note(found: inspection.AttentionMaps) -> RenderableType:
    """Return, in a line, which maps there are."""
    layers = sorted({ours.layer for ours, _ in found.pairs})
    return Text(
        f"{len(found.pairs)} attention maps of {figures.short_name(found.student)}, {len(found.tokens)} tokens, "
        f"layers {', '.join(map(str, layers))}."
    )


# What an inspection leaves on disk: its data as JSON and its pictures, in a folder or one of them in a file.


_DATA_SUFFIX = ".json"


def check_output(path: Path | None) -> None:
    """Refuse a place that could not be written, before anything is measured.

    Raises:
        RecipeError: for a file of another kind than data or a picture.
        OutputError: for a file where a folder is meant, or where nothing can be written.
    """
    if path is None:
        return
    if not path.suffix and not path.is_dir():
        if path.exists():
            raise OutputError(f"--output '{path}' is a file; give a folder, or a file that ends with .png or .json.")
    elif not path.is_dir() and path.suffix not in (_DATA_SUFFIX, *FILE_SUFFIXES):
        raise RecipeError(
            f"--output '{path}' ends with '{path.suffix}', neither data nor a picture; give a folder, or a file."
            f"{suggestion(path.suffix, (_DATA_SUFFIX, *FILE_SUFFIXES))}"
        )
    check_writable(path, path if path.is_dir() or not path.suffix else path.parent)


def write_inspection(
    path: Path, name: str, data: Mapping[str, Any], pictures: Mapping[str, blocks.Figure]
) -> list[Path]:
    """Write data and pictures into a folder, or one kind of them into a file.

    Args:
        path: A folder, made if missing; or a file with the suffix of data or a picture.
        name: What was inspected: the files' name in a folder.
        data: Plain values.
        pictures: By what is added to the file's name, empty for the first.

    Returns:
        The files.

    Raises:
        RecipeError: see `check_output`.
        OutputError: if a file cannot be written.
    """
    check_output(path)
    whole = path.is_dir() or not path.suffix
    written: list[Path] = []
    if whole or path.suffix == _DATA_SUFFIX:
        file = path / f"{name}{_DATA_SUFFIX}" if whole else path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text_of(data), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"'{file}' cannot be written: {error.strerror}.") from error
        written.append(file)
    if whole or path.suffix in FILE_SUFFIXES:
        first = path / f"{name}.png" if whole else path
        for added, picture in pictures.items():
            file = first.with_stem(f"{first.stem}{added}")
            write_figure(picture, file, titled=True)
            written.append(file)
    return written


# What a report says of inspections: attention maps, divergences, similarity, contribution, phrases.


_MOST_CELLS = 16_000
"""Of all attention maps of a page; more would make it slow."""
_MOST_TOKENS = 100


def inspection_sections(found: InspectionFound) -> list[blocks.Section]:
    """Lay out what inspections left in a folder."""
    builders: dict[str, tuple[str, Callable[[Any], Iterable[blocks.Block]]]] = {
        "attention": ("Attention", _attention),
        "similarity": ("Similarity of layers", lambda result: [figures.similarity_figure(result)]),
        "contribution": ("Contribution of layers", lambda result: [figures.contribution_figure(result)]),
        "phrases": ("Phrases", lambda result: [figures.phrases_figure(result)]),
    }
    sections: list[blocks.Section] = []
    if found.problems:
        sections += blocks.guarded("Damaged files", lambda: [blocks.Notes(found.problems, warning=True)])
    for name, (title, build) in builders.items():
        if name in found.results:
            sections += blocks.guarded(title, lambda build=build, name=name: build(found.results[name]))  # type: ignore[misc]
    return sections


def _attention(result: Mapping[str, Any]) -> Iterator[blocks.Block]:
    if result["divergence"] is not None:
        yield figures.divergence_figure(result["divergence"])
    maps = result["maps"]
    tokens = [str(token) for token in maps["tokens"]]
    if len(tokens) > _MOST_TOKENS:
        yield blocks.Notes(
            (f"Of {len(tokens)} tokens the maps are too large for a page; the picture of `limbeck inspect` has them.",)
        )
        return
    yield blocks.Paragraph(f"Maps of the sentence: {' '.join(tokens)}")
    most = max(2, _MOST_CELLS // max(1, len(tokens) ** 2))
    shown = figures.map_figures(maps)
    yield from shown[:most]
    if len(shown) > most:
        yield blocks.Notes((f"{len(shown) - most} more maps are in '{maps['student']}'s inspection.",))
