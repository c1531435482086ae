"""Inspections: tables for the terminal, figures for files and pages, the files, and the sections of a report.

Page and file show the same figure; a file gathers as panels what the page shows one by one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from limbeck import inspection
from limbeck.core import files, records, studies
from limbeck.core.blocks import BOXED, AnyCell, Block, Cell, Figure, Notes, Paragraph, Table, console, counted
from limbeck.report import findings, plots
from limbeck.report.figures import heat_figure, plot_figure
from limbeck.report.plot_drawing import write_figure
from limbeck.report.plots import DATA_SUFFIX, FILE_SUFFIXES


def short_name(name: str) -> str:
    """Return a model's name as a picture has room for it: a folder by its last two parts, a package by its name."""
    parts = name.removeprefix("package:").rstrip("/").split("/")
    return "/".join(part for part in parts[-2:] if part not in ("", ".", ".."))


def name_roles(names: Sequence[str]) -> list[str]:
    """Return the labels of one model, or of a student and a teacher."""
    if len(names) == 1:
        return [short_name(names[0])]
    return [f"{role}: {short_name(name)}" for role, name in zip(("student", "teacher"), names, strict=True)]


# Tables for the terminal.


def phrase_table(found: inspection.PhraseClustering) -> RenderableType:
    """Return the scores by layer, mean and deviation over the seeds."""
    names = name_roles([model.name for model in found.models])
    scores = zip_longest(*map(_scores, found.models), fillvalue=Cell(None))
    rows: list[tuple[AnyCell, ...]] = [(str(layer), *cells) for layer, cells in enumerate(scores)]
    counts = ", ".join(f"{label} {count:,}" for label, count in found.labels.items())
    notes = [
        f"{sum(found.labels.values()):,} spans ({counts}), k = {found.clusters}, {found.scored:,} scored; "
        f"runs of k-means: {len(found.sample.seeds)}."
    ]
    if found.left_out:
        notes.append(f"Left out: {found.left_out:,} spans in sentences that are too long, or of words without tokens.")
    return _shown("Phrase clustering: normalised mutual information by layer", ("Layer", *names), rows, notes)


def _scores(model: inspection.LayerScores) -> Iterator[Cell]:
    """Go through the means of the layers, with their deviations where there are several runs."""
    for runs, mean, deviation in zip(model.scores, model.means, model.deviations, strict=True):
        yield Cell(mean, f"{{:.3f}} ± {deviation:.3f}" if len(runs) > 1 else "{:.3f}")


def contribution_table(found: Sequence[inspection.Contribution]) -> RenderableType:
    """Return the mean cosine of each layer's input and output."""
    names = name_roles([model.name for model in found])
    cosines = zip_longest(*(model.cosines for model in found))
    rows: list[tuple[AnyCell, ...]] = [
        (str(layer), *map(_number, values)) for layer, values in enumerate(cosines, start=1)
    ]
    notes = [
        f"{label}: layers {', '.join(map(str, model.ranking[:3]))} change most; "
        f"{model.tokens:,} tokens{_cut(model.cut)}."
        for label, model in zip(names, found, strict=True)
    ]
    title = "Cosine between a layer's input and output (lower: the layer changes more)"
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
            f"Too few tokens for models of width {found.width}, so all values are biased upwards; read "
            f"{10 * found.width:,} or more."
        )
    headings = ("Student layer", "Most similar teacher layer", "CKA", "CKA with last teacher layer")
    return _shown("Similarity of layers (linear CKA)", headings, rows, notes)


def divergence_table(found: inspection.AttentionDivergence) -> RenderableType:
    """Return the nearest teacher layer of each layer of the student, and its best and worst head."""
    headings = ["Student layer", "Nearest teacher layer", "Mean", "From last teacher layer"]
    headings += ["Nearest and farthest head"] if found.by_head else []
    rows = []
    for layer, near in enumerate(found.nearest, start=1):
        means, heads = found.means[layer - 1], found.values[layer - 1][near - 1]
        cells: list[AnyCell] = [str(layer), str(near), _number(means[near - 1]), _number(means[-1])]
        if found.by_head:
            low, high = (pick(range(len(heads)), key=heads.__getitem__) for pick in (min, max))
            cells.append(f"{low + 1} ({_number(heads[low])}), {high + 1} ({_number(heads[high])})")
        rows.append(tuple(cells))
    how = "head by head" if found.by_head else "of maps averaged over heads, since the numbers of heads differ"
    title = "Divergence of attention, KL(teacher ‖ student) in nats"
    return _shown(title, headings, rows, [f"{found.tokens:,} tokens{_cut(found.cut)}; {how}."])


