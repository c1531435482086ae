"""Figures of inspections: attention maps, divergence, similarity and curves by layer, on pages and in files."""

import math
from collections.abc import Sequence
from typing import Any

from limbeck.core.blocks import AnyCell, Figure, Table
from limbeck.core.studies import MEAN_HEAD
from limbeck.inspection.results import (
    AttentionDivergence,
    AttentionMap,
    AttentionMaps,
    Contribution,
    LayerScores,
    LayerSimilarity,
    PhraseClustering,
)
from limbeck.report.figures import heat_figure, lines_figure
from limbeck.report.names import name_in_picture, name_roles
from limbeck.report.plots import Heat, Lines, Panels, Series


def inspection_pictures(name: str, result: Any) -> dict[str, Figure]:
    """Return the figures of an inspection, by the end of the file's name that each is written to.

    Args:
        name: Name of the inspection.
        result: Its result, a type of `limbeck.inspection.results`; for attention a mapping with `maps` and
            `divergence`, which is None without a teacher.
    """
    if name == "similarity":
        return {"": similarity_figure(result)}
    if name == "contribution":
        return {"": contribution_figure(result)}
    if name == "phrases":
        return {"": phrases_figure(result)}
    pictures = {"": attention_figure(result["maps"])}
    if result["divergence"] is not None:
        pictures["-divergence"] = divergence_figure(result["divergence"])
    return pictures


def attention_figure(maps: AttentionMaps) -> Figure:
    """Draw all attention maps of a sentence as panels on one scale, the teacher's to the left of the student's."""
    attention_maps: list[AttentionMap] = []
    for student_map, teacher_map in maps.pairs:
        if teacher_map is not None:
            attention_maps.append(teacher_map)
        attention_maps.append(student_map)
    names = [_name_of_map(attention) for attention in attention_maps]
    heats = _heats(attention_maps, maps.tokens)

    title = f"Attention of {name_in_picture(maps.student)}"
    if maps.teacher is not None:
        title += f" (student) beside {name_in_picture(maps.teacher)} (teacher)"
    description = (
        "Attention maps, one row per attending token and one column per attended token: "
        f"{'; '.join(names)}. Tokens: {' '.join(maps.tokens)}"
    )
    return Figure(
        name="attention",
        title=title,
        caption="",
        description=description,
        drawing=Panels(list(zip(names, heats, strict=True)), columns=2),
        data=_most_attended(attention_maps, names, maps.tokens),
    )


def _heats(attention_maps: Sequence[AttentionMap], tokens: Sequence[str]) -> list[Heat]:
    """Return the maps as heat maps with one scale of colours for all, so that colours can be compared."""
    highest = max(weight for attention in attention_maps for row in attention.values for weight in row)
    heats = []
    for attention in attention_maps:
        heat = Heat(
            attention.values,
            row_names=tokens,
            column_names=tokens,
            row_title="attending token",
            column_title="attended token",
            low=0.0,
            high=highest,
            label="attention (each row sums to 1)",
        )
        heats.append(heat)
    return heats


def _most_attended(attention_maps: Sequence[AttentionMap], names: Sequence[str], tokens: Sequence[str]) -> Table:
    """Name, for each token and map, the token that it attends to most; the data file has all weights."""
    rows: list[tuple[AnyCell, ...]] = []
    for index, token in enumerate(tokens):
        cells = []
        for attention in attention_maps:
            weights = attention.values[index]
            most = max(weights)
            cells.append(f"{tokens[weights.index(most)]} ({most:.2f})")
        rows.append((token, *cells))
    return Table("The token that each token attends to most", ("Token", *names), tuple(rows))


def _name_of_map(attention: AttentionMap) -> str:
    """Return the title of a map: `teacher, layer 3, head 2`."""
    head = "mean of heads" if attention.head == MEAN_HEAD else f"head {attention.head}"
    # The role of a model that is inspected alone is "model", which needs no mention.
    owner = "" if attention.role == "model" else f"{attention.role}, "
    return f"{owner}layer {attention.layer}, {head}"


