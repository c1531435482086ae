"""Figures of inspections, from the plain values of a result: attention maps, divergence, similarity, curves by layer.

Page and file show the same figure; a file gathers as panels what the page shows one by one.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from limbeck.core import studies
from limbeck.core.blocks import Figure, Table
from limbeck.report.figures import heat_figure, lines_figure
from limbeck.report.names import name_roles, short_name
from limbeck.report.plots import Heat, Lines, Panels, Series

Result: TypeAlias = Mapping[str, Any]
Matrix: TypeAlias = Sequence[Sequence[float | None]]


def inspection_pictures(name: str, result: Any) -> dict[str, Figure]:
    """Return the figures that an inspection leaves, by the end of the file's name.

    Args:
        name: Of the inspection.
        result: As plain values.
    """
    if name != "attention":
        return {"": SINGLE_FIGURES[name](result)}
    pictures = {"": attention_figure(result["maps"])}
    if result["divergence"] is not None:
        pictures["-divergence"] = divergence_and_heads_figure(result["divergence"])
    return pictures


def attention_figure(maps: Result) -> Figure:
    """Draw all attention maps of a sentence as panels on one scale, the teacher's to the left of the student's."""
    panels = [(figure.title.partition(": ")[2], figure.drawing) for figure in map_figures(maps)]
    # As many pairs beside each other as a page of paper can hold.
    count = len(maps["pairs"])
    pairs_beside = 3
    if count <= 2:
        pairs_beside = 1
    elif count <= 8:
        pairs_beside = 2
    models = len(panels) // count
    title = f"Attention of {short_name(maps['student'])}"
    if maps["teacher"] is not None:
        title += f" (student) beside {short_name(maps['teacher'])} (teacher)"
    names = [name for name, _ in panels]
    words = (
        "Attention maps, one row per attending token and one column per attended token: "
        f"{'; '.join(names)}. Tokens: {' '.join(map(str, maps['tokens']))}"
    )
    data = Table(title, ("",), tuple((name,) for name in names))
    return Figure("attention", title, "", words, Panels(panels, pairs_beside * models), data)


def map_figures(maps: Result) -> list[Figure]:
    """Draw each attention map of a sentence, the teacher's before the student's; every row is a token that looks."""
    tokens = [str(token) for token in maps["tokens"]]
    shown = []
    for student, teacher in maps["pairs"]:
        if teacher is not None:
            shown.append(teacher)
        shown.append(student)
    # One scale for all maps, so that their colours compare.
    high = max(max(map(max, attention["values"])) for attention in shown)
    return [_map_figure(attention, tokens, high) for attention in shown]


def _map_figure(attention: Result, tokens: Sequence[str], high: float) -> Figure:
    values = attention["values"]
    words = []
    for token, row in zip(tokens, values, strict=True):
        most = max(row)
        words.append(f"{token} attends most to {tokens[row.index(most)]} ({most:.2f})")
    head = "mean of heads" if attention["head"] == studies.MEAN_HEAD else f"head {attention['head']}"
    owner = "" if attention["role"] == "model" else f"{attention['role']}, "
    label = "attention (each row sums to 1)"
    heat = Heat(values, tokens, tokens, "attending token", "attended token", 0.0, high, label)
    title = f"Attention: {owner}layer {attention['layer']}, {head}"
    return heat_figure(title, heat, f"Attention of {len(tokens)} tokens. {'; '.join(words)}.")


def divergence_figure(result: Result) -> Figure:
    """Draw the mean divergence of every pair of layers."""
    means = _mean_divergences(result)
    highest = max((value for row in means for value in row if value is not None), default=0.0)
    return _divergence_figure(result, _divergence_heat(means, highest))


def divergence_and_heads_figure(result: Result) -> Figure:
    """Draw the mean divergence, and beside it each head against the nearest teacher layer, on one scale."""
    means = _mean_divergences(result)
    nearest = _best_columns(means, min)
    heads = []
    names = []
    if result["by_head"]:
        for layer, teacher_layer in nearest.items():
            heads.append(result["values"][layer][teacher_layer])
            names.append(f"{layer + 1} : {teacher_layer + 1}")
    if not heads:
        return divergence_figure(result)
    # One scale for means and heads.
    highest = max(value for row in (*means, *heads) for value in row if value is not None)
    heat = _divergence_heat(means, highest)
    each = replace(
        heat,
        values=heads,
        row_names=names,
        column_names=_numbered(heads[0], 1),
        row_title="student layer : nearest teacher layer",
        column_title="head",
    )
    panels = Panels([("mean over heads", heat), ("each head, nearest layers", each)], 2)
    return replace(_divergence_figure(result, heat), drawing=panels)


def _mean_divergences(result: Result) -> list[list[float | None]]:
    """Return the mean over heads by layers of student and teacher; None where a head has no value."""
    return [[_mean_of_heads(heads) for heads in layer] for layer in result["values"]]


def _mean_of_heads(heads: Sequence[float | None]) -> float | None:
    known = [value for value in heads if value is not None]
    return sum(known) / len(known) if len(known) == len(heads) else None


def _divergence_heat(means: Matrix, highest: float) -> Heat:
    return Heat(
        means,
        _numbered(means, 1),
        _numbered(means[0], 1),
        "student layer",
        "teacher layer",
        low=0.0,
        high=max(highest, 1e-6),
        label="nats (0: identical)",
        upwards=True,
    )


def _divergence_figure(result: Result, heat: Heat) -> Figure:
    how = "mean over heads" if result["by_head"] else "maps averaged over heads"
    caption = f"KL(teacher ‖ student), {how}, over {result['tokens']:,} tokens: {_pair(result)}."
    nearest = _describe_nearest(heat.values, _best_columns(heat.values, min), 1)
    return heat_figure("Divergence of attention", heat, f"Mean divergence in nats. {nearest}.", caption)


def similarity_figure(result: Result) -> Figure:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    values = result["values"]
    row_title, column_title = "student layer", "teacher layer"
    if result["student"] == result["teacher"]:
        row_title, column_title = "layer", "layer"
    heat = Heat(
        values,
        _numbered(values, 0),
        _numbered(values[0], 0),
        row_title,
        column_title,
        low=0.0,
        high=1.0,
        label="linear CKA (1: identical)",
        upwards=True,
    )
    nearest = _describe_nearest(values, _best_columns(values, max), 0)
    caption = f"Layer 0 is the embedding output; {result['tokens']:,} tokens: {_pair(result)}."
    return heat_figure("Similarity of layers", heat, f"Linear CKA. {nearest}.", caption)


def contribution_figure(result: Sequence[Result]) -> Figure:
    """Draw the mean cosine between the input and the output of each layer, a line for each model."""
    labels = name_roles([model["name"] for model in result])
    series = []
    for label, model in zip(labels, result, strict=True):
        series.append(Series(label, list(enumerate(model["cosines"], start=1))))
    plot = Lines(series, "layer", "cosine of input and output", x_is_whole=True)
    caption = "The lower the value, the more a layer changes its input."
    return lines_figure("How much each layer keeps of its input", plot, caption)


def phrases_figure(result: Result) -> Figure:
    """Draw the normalised mutual information of each layer, a line for each model, with the deviation over seeds."""
    labels = name_roles([model["name"] for model in result["models"]])
    series = [_scores_by_layer(label, model) for label, model in zip(labels, result["models"], strict=True)]
    label = "normalised mutual information"
    plot = Lines(series, "layer (0: embedding output)", label, x_is_whole=True, y_from_zero=True)
    spans = f"{sum(result['labels'].values()):,} spans"
    caption = f"k-means with k = {result['clusters']} over {spans}; the band is the deviation over seeds."
    return lines_figure("What each layer knows about phrases", plot, caption)


def _scores_by_layer(label: str, model: Result) -> Series:
    """Return the mean score of each layer over the runs of k-means, in a band of its deviation if there are several."""
    points = []
    band = []
    for layer, runs in enumerate(model["scores"]):
        mean = statistics.fmean(runs)
        points.append((layer, mean))
        deviation = statistics.stdev(runs) if len(runs) > 1 else 0.0
        band.append((mean - deviation, mean + deviation))
    has_band = any(low < high for low, high in band)
    return Series(label, points, band=band if has_band else ())


SINGLE_FIGURES: dict[str, Callable[[Any], Figure]] = {
    "similarity": similarity_figure,
    "contribution": contribution_figure,
    "phrases": phrases_figure,
}
"""Inspections of one figure, by name."""


def _pair(result: Result) -> str:
    student = short_name(result["student"])
    if result["student"] == result["teacher"]:
        return student
    return f"student {student}, teacher {short_name(result['teacher'])}"


def _numbered(values: Sequence[object], first: int) -> list[str]:
    return [str(number) for number in range(first, first + len(values))]


def _best_columns(values: Matrix, best: Callable[[list[tuple[float, int]]], tuple[float, int]]) -> dict[int, int]:
    """Return the column of the best value by row; rows without a value are left out.

    Args:
        values: The matrix.
        best: `min` or `max`.
    """
    columns = {}
    for index, row in enumerate(values):
        known = [(value, column) for column, value in enumerate(row) if value is not None]
        if known:
            columns[index] = best(known)[1]
    return columns


def _describe_nearest(values: Matrix, nearest: Mapping[int, int], first: int) -> str:
    parts = []
    for layer, column in nearest.items():
        value = values[layer][column]
        parts.append(f"student layer {layer + first}: nearest teacher layer {column + first} ({value:.2f})")
    return "; ".join(parts)
