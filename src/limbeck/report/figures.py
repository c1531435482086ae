"""Figures: the plot, the words for it, and the table of its numbers; quality, layers and curves of runs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pydantic import ValidationError

from limbeck.core import records, studies
from limbeck.core.blocks import AnyCell, Block, Cell, Figure, Notes, Table, counted, mean, slug
from limbeck.errors import LimbeckError
from limbeck.methods import composition, registry
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.report import plot_drawing, plots
from limbeck.report.findings import RATE, Curve, RunFound, StageFound, StageLog
from limbeck.report.quality import ends_of
from limbeck.search.pareto import pareto_front

T = TypeVar("T")
MOST_ROWS = 200
_SAID_POINTS = 12


def plot_figure(title: str, plot: plots.Plot, caption: str = "") -> Figure:
    """Make a figure of a plot; points that have names are listed by them, the others by their place."""
    named = any(series.names for series in plot.series)
    data = _named_points(plot) if named else _points_by_place(plot)
    words = f"{plot.y.label} against {plot.x.label}. " + " ".join(_describe(series) for series in plot.series)
    return Figure(slug(title), title, caption, words, plot, data)


def bars_of(figures: Iterable[tuple[str, studies.Figure | None]], digits: int = 1) -> list[plots.Bar]:
    """Return the bars of the figures that are known, each with its label, in styles by their order."""
    return [
        plots.Bar(label, found.mean, found.deviation, style, str(mean(found, digits)), _interval_of(found))
        for style, (label, found) in enumerate(figures)
        if found is not None
    ]


_WHISKERS = ("the standard deviation over seeds", "the 95 % interval over the rows of the task")


def _interval_of(found: studies.Figure) -> tuple[float, float] | None:
    return ends_of(found.interval) if isinstance(found, studies.ColumnFigure) else None


def bars_figure(title: str, groups: Sequence[plots.BarGroup], label: str) -> Iterator[Figure]:
    """Make a figure of bars, none without a bar; its caption explains whiskers, if there are any."""
    if not any(group.bars for group in groups):
        return
    whiskers = {bar.deviation is None for group in groups for bar in group.bars if bar.ends is not None}
    shown = [_WHISKERS[of_rows] for of_rows in sorted(whiskers)]
    caption = f"Whiskers show {', or of one run '.join(shown)}." if shown else ""
    rows = [(group.title, bar.label, bar.text) for group in groups for bar in group.bars]
    words = "; ".join(f"{group}, {bar}: {text}" for group, bar, text in rows)
    data = Table(title, ("", "Model", label), tuple(rows), words=(1,))
    yield Figure(slug(title), title, caption, f"Bar chart of {label}. {words}.", plots.Bars(groups, label), data)


def heat_figure(title: str, heat: plots.Heat, words: str, caption: str = "") -> Figure:
    """Make a figure of a heat map; `words` say in numbers what is seen."""
    named = zip(heat.row_names, heat.values, strict=False)
    rows: list[tuple[AnyCell, ...]] = [(name, *(Cell(value, "{:.3f}") for value in values)) for name, values in named]
    data = Table(f"{heat.label}: {heat.row_title} by {heat.column_title}", ("", *heat.column_names), tuple(rows))
    return Figure(slug(title), title, caption, words, heat, data)


def _points_by_place(plot: plots.Plot) -> Table:
    """List all series beside each other, a row for each place on the horizontal axis."""
    values = [dict(series.points) for series in plot.series]
    places = sorted({x for found in values for x in found})
    step = max(1, -(-len(places) // MOST_ROWS))
    shown = [place for index, place in enumerate(places) if index % step == 0 or index == len(places) - 1]
    rows = tuple((plots.show(x), *(plots.show(found.get(x)) for found in values)) for x in shown)
    headings = (plot.x.label, *(series.label for series in plot.series))
    return Table(plot.y.label, headings, rows, left_out=len(places) - len(shown))


def _named_points(plot: plots.Plot) -> Table:
    rows = [
        (name, series.label, plots.show(x), plots.show(y))
        for series in plot.series
        for (x, y), name in zip(series.points, series.names or [""] * len(series.points), strict=False)
        if name
    ]
    headings = ("", "Series", plot.x.label, plot.y.label)
    return Table(plot.y.label, headings, tuple(rows[:MOST_ROWS]), words=(1,), left_out=max(0, len(rows) - MOST_ROWS))


def _describe(series: plots.Series) -> str:
    """Say in numbers what a series shows: each point of a few, else its course."""
    points = [(plots.show(x), plots.show(y)) for x, y in series.points]
    if not points:
        return f"{series.label}: no points."
    if series.names or len(points) <= _SAID_POINTS:
        names = [f"{name}: " if name else "" for name in series.names or [""] * len(points)]
        said = "; ".join(f"{name}{x}, {y}" for name, (x, y) in list(zip(names, points, strict=False))[:_SAID_POINTS])
        more = f"; and {len(points) - _SAID_POINTS} more" if len(points) > _SAID_POINTS else ""
        return f"{series.label}: {said}{more}."
    (start, first), (end, last) = points[0], points[-1]
    place, lowest = points[min(range(len(points)), key=lambda index: series.points[index][1])]
    return f"{series.label}: from {first} at {start} to {last} at {end}, lowest {lowest} at {place}."


# Quality against latency, with the models that no other beats in both.


_ROOM = 0.1


class Measured(NamedTuple):
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


def measured(models: Iterable[tuple[str, float | None, float | None, bool]]) -> list[Measured]:
    """Return the models whose latency and quality are both known."""
    return [
        Measured(name, latency, quality, teacher)
        for name, latency, quality, teacher in models
        if latency is not None and quality is not None
    ]


def quality_figures(
    models: Sequence[Measured], quality: str, latency: str, *, lowest: bool = False, front: bool = True
) -> Iterator[Figure]:
    """Draw models by latency and quality, where there are several.

    Args:
        models: Those that were measured.
        quality: The quantity, with its unit.
        latency: The quantity of the horizontal axis, with its unit and the kind of pass.
        lowest: Less is better of the quality.
        front: Draw the front of those that no other beats in both; of one seed each that would be a ranking by chance.
    """
    if len(models) < 2:
        return
    sign = 1 if lowest else -1
    ahead = [models[index] for index in pareto_front([(sign * model.quality, model.latency) for model in models])]
    joined = [(model.latency, model.quality) for model in ahead] if front else []
    steps = [plots.Series("Pareto front", joined, 5, "steps")] if len(joined) > 1 else []
    # From 0, or a student that keeps nearly all would lie at the bottom as if it kept nothing.
    axes = plots.Axis(latency, from_zero=True), plots.Axis(quality, from_zero=True, room=_ROOM)
    plot = plots.Plot([*steps, *_points(models, numbered=False)], *axes)
    numbers = ""
    if not plot_drawing.names_fit(plot):
        plot = plots.Plot([*steps, *_points(models, numbered=True)], *axes)
        numbers = f" {'; '.join(f'{number}: {model.name}' for number, model in enumerate(models, start=1))}."
    corner = f"The {'lower' if lowest else 'upper'} left corner is best."
    if front:
        corner += f" No other model is both faster and better than any of: {'; '.join(model.name for model in ahead)}."
    yield plot_figure("Quality against latency", plot, f"{corner}{numbers}")


def _points(models: Sequence[Measured], *, numbered: bool) -> Iterator[plots.Series]:
    """Go through the students and the teachers, with their names beside them, or with numbers for these."""
    for style, (label, teacher) in enumerate((("student", False), ("teacher", True))):
        found = [(str(number), model) for number, model in enumerate(models, start=1) if model.teacher == teacher]
        if found:
            points = [(model.latency, model.quality) for _, model in found]
            names = [f"{number}: {model.name}" if numbered else model.name for number, model in found]
            numbers = [number for number, _ in found] if numbered else []
            yield plots.Series(label, points, style, "points", names=names, numbers=numbers)


# Which layers a stage joined: as its record has them, or as its method is composed again for the recorded shapes.


_SAID_PAIRS = 40


_SHAPE = re.compile(r"(\S+) (\d+)x(\d+), (\d+) heads, FFN (\d+)(?:, embedding (\d+))?")
_LAYERS = re.compile(r"(_\d+)+$")
_MOST_LAYERS = 200
Pairs: TypeAlias = dict[tuple[int, int], None]
"""Of layers of student and teacher, in order."""


@dataclass(frozen=True)
class LayerLinks:
    """The layers that the terms of a stage join.

    Args:
        drawing: Both depths, and the pairs of layers by what joins them. A depth that is not known is the highest layer
            that is read.
        terms: A row each.
        whole: Whether both depths are known.
    """

    drawing: plots.Links
    terms: Table
    whole: bool = True

    @property
    def joins(self) -> bool:
        """Whether any layers are joined."""
        return any(kind.pairs for kind in self.drawing.kinds)

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """The pairs of numbered layers, without scores."""
        return {pair for kind in self.drawing.kinds for pair in kind.pairs if plots.SCORES not in pair}


def find_links(
    method: Mapping[str, Any], student: str, teacher: str, task: str = "text", layer_cosines: Sequence[float] = ()
) -> LayerLinks | None:
    """Compose a method for a student and a teacher of recorded shapes.

    Args:
        method: As a recipe's stage has it: its name and options.
        student: The shape of the student, as records write it.
        teacher: The shape of its teacher.
        task: The kind of the stage's labels, or "text".
        layer_cosines: Measured for the mapping "contribution".

    Returns:
        None where the record does not say enough, or says what no method takes.
    """
    ours, theirs = _read_shape(student), _read_shape(teacher)
    if ours is None or theirs is None or not isinstance(method.get("name"), str):
        return None
    labels = next((known for known in composition.LABELLED_TASKS if known == task), "text")
    pairing = composition.Pairing(ours, theirs, labels, tuple(layer_cosines) or None)  # type: ignore[arg-type]
    try:
        chosen, options = registry.read_method(method)
        terms = chosen.compose(options, pairing)
    except (LimbeckError, ValidationError):
        return None
    found: dict[str, Pairs] = {}
    rows = []
    for term in terms:  # Those that read no teacher join nothing.
        streams = dict.fromkeys(key.kind for key in term.student)
        pairs = found.setdefault(f"{term.objective} ({', '.join(streams)})", {})
        pairs |= dict.fromkeys((_row(a), _row(b)) for a in term.student for b in term.teacher)
        sides = describe_streams(term.student), describe_streams(term.teacher) or "labels"
        rows.append((term.name, term.objective, f"{term.weight:g}", *sides))
    table = Table("Terms", ("Term", "Objective", "Weight", "Student", "Teacher"), tuple(rows), words=(1, 3, 4))
    return LayerLinks(_drawing((ours.layers, theirs.layers), found), table)


def recorded_links(layers: Sequence[records.LayerLink], student: str, teacher: str) -> LayerLinks | None:
    """Read the layers that a stage joined as its record has them, whatever its teacher was.

    Args:
        layers: Of the stage's record.
        student: The shape of the student, as records write it; empty if it is not known.
        teacher: The shape of its teacher, likewise.

    Returns:
        None where nothing that can be drawn is recorded.
    """
    found: dict[str, Pairs] = {}
    rows = []
    for entry in layers:
        own, theirs = ([n for n in side if 0 <= n <= _MOST_LAYERS] for side in (entry.student, entry.teacher))
        for term in entry.terms:
            found.setdefault(without_layers(term), {}).update(dict.fromkeys(product(own, theirs)))
            rows.append((term, ", ".join(map(str, own)), ", ".join(map(str, theirs))))
    pairs = [pair for kind in found.values() for pair in kind]
    if not pairs:
        return None
    shapes = _read_shape(student), _read_shape(teacher)
    deepest = (max(pair[side] for pair in pairs) for side in (0, 1))
    depths = [max(shape.layers, deep) if shape else deep for shape, deep in zip(shapes, deepest, strict=True)]
    table = Table("Terms", ("Term", "Student", "Teacher"), tuple(rows), words=(1, 2))
    return LayerLinks(_drawing(depths, found), table, None not in shapes)


def _drawing(depths: Sequence[int], found: Mapping[str, Pairs]) -> plots.Links:
    student, teacher = depths
    return plots.Links(student, teacher, [plots.LinkKind(label, tuple(pairs)) for label, pairs in found.items()])


def without_layers(term: str) -> str:
    """Name what terms have in common that differ in their layers only: `hidden` of `hidden_1_2`."""
    return _LAYERS.sub("", term) or term


def describe_streams(keys: Sequence[StreamKey]) -> str:
    """Name streams by kind and layer, long lists of one kind by their ends."""
    by_kind: dict[str, list[int]] = {}
    for key in keys:
        by_kind.setdefault(key.kind, []).append(key.layer)
    parts = []
    for kind, layers in by_kind.items():
        unique = sorted(set(layers))
        shown = f"{unique[0]}–{unique[-1]}" if len(unique) > 3 else ", ".join(map(str, unique))
        parts.append(f"{kind} {shown}")
    return "; ".join(parts)


def _read_shape(text: str) -> Shape | None:
    """Read a shape as it writes itself; key heads are taken to be as many as query heads."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    layers, hidden, heads, ffn = (int(found[index]) for index in (2, 3, 4, 5))
    if not 0 < layers <= _MOST_LAYERS or not heads or hidden % heads:
        return None
    embedding = int(found[6]) if found[6] else hidden
    return Shape(found[1], layers, hidden, heads, heads, hidden // heads, ffn, 0, embedding, None)


def _row(key: StreamKey) -> int:
    return plots.SCORES if key.kind == "logits" else key.layer


def layers_figure(title: str, links: LayerLinks, caption: str = "") -> Figure:
    """Draw which layers of the student learn from which layers of the teacher, and list the terms."""
    depths = f"Student of {counted(links.drawing.student, 'layer')}, teacher of {links.drawing.teacher}"
    if not links.whole:
        depths += " or more"
        unknown = "The depth of the models is not recorded: layers above the highest one in use are not drawn."
        caption = f"{caption} {unknown}".strip()
    words = f"{depths}. " + " ".join(_describe_links(kind) for kind in links.drawing.kinds)
    return Figure(slug(title), title, caption, words, links.drawing, links.terms)


def _describe_links(kind: plots.LinkKind) -> str:
    if not kind.pairs:
        return f"{kind.label}: uses no teacher."
    said = ", ".join(f"{_name_layer(s)} from {_name_layer(t)}" for s, t in kind.pairs[:_SAID_PAIRS])
    more = f" and {len(kind.pairs) - _SAID_PAIRS} more" if len(kind.pairs) > _SAID_PAIRS else ""
    return f"{kind.label}: {said}{more}."


def _name_layer(layer: int) -> str:
    return "scores" if layer == plots.SCORES else "embedding" if layer == 0 else str(layer)


# Curves over the steps of a stage, and of several runs beside each other.

Curves: TypeAlias = Sequence[tuple[str, Curve]]
"""Each with its label."""
_AT_ONCE = 4
_COMPARE = "Losses are comparable only where terms, weights and text are the same."
_SHARES = (
    "Losses of different terms have no common scale: each is divided by its first logged value, so only the shapes "
    "of the curves can be compared."
)


def loss_blocks(stage: StageFound, heading: str) -> Iterator[Block]:
    """Draw loss, development scores, tokens a second, then the terms in groups, then note how they were logged.

    Args:
        stage: A stage.
        heading: The beginning of the titles of its figures.
    """
    log = stage.log
    if not log.curves:
        yield Notes((f"{heading}: {'there is no log' if stage.is_finished else 'nothing has been logged yet'}.",))
    yield from _log_figure(log, f"{heading}: Loss", {"training": "loss", "held-out text": "eval_loss"})
    scores = [(label, curve) for label, curve in log.scores().items() if len(curve.points) > 1]
    if scores:
        yield _curves_figure(
            f"{heading}: Scores on development rows", scores, "score of the student without fine-tuning", style=3
        )
    rate = log.curves.get(RATE)
    if rate is not None and len(rate.points) > 1:  # One value is in the table of stages.
        label = "tokens per second since the last log, excluding padding and evaluation"
        yield _curves_figure(f"{heading}: Tokens/s", [("tokens/s", rate)], label, zero=True, style=2)
    terms = log.terms()
    by_stem: dict[str, list[str]] = {}
    for term in terms if len(terms) > 1 else ():  # Those that differ in their layers only share figures.
        by_stem.setdefault(without_layers(term), []).append(term)
    for stem, alike in by_stem.items():
        for title, group in _split(f"{heading}: Term {stem}", alike, _AT_ONCE):
            training, held_out = ({term: f"{kind}_{term}" for term in group} for kind in ("loss", "eval"))
            if len(group) == 1:
                [term] = group
                training = {f"{term}, training": training[term], f"{term}, held-out text": held_out.pop(term)}
            yield from _log_figure(log, title, training)
            if any(len(curve.points) > 1 for name in held_out.values() if (curve := log.curves.get(name))):
                yield from _log_figure(log, f"{title}, held-out text", held_out)
    if not stage.is_finished and log.lines:
        step = f", up to step {log.reached['step']:,.0f}" if "step" in log.reached else ""
        yield Notes((f"{heading} is not finished: its curves are from {log.source}{step}.",))
    not_finite = f"{heading}: {counted(log.not_finite, 'infinite or NaN value')} not drawn."
    damaged = f"{heading}: {counted(log.damaged, 'damaged line')} of {log.source} skipped."
    if problems := [*[not_finite] * bool(log.not_finite), *[damaged] * bool(log.damaged)]:
        yield Notes(tuple(problems), warning=True)


def _log_figure(log: StageLog, title: str, names: Mapping[str, str]) -> Iterator[Figure]:
    """Draw those of the curves of a log that are there, by their labels."""
    found = [(label, curve) for label, name in names.items() if (curve := log.curves.get(name)) is not None]
    if found:
        yield _curves_figure(title, found, "mean over the steps since the last log")


def _split(title: str, items: Sequence[T], most: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Divide what is too much for one figure, evenly; titles are numbered."""
    count = -(-len(items) // most)
    size = -(-len(items) // count)
    for part in range(count):
        several = f" ({part + 1} of {count})" if count > 1 else ""
        yield f"{title}{several}", items[part * size : (part + 1) * size]


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
            heading = f"Stage {place} of the runs, relative to the first loss"
            shares = [(label, _share(curve)) for label, curve in _found(courses, "loss") if curve.points[0][1] > 0]
            yield from _in_batches(heading, shares, "training loss relative to the first logged value", _SHARES)
        rates = _found(courses, RATE)
        yield from _in_batches(f"Tokens/s in stage {place} of the runs", rates, "tokens per second", zero=True)


def _curves_figure(
    title: str, curves: Curves, label: str, caption: str = "", *, zero: bool = False, style: int = 0
) -> Figure:
    """Draw curves over the step, on a logarithmic scale where they span widely, and say if they were thinned."""
    series = [plots.Series(name, curve.points, style + n, band=curve.ranges) for n, (name, curve) in enumerate(curves)]
    log = not zero and plots.spans_widely(y for one in series for _, y in one.points)
    most = max((curve.logged for _, curve in curves if curve.ranges), default=0)
    thinned = f"Thinned from {most:,} points: lines show means of neighbouring points, bands their minimum and maximum."
    y = plots.Axis(label + (", logarithmic" if log else ""), log=log, from_zero=zero)
    said = " ".join(filter(None, (caption, thinned if most else "")))
    return plot_figure(title, plots.Plot(series, plots.Axis("step", whole=True), y), said)


def _in_batches(title: str, found: Curves, label: str, caption: str = "", *, zero: bool = False) -> Iterator[Figure]:
    """Draw the same curve of runs, few enough in a figure to be distinguished; nothing where only one has it."""
    if len(found) > 1 and max(len(curve.points) for _, curve in found) > 1:
        for numbered, batch in _split(title, found, plots.SERIES):
            yield _curves_figure(numbered, batch, label, caption, zero=zero)


def _found(courses: Sequence[tuple[str, StageFound]], name: str) -> Curves:
    return [(label, curve) for label, stage in courses if (curve := stage.log.curves.get(name)) is not None]


def _share(curve: Curve) -> Curve:
    """Divide a curve by its first value."""
    first = curve.points[0][1]
    points = tuple((x, y / first) for x, y in curve.points)
    return Curve(points, tuple((low / first, high / first) for low, high in curve.ranges), curve.logged)
