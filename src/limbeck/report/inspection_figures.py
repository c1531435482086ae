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
    # A page of paper has room for three pairs in a row; few pairs fill a page better in fewer columns.
    pair_count = len(maps["pairs"])
    if pair_count <= 2:
        pairs_in_a_row = 1
    elif pair_count <= 8:
        pairs_in_a_row = 2
    else:
        pairs_in_a_row = 3
    maps_in_a_pair = len(panels) // pair_count
    title = f"Attention of {short_name(maps['student'])}"
    if maps["teacher"] is not None:
        title += f" (student) beside {short_name(maps['teacher'])} (teacher)"
    names = [name for name, _ in panels]
    words = (
        "Attention maps, one row per attending token and one column per attended token: "
        f"{'; '.join(names)}. Tokens: {' '.join(map(str, maps['tokens']))}"
    )
    data = Table(title, ("",), tuple((name,) for name in names))
    return Figure("attention", title, "", words, Panels(panels, columns=pairs_in_a_row * maps_in_a_pair), data)


def map_figures(maps: Result) -> list[Figure]:
    """Draw each attention map of a sentence, the teacher's before the student's; a row is an attending token."""
    tokens = [str(token) for token in maps["tokens"]]
    attention_maps = []
    for student, teacher in maps["pairs"]:
        if teacher is not None:
            attention_maps.append(teacher)
        attention_maps.append(student)
    # One scale for all maps, so that their colours compare.
    highest = max(weight for attention in attention_maps for row in attention["values"] for weight in row)
    return [_map_figure(attention, tokens, highest) for attention in attention_maps]


def _map_figure(attention: Result, tokens: Sequence[str], highest: float) -> Figure:
    """Draw one attention map; `highest` is the weight that is drawn darkest."""
    words = []
    for token, row in zip(tokens, attention["values"], strict=True):
        most = max(row)
        words.append(f"{token} attends most to {tokens[row.index(most)]} ({most:.2f})")
    head = "mean of heads" if attention["head"] == studies.MEAN_HEAD else f"head {attention['head']}"
    # The role of a model that is inspected alone is "model", which needs no mention.
    owner = "" if attention["role"] == "model" else f"{attention['role']}, "
    heat = Heat(
        attention["values"],
        row_names=tokens,
        column_names=tokens,
        row_title="attending token",
        column_title="attended token",
        low=0.0,
        high=highest,
        label="attention (each row sums to 1)",
    )
    title = f"Attention: {owner}layer {attention['layer']}, {head}"
    return heat_figure(title, heat, f"Attention of {len(tokens)} tokens. {'; '.join(words)}.")


def divergence_figure(result: Result) -> Figure:
    """Draw the mean divergence of every pair of layers."""
    means = _mean_divergences(result)
    highest = max((value for row in means for value in row if value is not None), default=0.0)
    return _divergence_figure(result, _divergence_heat(means, highest))


def divergence_and_heads_figure(result: Result) -> Figure:
    """Draw the mean divergence, and beside it each head against the nearest teacher layer, on one scale."""
    # Heads are not told apart where the models differ in their number.
    if not result["by_head"]:
        return divergence_figure(result)
    means = _mean_divergences(result)
    head_values = []
    layer_names = []
    for layer, teacher_layer in _best_columns(means, min).items():
        head_values.append(result["values"][layer][teacher_layer])
        layer_names.append(f"{layer + 1} : {teacher_layer + 1}")
    # Without any known mean there is no nearest layer to draw.
    if not head_values:
        return divergence_figure(result)

    # One scale for means and heads, so that their colours compare.
    highest = max(value for row in (*means, *head_values) for value in row if value is not None)
    heat_of_means = _divergence_heat(means, highest)
    heat_of_heads = replace(
        heat_of_means,
        values=head_values,
        row_names=layer_names,
        column_names=_numbered(head_values[0], 1),
        row_title="student layer : nearest teacher layer",
        column_title="head",
    )
    panels = Panels([("mean over heads", heat_of_means), ("each head, nearest layers", heat_of_heads)], columns=2)
    return replace(_divergence_figure(result, heat_of_means), drawing=panels)


def _mean_divergences(result: Result) -> list[list[float | None]]:
    """Return the mean over heads by layers of student and teacher; None where a head has no value."""
    return [[_mean_of_heads(heads) for heads in layer] for layer in result["values"]]


def _mean_of_heads(heads: Sequence[float | None]) -> float | None:
    """Return the mean of the heads' values; None where one of them is unknown."""
    known = [value for value in heads if value is not None]
    if len(known) < len(heads):
        return None
    return sum(known) / len(known)


def _divergence_heat(means: Matrix, highest: float) -> Heat:
    """Draw the mean divergences from white, 0, to the highest value of the figure."""
    return Heat(
        means,
        row_names=_numbered(means, 1),
        column_names=_numbered(means[0], 1),
        row_title="student layer",
        column_title="teacher layer",
        low=0.0,
        # The range of colours must not be empty where a model is compared with itself.
        high=max(highest, 1e-6),
        label="nats (0: identical)",
        upwards=True,
    )


def _divergence_figure(result: Result, heat: Heat) -> Figure:
    """Make the figure of a heat map of mean divergences, with its measure and the nearest layers in words."""
    # With equal numbers of heads, divergences are averaged; else the attention maps were, before they were compared.
    averaging = "mean over heads" if result["by_head"] else "maps averaged over heads"
    caption = f"KL(teacher ‖ student), {averaging}, over {result['tokens']:,} tokens: {_pair(result)}."
    nearest = _describe_nearest(heat.values, _best_columns(heat.values, min), 1)
    return heat_figure("Divergence of attention", heat, f"Mean divergence in nats. {nearest}.", caption)


def similarity_figure(result: Result) -> Figure:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    values = result["values"]
    is_one_model = result["student"] == result["teacher"]
    heat = Heat(
        values,
        row_names=_numbered(values, 0),
        column_names=_numbered(values[0], 0),
        row_title="layer" if is_one_model else "student layer",
        column_title="layer" if is_one_model else "teacher layer",
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
    """Return the mean score of each layer over the runs of k-means, in a band of one standard deviation each way."""
    points = []
    band = []
    for layer, runs in enumerate(model["scores"]):
        mean = statistics.fmean(runs)
        points.append((layer, mean))
        deviation = statistics.stdev(runs) if len(runs) > 1 else 0.0
        band.append((mean - deviation, mean + deviation))
    # With a single run no layer has a deviation, so there is no band to draw.
    has_band = any(low < high for low, high in band)
    return Series(label, points, band=band if has_band else ())


SINGLE_FIGURES: dict[str, Callable[[Any], Figure]] = {
    "similarity": similarity_figure,
    "contribution": contribution_figure,
    "phrases": phrases_figure,
}
"""Inspections of one figure, by name."""


def _pair(result: Result) -> str:
    """Name student and teacher, or the one model that is compared with itself."""
    student = short_name(result["student"])
    if result["student"] == result["teacher"]:
        return student
    return f"student {student}, teacher {short_name(result['teacher'])}"


def _numbered(values: Sequence[object], first: int) -> list[str]:
    """Return the numbers of so many layers or heads, counted from `first`."""
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
    """Name the nearest teacher layer of each student layer, where rows and columns are layers counted from `first`."""
    parts = []
    for layer, column in nearest.items():
        value = values[layer][column]
        parts.append(f"student layer {layer + first}: nearest teacher layer {column + first} ({value:.2f})")
    return "; ".join(parts)
