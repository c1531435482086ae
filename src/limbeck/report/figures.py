"""Figures of runs, comparisons, evaluations and inspections: the plot, the words for it, and the table of its numbers.

Page and file show the same figure; a file of an inspection gathers as panels what the page shows one by one.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from limbeck.core.blocks import NOTHING, Block, Figure, Notes, Table, slug
from limbeck.inspection import MEAN_HEAD
from limbeck.report import plots
from limbeck.report.findings import RATE, Curve, RunFound, StageFound
from limbeck.report.layer_links import LayerLinks, without_layers
from limbeck.report.plot_drawing import names_fit
from limbeck.search.shape_space import pareto_front

MOST_ROWS = 200
_SAID_POINTS = 12


def plot_figure(title: str, plot: plots.Plot, *, name: str = "", caption: str = "") -> Figure:
    """Make a figure of a plot; points that have names are listed by them, the others by their place.

    Args:
        title: A line.
        plot: What is drawn.
        name: Of its file; by default made of the title.
        caption: What a reader should know to read it.
    """
    named = any(series.names for series in plot.series)
    data = _named_points(plot) if named else _points_by_place(plot)
    words = f"{plot.y.label} over {plot.x.label}. " + " ".join(_describe(series) for series in plot.series)
    return Figure(slug(name or title), title, caption, words, plot, data)


def bars_figure(
    title: str, groups: Sequence[plots.BarGroup], label: str, *, name: str = "", caption: str = ""
) -> Figure:
    """Make a figure of bars."""
    rows = [(group.title, bar.label, bar.written) for group in groups for bar in group.bars]
    words = "; ".join(f"{group}, {bar}: {written}" for group, bar, written in rows)
    data = Table(title, ("", "Of", label), tuple(rows), words=(1,))
    return Figure(slug(name or title), title, caption, f"Bars of {label}. {words}.", plots.Bars(groups, label), data)


def heat_figure(title: str, heat: plots.Heat, words: str, *, name: str = "", caption: str = "") -> Figure:
    """Make a figure of a heat map.

    Args:
        title: A line.
        heat: What is drawn.
        words: What is seen, in numbers.
        name: Of its file; by default made of the title.
        caption: What a reader should know to read it.
    """
    rows = [
        (name_of_row, *(NOTHING if value is None else f"{value:.3f}" for value in values))
        for name_of_row, values in zip(heat.row_names, heat.values, strict=False)
    ]
    data = Table(f"{heat.label}: {heat.row_title} by {heat.column_title}", ("", *heat.column_names), tuple(rows))
    return Figure(slug(name or title), title, caption, words, heat, data)


def _points_by_place(plot: plots.Plot) -> Table:
    """List all series beside each other, a row for each place on the horizontal axis."""
    values = [dict(series.points) for series in plot.series]
    places = sorted({x for found in values for x in found})
    step = max(1, -(-len(places) // MOST_ROWS))
    shown = [place for index, place in enumerate(places) if index % step == 0 or index == len(places) - 1]
    rows = tuple((plots.show(x), *(_cell(found.get(x)) for found in values)) for x in shown)
    headings = (plot.x.label, *(series.label for series in plot.series))
    return Table(plot.y.label, headings, rows, left_out=len(places) - len(shown))


def _named_points(plot: plots.Plot) -> Table:
    rows = [
        (name, series.label, plots.show(x), plots.show(y))
        for series in plot.series
        for (x, y), name in zip(series.points, series.names or [""] * len(series.points), strict=False)
        if name
    ]
    headings = ("", "Shown as", plot.x.label, plot.y.label)
    return Table(plot.y.label, headings, tuple(rows[:MOST_ROWS]), words=(1,), left_out=max(0, len(rows) - MOST_ROWS))


def _cell(value: float | None) -> str:
    return NOTHING if value is None else plots.show(value)


def _describe(series: plots.Series) -> str:
    """Say in numbers what a series shows: each point of a few, else its course."""
    if not series.points:
        return f"{series.label}: nothing."
    if series.names or len(series.points) <= _SAID_POINTS:
        names = series.names or [""] * len(series.points)
        said = "; ".join(
            f"{name + ': ' if name else ''}{plots.show(x)}, {plots.show(y)}"
            for (x, y), name in list(zip(series.points, names, strict=False))[:_SAID_POINTS]
        )
        more = f"; and {len(series.points) - _SAID_POINTS} more" if len(series.points) > _SAID_POINTS else ""
        return f"{series.label}: {said}{more}."
    first, last = series.points[0], series.points[-1]
    low = min(series.points, key=lambda point: point[1])
    return (
        f"{series.label}: from {plots.show(first[1])} at {plots.show(first[0])} to {plots.show(last[1])} at "
        f"{plots.show(last[0])}, lowest {plots.show(low[1])} at {plots.show(low[0])}."
    )


# Quality against latency, with the models that no other beats in both.


_ROOM = 0.25


@dataclass(frozen=True)
class Measured:
    """A model that was measured.

    Args:
        name: Of the model.
        latency: Milliseconds a pass.
        quality: More is better.
        teacher: Whether it is a teacher.
    """

    name: str
    latency: float
    quality: float
    teacher: bool = False


def quality_figure(models: Sequence[Measured], quality: str, latency: str, *, lowest: bool = False) -> Figure:
    """Draw models by latency and quality, and the front of those that no other beats in both.

    Args:
        models: Two or more.
        quality: The quantity, with its unit.
        latency: What a pass is.
        lowest: Less is better of the quality.
    """
    sign = 1 if lowest else -1
    front = pareto_front([(sign * model.quality, model.latency) for model in models])
    joined = [(models[index].latency, models[index].quality) for index in front]
    steps = [plots.Series("Pareto front", joined, 5, "steps")] if len(joined) > 1 else []
    # With room below, or a student that keeps nearly all would lie on the edge as if it kept nothing.
    axes = plots.Axis(f"latency, ms ({latency})", from_zero=True), plots.Axis(quality, room=_ROOM)
    plot = plots.Plot([*steps, *_points(models, numbered=False)], *axes)
    numbers = ""
    if not names_fit(plot):
        plot = plots.Plot([*steps, *_points(models, numbered=True)], *axes)
        numbers = f" {'; '.join(f'{number}: {model.name}' for number, model in enumerate(models, start=1))}."
    names = ", ".join(models[index].name for index in front)
    better = "lower" if lowest else "upper"
    caption = f"The {better} left corner is best. Beaten by no other model in both: {names}.{numbers}"
    return plot_figure("Quality against latency", plot, caption=caption)


def _points(models: Sequence[Measured], *, numbered: bool) -> list[plots.Series]:
    """The students and the teachers, with their names beside them, or with numbers for these."""
    kinds = (("student", False), ("teacher", True))
    series = []
    for style, (label, teacher) in enumerate(kinds):
        found = [(str(number), model) for number, model in enumerate(models, start=1) if model.teacher == teacher]
        if found:
            points = [(model.latency, model.quality) for _, model in found]
            names = [f"{number}: {model.name}" if numbered else model.name for number, model in found]
            numbers = [number for number, _ in found] if numbered else []
            series.append(plots.Series(label, points, style, "points", names=names, numbers=numbers))
    return series


# The layer mapping of a method as a diagram, with its terms.


_SAID_PAIRS = 40


def layers_figure(title: str, links: LayerLinks, caption: str = "") -> Figure:
    """Draw which layers of the student learn from which layers of the teacher, and list the terms.

    Args:
        title: A line.
        links: What the method joins.
        caption: What a reader should know to read it.
    """
    depths = f"Student of {links.student} layers, teacher of {links.teacher}"
    if not links.whole:
        depths += " or more"
        unknown = "How deep the models are is not recorded: layers above the highest that takes part are not drawn."
        caption = f"{caption} {unknown}".strip()
    words = f"{depths}. " + " ".join(_describe_links(kind) for kind in links.kinds)
    columns = tuple(index for index, heading in enumerate(links.headings) if index and heading != "Weight")
    drawing = plots.Links(links.student, links.teacher, links.kinds)
    return Figure(slug(title), title, caption, words, drawing, Table("Terms", links.headings, links.terms, columns))


def _describe_links(kind: plots.LinkKind) -> str:
    if not kind.pairs:
        return f"{kind.label}: reads no teacher."
    said = ", ".join(f"{_name_layer(s)} from {_name_layer(t)}" for s, t in kind.pairs[:_SAID_PAIRS])
    more = f" and {len(kind.pairs) - _SAID_PAIRS} more" if len(kind.pairs) > _SAID_PAIRS else ""
    return f"{kind.label}: {said}{more}."


def _name_layer(layer: int) -> str:
    return "scores" if layer == plots.SCORES else "embedding" if layer == 0 else str(layer)


# Curves over the steps of a stage, and of several runs beside each other.

Curves: TypeAlias = Sequence[tuple[str, Curve]]
"""Each with its label."""
_AT_ONCE = 4
_COMPARE = "Losses compare only where the terms, their weights and the text are the same."
_SHARES = (
    "Losses of different terms are on no common scale: each is a share of the first that was logged, so that only "
    "the form of the curves compares."
)


def loss_blocks(stage: StageFound, heading: str) -> Iterator[Block]:
    """Draw the whole loss, tokens a second, then the terms in groups, then note how they were logged.

    Args:
        stage: A stage.
        heading: The beginning of the titles of its figures.
    """
    log = stage.log
    if not log.curves:
        yield Notes((f"{heading}: {'no log is there' if stage.is_finished else 'nothing was logged yet'}.",))
    drawn = {"Loss": {"training": "loss", "held-out text": "eval_loss"}}
    terms = log.terms()
    for title, group in _groups(terms).items() if len(terms) > 1 else ():
        drawn[f"Term {title}"] = {term: f"loss_{term}" for term in group}
        measured = {term: f"eval_{term}" for term in group}
        if len(group) == 1:
            [term] = group
            drawn[f"Term {title}"] = {f"{term}, training": f"loss_{term}", f"{term}, held-out text": measured[term]}
        elif any(len(curve.points) > 1 for curve in map(log.curves.get, measured.values()) if curve):
            drawn[f"Term {title}, held-out text"] = measured
    for title, names in drawn.items():
        found = [(label, curve) for label, name in names.items() if (curve := log.curves.get(name)) is not None]
        if found:
            yield _curves_figure(f"{heading}: {title}", found, "mean over the steps since the last log")
        rate = log.curves.get(RATE)
        if title == "Loss" and rate is not None and len(rate.points) > 1:  # One value is in the table of stages.
            label = "tokens a second since the last log, without padding and evaluation"
            yield _curves_figure(f"{heading}: Tokens/s", [("tokens/s", rate)], label, zero=True, style=2)
    yield from _notes(stage, heading)


def course_figures(runs: Sequence[tuple[str, RunFound]]) -> Iterator[Figure]:
    """Draw the courses of runs beside each other: as they are where stages are alike, else as shares of their start.

    Args:
        runs: Each with its label.
    """
    alike: dict[tuple[str, str], list[tuple[str, StageFound]]] = {}
    by_place: dict[int, list[tuple[str, StageFound]]] = {}
    for label, run in runs:
        for place, stage in enumerate(run.stages, start=1):
            if stage.log.curves.get("loss") is not None:
                alike.setdefault((stage.title, stage.method), []).append((label, stage))
                by_place.setdefault(place, []).append((label, stage))
    for (title, method), courses in alike.items():
        heading = f"Stage '{title}' ({method}) of the runs"
        yield from _in_batches(heading, _found(courses, "loss"), "training loss", _COMPARE)
        held_out = _found(courses, "eval_loss")
        yield from _in_batches(f"{heading}, held-out text", held_out, "loss on held-out text", _COMPARE)
    for place, courses in by_place.items():
        if len({(stage.title, stage.method) for _, stage in courses}) > 1:
            heading = f"Stage {place} of the runs, as shares of the first loss"
            shares = [(label, _share(curve)) for label, curve in _found(courses, "loss") if curve.points[0][1] > 0]
            yield from _in_batches(heading, shares, "training loss, as a share of the first logged", _SHARES)
        rates = _found(courses, RATE)
        yield from _in_batches(f"Tokens/s in stage {place} of the runs", rates, "tokens a second", zero=True)


def _curves_figure(
    title: str,
    curves: Sequence[tuple[str, Curve]],
    label: str,
    caption: str = "",
    *,
    zero: bool = False,
    style: int = 0,
) -> Figure:
    """Draw curves over the step, on a logarithmic scale where they span widely, and say if they were thinned."""
    series = [plots.Series(name, curve.points, style + n, band=curve.ranges) for n, (name, curve) in enumerate(curves)]
    log = not zero and plots.spans_widely(y for one in series for _, y in one.points)
    most = max((curve.logged for _, curve in curves if curve.ranges), default=0)
    thinned = f"Thinned from {most:,} points: lines are means of neighbours, bands reach from least to greatest."
    y = plots.Axis(label + (", logarithmic" if log else ""), log=log, from_zero=zero)
    said = " ".join(filter(None, (caption, thinned if most else "")))
    return plot_figure(title, plots.Plot(series, plots.Axis("step", whole=True), y), caption=said)


def _in_batches(title: str, found: Curves, label: str, caption: str = "", *, zero: bool = False) -> Iterator[Figure]:
    """Draw the same curve of runs, few enough in a figure to be distinguished; nothing where only one has it."""
    if len(found) < 2 or max(len(curve.points) for _, curve in found) < 2:
        return
    figures = -(-len(found) // plots.SERIES)
    size = -(-len(found) // figures)
    for number in range(figures):
        several = f" ({number + 1} of {figures})" if figures > 1 else ""
        batch = found[number * size : (number + 1) * size]
        yield _curves_figure(f"{title}{several}", batch, label, caption, zero=zero)


def _found(courses: Sequence[tuple[str, StageFound]], name: str) -> Curves:
    return [(label, curve) for label, stage in courses if (curve := stage.log.curves.get(name)) is not None]


def _share(curve: Curve) -> Curve:
    """Divide a curve by its first value."""
    first = curve.points[0][1]
    points = tuple((x, y / first) for x, y in curve.points)
    return Curve(points, tuple((low / first, high / first) for low, high in curve.ranges), curve.logged)


def _groups(terms: Sequence[str]) -> dict[str, Sequence[str]]:
    """Gather terms that differ in their layers only, few enough for one figure."""
    by_stem: dict[str, list[str]] = {}
    for term in terms:
        by_stem.setdefault(without_layers(term), []).append(term)
    groups: dict[str, Sequence[str]] = {}
    for stem, found in by_stem.items():
        count = -(-len(found) // _AT_ONCE)
        for part in range(count):
            title = f"{stem} ({part + 1} of {count})" if count > 1 else stem
            groups[title] = found[part * _AT_ONCE : (part + 1) * _AT_ONCE]
    return groups


def _notes(stage: StageFound, heading: str) -> Iterator[Block]:
    log = stage.log
    if not stage.is_finished and log.lines:
        step = f", up to step {log.reached['step']:,.0f}" if "step" in log.reached else ""
        yield Notes((f"{heading} is not finished: its curves are from {log.source}{step}.",))
    not_finite = f"{heading}: {log.not_finite:,} logged values are infinite or no numbers, and are not drawn."
    damaged = f"{heading}: {log.damaged:,} lines of {log.source} are damaged, and are passed over."
    if problems := [*[not_finite] * bool(log.not_finite), *[damaged] * bool(log.damaged)]:
        yield Notes(tuple(problems), warning=True)


# Inspections: attention maps, divergences, similarity, contribution, phrases.


def short_name(name: str) -> str:
    """Return a model's name as a picture has room for it: a folder by its last two parts, a package by its name."""
    parts = name.removeprefix("package:").rstrip("/").split("/")
    return "/".join(part for part in parts[-2:] if part not in ("", ".", ".."))


