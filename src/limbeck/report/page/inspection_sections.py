"""What a report says of inspections: attention maps, divergences, similarity, contribution, phrases."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from limbeck.inspection import MEAN_HEAD
from limbeck.report.drawing import short_name
from limbeck.report.page.content import Block, Figure, Notes, Paragraph, Section
from limbeck.report.page.draw_heat import Heat
from limbeck.report.page.draw_plot import Plot, Series
from limbeck.report.page.findings import InspectionFound, Record
from limbeck.report.page.guarded import guarded
from limbeck.report.page.make_figures import heat_figure, plot_figure
from limbeck.report.page.scales import Axis

_MOST_CELLS = 16_000
"""Of all attention maps of a page; more would make it slow."""
_MOST_TOKENS = 100
_ROLES = ("student", "teacher")


def inspection_sections(found: InspectionFound) -> list[Section]:
    """Lay out what inspections left in a folder."""
    builders = {
        "attention": ("Attention", _attention),
        "similarity": ("Similarity of layers", _similarity),
        "contribution": ("Contribution of layers", _contribution),
        "phrases": ("Phrases", _phrases),
    }
    sections: list[Section] = []
    if found.problems:
        sections += guarded("Damaged files", lambda: [Notes(found.problems, warning=True)])
    for name, (title, build) in builders.items():
        if name in found.results:
            sections += guarded(title, lambda build=build, name=name: build(found.results[name]))  # type: ignore[misc]
    return sections


def _attention(result: Record) -> Iterator[Block]:
    if result["divergence"] is not None:
        yield _divergence(result["divergence"])
    maps = result["maps"]
    tokens = [str(token) for token in maps["tokens"]]
    shown = [one for pair in maps["pairs"] for one in reversed(pair) if one is not None]
    if len(tokens) > _MOST_TOKENS:
        yield Notes(
            (f"Of {len(tokens)} tokens the maps are too large for a page; the picture of `limbeck inspect` has them.",)
        )
        return
    yield Paragraph(f"Maps of the sentence: {' '.join(tokens)}")
    most = max(2, _MOST_CELLS // max(1, len(tokens) ** 2))
    high = max(max(map(max, one["values"])) for one in shown)
    for one in shown[:most]:
        yield _map(one, tokens, high)
    if len(shown) > most:
        yield Notes((f"{len(shown) - most} more maps are in '{maps['student']}'s inspection.",))


def _map(one: Record, tokens: Sequence[str], high: float) -> Figure:
    head = "mean of heads" if one["head"] == MEAN_HEAD else f"head {one['head']}"
    owner = "" if one["role"] == "model" else f"{one['role']}, "
    title = f"Attention: {owner}layer {one['layer']}, {head}"
    values = _rows(one["values"])
    strongest = [row.index(max(row)) for row in one["values"]]
    words = "; ".join(
        f"{token} looks most at {tokens[at]} ({values[index][at]:.2f})"
        for index, (token, at) in enumerate(zip(tokens, strongest, strict=True))
    )
    heat = Heat(values, tokens, tokens, "looks", "is looked at", 0.0, high, "attention; a row sums to 1")
    return heat_figure(title, heat, f"Attention of {len(tokens)} tokens. {words}.")


def _divergence(result: Record) -> Figure:
    means = [[None if None in heads else sum(heads) / len(heads) for heads in row] for row in result["values"]]
    known = [value for row in means for value in row if value is not None]
    words = _nearest(means, lowest=True, first=1)
    how = "mean over heads" if result["by_head"] else "maps averaged over heads"
    heat = Heat(
        means, _numbers(len(means), 1), _numbers(len(means[0]), 1), "student layer", "teacher layer", 0.0,
        max([*known, 1e-6]), "nats (0: alike)", upwards=True,
    )  # fmt: skip
    caption = f"KL(teacher ‖ student), {how}, over {result['tokens']:,} tokens: {_pair(result)}."
    return heat_figure("Divergence of attention", heat, f"Mean divergence in nats. {words}.", caption=caption)


def _similarity(result: Record) -> Iterator[Block]:
    values = _rows(result["values"])
    one = result["student"] == result["teacher"]
    heat = Heat(
        values, _numbers(len(values), 0), _numbers(len(values[0]), 0), "layer" if one else "student layer",
        "layer" if one else "teacher layer", 0.0, 1.0, "linear CKA (1: alike)", upwards=True,
    )  # fmt: skip
    words = _nearest(values, lowest=False, first=0)
    caption = f"Layer 0 is the embedding output; {result['tokens']:,} tokens: {_pair(result)}."
    yield heat_figure("Similarity of layers", heat, f"Linear CKA. {words}.", caption=caption)


def _contribution(result: Sequence[Record]) -> Iterator[Block]:
    series = [
        Series(label, list(enumerate(model["cosines"], start=1)), style)
        for style, (label, model) in enumerate(zip(_labels(result), result, strict=True))
    ]
    y = Axis("cosine of input and output")
    caption = "The lower, the more a layer changes what it is given."
    yield plot_figure(
        "How much each layer keeps of its input", Plot(series, Axis("layer", whole=True), y), caption=caption
    )


def _phrases(result: Record) -> Iterator[Block]:
    series = []
    for style, (label, model) in enumerate(zip(_labels(result["models"]), result["models"], strict=True)):
        means = [statistics.fmean(runs) for runs in model["scores"]]
        spread = [statistics.stdev(runs) if len(runs) > 1 else 0.0 for runs in model["scores"]]
        band = [(mean - half, mean + half) for mean, half in zip(means, spread, strict=True)]
        series.append(Series(label, list(enumerate(means)), style, band=band if any(spread) else ()))
    x, y = Axis("layer (0: embedding output)", whole=True), Axis("normalised mutual information", from_zero=True)
    spans = f"{sum(result['labels'].values()):,} spans"
    caption = f"k-means with k = {result['clusters']} over {spans}; the band is the deviation over seeds."
    yield plot_figure("What each layer knows of phrases", Plot(series, x, y), caption=caption)


def _labels(models: Sequence[Record]) -> list[str]:
    if len(models) == 1:
        return [short_name(models[0]["name"])]
    return [f"{role}: {short_name(model['name'])}" for role, model in zip(_ROLES, models, strict=True)]


def _pair(result: Record) -> str:
    ours, theirs = short_name(result["student"]), short_name(result["teacher"])
    return ours if result["student"] == result["teacher"] else f"student {ours}, teacher {theirs}"


def _rows(values: Any) -> list[list[float | None]]:
    return [[None if value is None else float(value) for value in row] for row in values]


def _numbers(count: int, first: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _nearest(values: Sequence[Sequence[float | None]], *, lowest: bool, first: int) -> str:
    """Say for each layer of the student which layer of the teacher is most like it."""
    said = []
    for index, row in enumerate(values):
        known = [(value, place) for place, value in enumerate(row) if value is not None]
        if known:
            value, place = min(known) if lowest else max(known)
            said.append(f"student layer {index + first}: nearest teacher layer {place + first} ({value:.2f})")
    return "; ".join(said)