_TABLES: dict[str, Callable[[Any], RenderableType]] = {
    "similarity": similarity_table,
    "contribution": contribution_table,
    "phrases": phrase_table,
}


def inspection_table(name: str, found: Any) -> RenderableType:
    """Return the table of an inspection; of attention maps without a teacher a line."""
    if name != "attention":
        return _TABLES[name](found)
    return maps_note(found["maps"]) if found["divergence"] is None else divergence_table(found["divergence"])


def _shown(
    title: str, headings: Sequence[str], rows: Sequence[tuple[AnyCell, ...]], notes: Sequence[str]
) -> RenderableType:
    return console(Table(title, tuple(headings), tuple(rows), layout=BOXED), Notes(tuple(notes)))


def _number(value: float | None) -> Cell:
    return Cell(value if value is not None and math.isfinite(value) else None, "{:.3f}")


def _cut(cut: int) -> str:
    return f", {counted(cut, 'text')} cut to the maximum length" if cut else ""


def maps_note(found: inspection.AttentionMaps) -> RenderableType:
    """Return, in a line, which maps there are."""
    layers = sorted({ours.layer for ours, _ in found.pairs})
    return Text(
        f"{counted(len(found.pairs), 'attention map')} of {short_name(found.student)}, {len(found.tokens)} tokens, "
        f"layers {', '.join(map(str, layers))}."
    )


# Figures of the plain values of a result: attention maps, divergences, similarity, contribution, phrases.