def name_roles(names: Sequence[str]) -> list[str]:
    """Return the labels of one model, or of a student and a teacher."""
    if len(names) == 1:
        return [short_name(names[0])]
    return [f"{role}: {short_name(name)}" for role, name in zip(("student", "teacher"), names, strict=True)]


def inspection_pictures(name: str, result: Any) -> dict[str, Figure]:
    """Return the figures that an inspection leaves, by their addition to the file's name.

    Args:
        name: Of the inspection.
        result: As plain values.
    """
    if name != "attention":
        return {"": INSPECTIONS[name](result)}
    maps, far = result["maps"], result["divergence"]
    return {"": attention_figure(maps)} | ({} if far is None else {"-divergence": divergence_figure(far, heads=True)})


def attention_figure(maps: Mapping[str, Any]) -> Figure:
    """Draw all attention maps of a sentence as panels on one scale, the teacher's to the left of the student's."""
    panels = [(figure.title.partition(": ")[2], figure.drawing) for figure in map_figures(maps)]
    pairs = len(maps["pairs"])
    columns = (1 if pairs <= 2 else 2 if pairs <= 8 else 3) * (len(panels) // pairs)
    title = f"Attention of {short_name(maps['student'])}"
    if maps["teacher"] is not None:
        title += f" (student) beside {short_name(maps['teacher'])} (teacher)"
    words = (
        "Attention maps, a row for each token that looks and a column for each that is looked at: "
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
        head = "mean of heads" if one["head"] == MEAN_HEAD else f"head {one['head']}"
        owner = "" if one["role"] == "model" else f"{one['role']}, "
        most = [(max(row), tokens[row.index(max(row))]) for row in one["values"]]
        found = (f"{token} looks most at {at} ({value:.2f})" for token, (value, at) in zip(tokens, most, strict=True))
        heat = plots.Heat(
            one["values"], tokens, tokens, "looks", "is looked at", 0.0, high, "attention; a row sums to 1"
        )
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
    scale: dict[str, Any] = {"low": 0.0, "high": max(high, 1e-6), "label": "nats (0: alike)", "upwards": True}
    heat = plots.Heat(means, _count(means, 1), _count(means[0], 1), "student layer", "teacher layer", **scale)
    how = "mean over heads" if result["by_head"] else "maps averaged over heads"
    caption = f"KL(teacher ‖ student), {how}, over {result['tokens']:,} tokens: {_pair(result)}."
    words = f"Mean divergence in nats. {_describe_nearest(means, nearest, 1)}."
    figure = heat_figure("Divergence of attention", heat, words, caption=caption)
    if not found:
        return figure
    rows = [f"{layer + 1} : {near + 1}" for layer, near in nearest.items()]
    each = plots.Heat(found, rows, _count(found[0], 1), "student layer : nearest teacher layer", "head", **scale)
    return replace(figure, drawing=plots.Panels([(how, heat), ("each head, nearest layers", each)], 2))


def similarity_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    values = [[None if value is None else float(value) for value in row] for row in result["values"]]
    owners = ("", "") if result["student"] == result["teacher"] else ("student ", "teacher ")
    rows, columns = (f"{owner}layer" for owner in owners)
    heat = plots.Heat(
        values, _count(values, 0), _count(values[0], 0), rows, columns, 0.0, 1.0, "linear CKA (1: alike)", upwards=True
    )
    words = f"Linear CKA. {_describe_nearest(values, _nearest(values, lowest=False), 0)}."
    caption = f"Layer 0 is the embedding output; {result['tokens']:,} tokens: {_pair(result)}."
    return heat_figure("Similarity of layers", heat, words, caption=caption)


def contribution_figure(result: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the mean cosine between the input and the output of each layer, a line for each model."""
    labels = name_roles([model["name"] for model in result])
    lines = [list(enumerate(model["cosines"], start=1)) for model in result]
    series = [plots.Series(label, line, style) for style, (label, line) in enumerate(zip(labels, lines, strict=True))]
    plot = plots.Plot(series, plots.Axis("layer", whole=True), plots.Axis("cosine of input and output"))
    caption = "The lower, the more a layer changes its input."
    return plot_figure("How much each layer keeps of its input", plot, caption=caption)


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
    return plot_figure("What each layer knows of phrases", plots.Plot(series, x, y), caption=caption)


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


INSPECTIONS: dict[str, Callable[[Any], Figure]] = {
    "similarity": similarity_figure,
    "contribution": contribution_figure,
    "phrases": phrases_figure,
}
"""Inspections of one figure, by name."""