def divergence_figure(result: AttentionDivergence) -> Figure:
    """Draw the mean divergence of every pair of layers."""
    means = result.means
    highest = max((mean for row in means for mean in row if not math.isnan(mean)), default=0.0)
    heat = Heat(
        _known(means),
        row_names=_numbered(means, first=1),
        column_names=_numbered(means[0], first=1),
        row_title="student layer",
        column_title="teacher layer",
        low=0.0,
        # The range of colours must not be empty where a model is compared with itself.
        high=max(highest, 1e-6),
        label="nats (0: identical)",
        upwards=True,
    )
    # With equal numbers of heads, divergences are averaged; else the attention maps were, before they were compared.
    averaging = "mean over heads" if result.by_head else "maps averaged over heads"
    models = _name_pair(result.student, result.teacher)
    caption = f"KL(teacher ‖ student), {averaging}, over {result.tokens:,} tokens: {models}."
    words = f"Mean divergence in nats. {_describe_nearest(means, result.nearest, first=1)}."
    return heat_figure("Divergence of attention", heat, words, caption)


def similarity_figure(result: LayerSimilarity) -> Figure:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    # Where a model is compared with itself, both axes are its layers.
    student_title = "student layer"
    teacher_title = "teacher layer"
    if result.student == result.teacher:
        student_title = "layer"
        teacher_title = "layer"
    heat = Heat(
        _known(result.values),
        row_names=_numbered(result.values, first=0),
        column_names=_numbered(result.values[0], first=0),
        row_title=student_title,
        column_title=teacher_title,
        low=0.0,
        high=1.0,
        label="linear CKA (1: identical)",
        upwards=True,
    )
    models = _name_pair(result.student, result.teacher)
    caption = f"Layer 0 is the embedding output; {result.tokens:,} tokens: {models}."
    words = f"Linear CKA. {_describe_nearest(result.values, result.nearest, first=0)}."
    return heat_figure("Similarity of layers", heat, words, caption)


def contribution_figure(result: Sequence[Contribution]) -> Figure:
    """Draw the mean cosine between the input and the output of each layer, a line for each model."""
    labels = name_roles([model.name for model in result])
    series = []
    for label, model in zip(labels, result, strict=True):
        series.append(Series(label, list(enumerate(model.cosines, start=1))))
    plot = Lines(series, x="layer", y="cosine of input and output", x_is_whole=True)
    caption = "The lower the value, the more a layer changes its input."
    return lines_figure("How much each layer keeps of its input", plot, caption)


def phrases_figure(result: PhraseClustering) -> Figure:
    """Draw the normalised mutual information of each layer, a line for each model, with the deviation over seeds."""
    labels = name_roles([model.name for model in result.models])
    series = [_scores_by_layer(label, model) for label, model in zip(labels, result.models, strict=True)]
    plot = Lines(
        series,
        x="layer (0: embedding output)",
        y="normalised mutual information",
        x_is_whole=True,
    )
    spans = f"{sum(result.labels.values()):,} spans"
    caption = f"k-means with k = {result.clusters} over {spans}; the band is the deviation over seeds."
    return lines_figure("What each layer knows about phrases", plot, caption)


def _scores_by_layer(label: str, model: LayerScores) -> Series:
    """Return the mean score of each layer, in a band of one standard deviation over the seeds each way."""
    points = list(enumerate(model.means))
    # With a single seed no layer has a deviation, so there is no band to draw.
    if not any(model.deviations):
        return Series(label, points)
    band = []
    for mean, deviation in zip(model.means, model.deviations, strict=True):
        band.append((mean - deviation, mean + deviation))
    return Series(label, points, band=band)


def _name_pair(student: str, teacher: str) -> str:
    """Name student and teacher, or the one model that is compared with itself."""
    if student == teacher:
        return name_in_picture(student)
    return f"student {name_in_picture(student)}, teacher {name_in_picture(teacher)}"


def _known(values: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """Return a matrix with None in the place of NaN, as heat maps take unknown values."""
    return [[None if math.isnan(value) else value for value in row] for row in values]


def _numbered(layers: Sequence[object], first: int) -> list[str]:
    """Return the numbers of so many layers, counted from `first`."""
    return [str(number) for number in range(first, first + len(layers))]


def _describe_nearest(values: Sequence[Sequence[float]], nearest: Sequence[int], first: int) -> str:
    """Name the nearest teacher layer of each student layer whose value is known; layers are counted from `first`."""
    parts = []
    for row, teacher_layer in enumerate(nearest):
        value = values[row][teacher_layer - first]
        if not math.isnan(value):
            parts.append(f"student layer {row + first}: nearest teacher layer {teacher_layer} ({value:.2f})")
    return "; ".join(parts)