def attention_figure(maps: Mapping[str, Any]) -> Figure:
    """Draw all attention maps of a sentence as panels on one scale, the teacher's to the left of the student's."""
    panels = [(figure.title.partition(": ")[2], figure.drawing) for figure in map_figures(maps)]
    pairs = len(maps["pairs"])
    columns = (1 if pairs <= 2 else 2 if pairs <= 8 else 3) * (len(panels) // pairs)
    title = f"Attention of {short_name(maps['student'])}"
    if maps["teacher"] is not None:
        title += f" (student) beside {short_name(maps['teacher'])} (teacher)"
    words = (
        "Attention maps, one row per attending token and one column per attended token: "
        f"{'; '.join(name for name, _ in panels)}. Tokens: {' '.join(map(str, maps['tokens']))}"
    )
    data = Table(title, ("",), tuple((name,) for name, _ in panels))
    return Figure("attention", title, "", words, plots.Panels(panels, columns), data)


def map_figures(maps: Mapping[str, Any]) -> list[Figure]:
    """Draw each attention map of a sentence, the teacher's before the student's; every row is a token that looks."""
    tokens = [str(token) for token in maps["tokens"]]
    shown = [one for pair in maps["pairs"] for one in reversed(pair) if one is not None]
    high = max(max(map(max, one["values"])) for one in shown)
    figures = []
    for one in shown:
        head = "mean of heads" if one["head"] == studies.MEAN_HEAD else f"head {one['head']}"
        owner = "" if one["role"] == "model" else f"{one['role']}, "
        most = [(max(row), tokens[row.index(max(row))]) for row in one["values"]]
        found = (f"{token} attends most to {at} ({value:.2f})" for token, (value, at) in zip(tokens, most, strict=True))
        scale = 0.0, high, "attention (each row sums to 1)"
        heat = plots.Heat(one["values"], tokens, tokens, "attending token", "attended token", *scale)
        words = f"Attention of {len(tokens)} tokens. {'; '.join(found)}."
        figures.append(heat_figure(f"Attention: {owner}layer {one['layer']}, {head}", heat, words))
    return figures


def divergence_figure(result: Mapping[str, Any], *, heads: bool = False) -> Figure:
    """Draw the mean divergence of every pair of layers.

    Args:
        result: Of the inspection.
        heads: Draw beside it each head of a student layer against the teacher layer nearest to it, on one scale.
    """
    means = [[None if None in row else sum(row) / len(row) for row in layer] for layer in result["values"]]
    nearest = _nearest(means, lowest=True)
    found = [result["values"][layer][near] for layer, near in nearest.items()] if heads and result["by_head"] else []
    high = max([value for row in (*means, *found) for value in row if value is not None], default=0.0)
    scale: dict[str, Any] = {"low": 0.0, "high": max(high, 1e-6), "label": "nats (0: identical)", "upwards": True}
    heat = plots.Heat(means, _count(means, 1), _count(means[0], 1), "student layer", "teacher layer", **scale)
    how = "mean over heads" if result["by_head"] else "maps averaged over heads"
    caption = f"KL(teacher ‖ student), {how}, over {result['tokens']:,} tokens: {_pair(result)}."
    words = f"Mean divergence in nats. {_describe_nearest(means, nearest, 1)}."
    figure = heat_figure("Divergence of attention", heat, words, caption)
    if not found:
        return figure
    rows = [f"{layer + 1} : {near + 1}" for layer, near in nearest.items()]
    each = plots.Heat(found, rows, _count(found[0], 1), "student layer : nearest teacher layer", "head", **scale)
    return replace(figure, drawing=plots.Panels([(how, heat), ("each head, nearest layers", each)], 2))


def similarity_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    values = result["values"]
    owners = ("layer", "layer") if result["student"] == result["teacher"] else ("student layer", "teacher layer")
    names = _count(values, 0), _count(values[0], 0)
    heat = plots.Heat(values, *names, *owners, 0.0, 1.0, "linear CKA (1: identical)", upwards=True)
    words = f"Linear CKA. {_describe_nearest(values, _nearest(values, lowest=False), 0)}."
    caption = f"Layer 0 is the embedding output; {result['tokens']:,} tokens: {_pair(result)}."
    return heat_figure("Similarity of layers", heat, words, caption)


def contribution_figure(result: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the mean cosine between the input and the output of each layer, a line for each model."""
    labels = name_roles([model["name"] for model in result])
    lines = [list(enumerate(model["cosines"], start=1)) for model in result]
    series = [plots.Series(label, line, style) for style, (label, line) in enumerate(zip(labels, lines, strict=True))]
    plot = plots.Plot(series, plots.Axis("layer", whole=True), plots.Axis("cosine of input and output"))
    caption = "The lower the value, the more a layer changes its input."
    return plot_figure("How much each layer keeps of its input", plot, caption)


def phrases_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the normalised mutual information of each layer, a line for each model, with the deviation over seeds."""
    labels = name_roles([model["name"] for model in result["models"]])
    series = []
    for style, (label, model) in enumerate(zip(labels, result["models"], strict=True)):
        means = [statistics.fmean(runs) for runs in model["scores"]]
        spread = [statistics.stdev(runs) if len(runs) > 1 else 0.0 for runs in model["scores"]]
        band = [(mean - half, mean + half) for mean, half in zip(means, spread, strict=True)]
        series.append(plots.Series(label, list(enumerate(means)), style, band=band if any(spread) else ()))
    x = plots.Axis("layer (0: embedding output)", whole=True)
    y = plots.Axis("normalised mutual information", from_zero=True)
    spans = f"{sum(result['labels'].values()):,} spans"
    caption = f"k-means with k = {result['clusters']} over {spans}; the band is the deviation over seeds."
    return plot_figure("What each layer knows about phrases", plots.Plot(series, x, y), caption)


def _pair(result: Mapping[str, Any]) -> str:
    ours, theirs = short_name(result["student"]), short_name(result["teacher"])
    return ours if result["student"] == result["teacher"] else f"student {ours}, teacher {theirs}"


def _count(values: Sequence[object], first: int) -> list[str]:
    return [str(number) for number in range(first, first + len(values))]


def _nearest(values: Sequence[Sequence[float | None]], *, lowest: bool) -> dict[int, int]:
    """Return the column that is most alike by row; of a row without a value none."""
    known = {index: [(v, place) for place, v in enumerate(row) if v is not None] for index, row in enumerate(values)}
    return {index: (min(row) if lowest else max(row))[1] for index, row in known.items() if row}


def _describe_nearest(values: Sequence[Sequence[float | None]], nearest: Mapping[int, int], first: int) -> str:
    return "; ".join(
        f"student layer {layer + first}: nearest teacher layer {near + first} ({values[layer][near]:.2f})"
        for layer, near in nearest.items()
    )


_FIGURES: dict[str, Callable[[Any], Figure]] = {
    "similarity": similarity_figure,
    "contribution": contribution_figure,
    "phrases": phrases_figure,
}
"""Inspections of one figure, by name."""


def inspection_pictures(name: str, result: Any) -> dict[str, Figure]:
    """Return the figures that an inspection leaves, by their addition to the file's name.

    Args:
        name: Of the inspection.
        result: As plain values.
    """
    if name != "attention":
        return {"": _FIGURES[name](result)}
    maps, far = result["maps"], result["divergence"]
    return {"": attention_figure(maps)} | ({} if far is None else {"-divergence": divergence_figure(far, heads=True)})


# The files of an inspection: its data as JSON and its pictures, in a folder or one of them in a file.


def write_inspection(path: Path, name: str, data: Mapping[str, Any], pictures: Mapping[str, Figure]) -> list[Path]:
    """Write data and pictures into a folder, or one kind of them into a file.

    Args:
        path: A folder, made if missing; or a file with the suffix of data or a picture.
        name: Of the inspection: the files' name in a folder.
        data: Plain values.
        pictures: By what is added to the file's name, empty for the first.

    Returns:
        The files.

    Raises:
        RecipeError: see `plots.check_output`.
        OutputError: if a file cannot be written.
    """
    plots.check_output(path)
    whole = path.is_dir() or not path.suffix
    written: list[Path] = []
    if whole or path.suffix == DATA_SUFFIX:
        file = path / f"{name}{DATA_SUFFIX}" if whole else path
        with files.writing(file):
            file.write_text(records.text_of(data), encoding="utf-8")
        written.append(file)
    if whole or path.suffix in FILE_SUFFIXES:
        first = path / f"{name}.png" if whole else path
        for added, picture in pictures.items():
            file = first.with_stem(f"{first.stem}{added}")
            write_figure(picture, file, titled=True)
            written.append(file)
    return written


# The sections of a report.


_MOST_CELLS = 16_000
"""Of all attention maps of a page; more would make it slow."""
_MOST_TOKENS = 100


def _attention(found: findings.InspectionFound) -> Iterator[Block]:
    result = found.results.get("attention")
    if result is None:
        return
    if result["divergence"] is not None:
        yield divergence_figure(result["divergence"])
    maps = result["maps"]
    tokens = [str(token) for token in maps["tokens"]]
    if len(tokens) > _MOST_TOKENS:
        yield Notes(
            (f"The maps of {len(tokens)} tokens are too large for a page; `limbeck inspect --output` draws them.",)
        )
        return
    yield Paragraph(f"Maps of the sentence: {' '.join(tokens)}")
    most = max(2, _MOST_CELLS // max(1, len(tokens) ** 2))
    shown = map_figures(maps)
    yield from shown[:most]
    if len(shown) > most:
        yield Notes((f"{counted(len(shown) - most, 'more map')} not shown; `limbeck inspect --output` draws all.",))


def _figure_of(name: str) -> Callable[[findings.InspectionFound], Iterable[Block]]:
    return lambda found: [_FIGURES[name](found.results[name])] if name in found.results else []


SECTIONS: dict[str, Callable[[findings.InspectionFound], Iterable[Block]]] = {
    "Damaged files": lambda found: [Notes(found.problems, warning=True)],
    "Attention": _attention,
    "Similarity of layers": _figure_of("similarity"),
    "Contribution of layers": _figure_of("contribution"),
    "Phrases": _figure_of("phrases"),
}
"""Of the inspections in a folder."""
