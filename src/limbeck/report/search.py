"""Reports of searches: their course, result and figures, as far as they have come, and the files that they leave."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from limbeck.core import blocks, studies
from limbeck.core.blocks import DAMAGED, Block, Figure, Notes, Table, guarded
from limbeck.core.files import atomic_text
from limbeck.core.records import text_of
from limbeck.errors import OutputError
from limbeck.report import search_tables
from limbeck.report.figures import layers_figure, plot_figure
from limbeck.report.findings import SearchFound, without_path
from limbeck.report.layer_links import find_links
from limbeck.report.plot_drawing import write_figure
from limbeck.report.plots import Axis, Panels, Plot, Point, Series
from limbeck.report.run import provenance_blocks

RECIPE = "recipe.yaml"
_SUFFIXES = (".svg", ".png")


def write_search(folder: Path, record: Mapping[str, Any], figures: Mapping[str, blocks.Figure]) -> list[Path]:
    """Write the record, recipe, tables and figures of a search; existing files are replaced, each whole or not at all.

    Args:
        folder: The search's folder, made if missing.
        record: Plain values without NaN. `recipe`, if it is there, is the recipe of the result, and goes to
            `recipe.yaml`, under a line with the `kind` and `name` of the search.
        figures: By their files' names without suffix; each is written as SVG and as PNG.

    Returns:
        The files: record, recipe, tables, figures.

    Raises:
        OutputError: if a file cannot be written.
    """
    texts = {studies.Search.FILE: text_of(record)}
    if record.get("recipe") is not None:
        header = f"# Found by `limbeck search {record['kind']}` (study '{record['name']}'); train it: limbeck distill\n"
        texts[RECIPE] = header + yaml.safe_dump(record["recipe"], sort_keys=False, allow_unicode=True, width=100)
    texts |= search_tables.search_files(record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # Workers that were started by hand end together, and all write.
            atomic_text(folder / name, text, shared=True)
    except OSError as error:
        raise OutputError(f"'{folder}' cannot be written: {error.strerror or error}.") from None
    pictures = {folder / f"{stem}{suffix}": figure for stem, figure in figures.items() for suffix in _SUFFIXES}
    for path, figure in pictures.items():
        write_figure(figure, path, titled=True)
    return [*(folder / name for name in texts), *pictures]


# The sections of a report.

_SHAPES_ON_PAGE = 100
_LONGEST = 200
_GOES_ON = {"teacher-layer": "the same command starts the training of its candidates again"}
_HOW = {
    "running": "is still going on",
    "interrupted": "was stopped; {goes_on}",
    "dead": "is not finished, and its workers are gone without a word; {goes_on}",
}
_TITLES = {"mapping": "Evolution", "architecture": "Shapes", "teacher-layer": "Layers of the teacher"}


def search_sections(found: SearchFound) -> list[blocks.Section]:
    """Lay out a search of any kind; of one that is not finished the trials of its study."""
    record, so_far = found.record, found.so_far
    title = _TITLES.get(record.kind or "", "Search")
    if not record.is_finished:
        return [
            *guarded("What was done", lambda: _standing(found)),
            *guarded(title, lambda: _course(so_far, " so far") if so_far is not None else ()),
        ]
    return [
        *guarded("What was done", lambda: _flow(found)),
        *guarded(title, lambda: _finished_course(record)),
        *guarded("Layers", lambda: _joined_layers(record)),
        *guarded("Recipe", lambda: _recipe(found)),
        *guarded("Provenance", lambda: provenance_blocks(record, found.folder)),
    ]


def result_of(found: SearchFound) -> str:
    """Return the result of a search in a line, or the best so far; nothing of a damaged record, as its part says so."""
    try:
        if found.so_far is not None:
            best = _best(found.so_far)
            return f"{best}, so far" if best else ""
        return (_best(found.record) or "nothing yet") if found.record.is_finished else ""
    except DAMAGED:
        return ""


def _best(record: studies.Search) -> str:
    kind = search_tables.KINDS.get(record.kind or "")
    return "" if kind is None else kind.best(record)


def _standing(found: SearchFound) -> Iterator[Block]:
    """Say the progress of an unfinished search, and references for its trials."""
    kind = found.record.kind or ""
    lines = [*found.problems]
    if not found.record.is_empty:
        goes_on = _GOES_ON.get(kind, "the same command goes on with it")
        how = _HOW.get(found.status, "is not finished; {goes_on}").format(goes_on=goes_on)
        rest = "What follows is as far as it has come."
        if not found.standing:
            rest = "No trials are in its folder: it has none yet, or keeps them in a storage elsewhere (--storage)."
        lines.append(f"The search '{found.title}' ({kind or 'of an unknown kind'}) {how}. {rest}")
    yield Notes(tuple(lines), warning=True)
    if found.standing:
        yield blocks.Facts(found.standing)
    if found.so_far is not None and found.so_far.identity:
        rows = tuple((name, _brief(value)) for name, value in found.so_far.identity.items())
        yield Table("Identity", ("", "Value"), rows, words=(1,), folded=True)


def _brief(value: object) -> str:
    if value is None:
        return blocks.NOTHING
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _LONGEST else f"{written[: _LONGEST - 1]}…"


def _flow(found: SearchFound) -> Iterator[Block]:
    record = found.record
    spent = blocks.duration(record.cost.all_seconds)
    yield blocks.Steps(
        (
            ("Teacher", f"{without_path(record.teacher.name)}, {record.teacher.shape}"),
            ("Student", record.student.shape or "shapes of a list"),
            ("Proxy", f"{' and '.join(record.methods)} on {record.share or 0:.0%} of the text"),
            ("Search", f"{record.kind}, {spent} of workers' time"),
            ("Found", result_of(found)),
        )
    )
    given_up = record.given_up if isinstance(record, studies.MappingSearch) else []
    if lines := [*found.problems, *(f"Given up: {one.mapping}: {one.problem}" for one in given_up)]:
        yield Notes(tuple(lines), warning=True)


def _course(record: studies.Search, so_far: str) -> Iterator[Block]:
    """Draw and list what a search found; `so_far` stands in the captions of one that is not finished."""
    match record:
        case studies.MappingSearch(generations=[]):
            yield Notes(("No mapping has a fitness yet." if so_far else "No generation is finished.",))
        case studies.MappingSearch():
            yield evolution_figure(record)
            yield from distribution_figures(record)
            yield replace(search_tables.generations(record), caption=f"Generations{so_far}")
            yield replace(search_tables.best_mappings(record), caption=f"Best mappings{so_far}", strong=(0,))
        case studies.ArchitectureSearch(shapes=[]):
            yield Notes(("Of no shape it is known yet what becomes of it.",))
        case studies.ArchitectureSearch():
            if record.best is not None:
                yield shapes_figure(record)
                yield replace(search_tables.front(record), caption=f"Front of loss and latency{so_far}")
            table = search_tables.shapes(record, f"All shapes{so_far}, the best first", _SHAPES_ON_PAGE)
            yield replace(table, strong=() if record.best is None else (0,))
        case studies.TeacherLayerSearch():
            if record.best is not None:
                yield race_figure(record, "best so far" if so_far else "recommended")
            strong = () if record.best is None else (0,)
            yield replace(search_tables.layers(record), caption=f"Layers{so_far}, the best first", strong=strong)
        case _ if not so_far:
            yield Notes((f"There is no search of the kind '{record.kind or ''}'.",), warning=True)


def _finished_course(record: studies.Search) -> Iterator[Block]:
    yield from _course(record, "")
    kind = search_tables.KINDS.get(record.kind or "")
    if kind is not None and not (isinstance(record, studies.MappingSearch) and not record.generations):
        yield Notes(tuple(kind.notes(record)))


def _joined_layers(record: studies.Search) -> Iterator[Block]:
    """Draw the layers that the result joins."""
    for stage in record.recipe.stages if record.recipe is not None else ():
        links = find_links(stage.method, record.student.shape, record.teacher.shape)
        if links is not None and links.joins:
            yield layers_figure(f"What was found: {stage.method_name}", links)


def _recipe(found: SearchFound) -> Iterator[Block]:
    if found.record.recipe is not None:
        yield blocks.Paragraph("`limbeck distill recipe.yaml` in the search's folder trains what was found.")
        dumped = yaml.safe_dump(found.record.recipe.to_dict(), sort_keys=False, allow_unicode=True)
        yield blocks.Code("Recipe of what was found", dumped, "yaml")


# Figures: the course of the fitness, loss against latency of shapes, scores of teacher layers.

_GENERATION = Axis("generation", whole=True)
_SPREAD = 0.12
"""Of the dots of a generation, sideways, so that equal ones are seen."""


def evolution_figure(record: studies.MappingSearch) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    rows = record.generations
    best = [(row.number, max(other.maximum for other in rows[: place + 1])) for place, row in enumerate(rows)]
    band = [(row.mean - row.deviation, row.mean + row.deviation) for row in rows]
    series = [
        _members(record, "fitness"),
        Series("best so far", best, 1, "steps"),
        Series("mean, with deviation", [(row.number, row.mean) for row in rows], 0, band=band),
        Series("highest", [(row.number, row.maximum) for row in rows], 2),
        Series("lowest", [(row.number, row.minimum) for row in rows], 3),
    ]
    label = f"fitness: mean of {', '.join(record.scores)} (percent)"
    caption = "Each dot is a member of its generation; the band is the deviation of its members."
    return plot_figure("Evolution of the fitness", Plot(series, _GENERATION, Axis(label)), caption=caption)


def distribution_figures(record: studies.MappingSearch) -> Iterator[Figure]:
    """Draw every score of the members of each generation, where the fitness has several scores."""
    for name in record.scores if len(record.scores) > 1 else ():
        yield plot_figure(f"Score {name} by generation", _distribution(record, name))


def distribution_figure(record: studies.MappingSearch) -> Figure:
    """Draw the distribution of the fitness and of its scores in each generation as panels, as ELM's figure 4."""
    names = ["fitness", *record.scores] if len(record.scores) > 1 else ["fitness"]
    panels = [(name, _distribution(record, name)) for name in names]
    medians = [(name, ", ".join(f"{value:.2f}" for _, value in plot.series[1].points)) for name, plot in panels]
    title = "Distribution of the scores by generation"
    caption = "A box has the middle half of the members and their median; its whiskers reach the extremes."
    words = "; ".join(f"{name}: medians {found}" for name, found in medians)
    words = f"Box plots of {', '.join(names)} for each generation. {words}."
    data = Table(title, ("", "Medians"), tuple(medians))
    return Figure("distribution", title, caption, words, Panels(panels, 3), data)


def shapes_figure(record: studies.ArchitectureSearch) -> Figure:
    """Draw the loss of every shape that was trained to the end against its latency, with the front and the best."""
    trained = [shape for shape in record.shapes if shape.state == "trained"]
    by_trial = {shape.trial: shape for shape in trained}
    best = [record.best] if record.best is not None else []
    others = [shape for shape in trained if shape.trial not in record.front]
    series = [
        _shapes("Pareto front", [by_trial[trial] for trial in record.front], 1, mark="steps"),
        _shapes("shape", others, 0),
        _shapes("best reward", best, 3, large=True),
    ]
    limit = record.limits.latency_share
    caption = f"{len(trained)} shapes; best reward: {search_tables.describe_shape(best[0])}."
    caption += f" Limit of the latency: {limit:g} of the teacher's." if limit is not None else ""
    x = Axis("latency, as a share of the teacher's", from_zero=True)
    plot = Plot([one for one in series if one.points], x, Axis("loss (1: untrained)"), limit)
    return plot_figure("Loss and latency of shapes", plot, caption=caption)


def race_figure(record: studies.TeacherLayerSearch, mark: str = "recommended") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or of its course so far; it has a best layer.
        mark: The name of the best.
    """
    scored: dict[int, list[Point]] = {}
    for row in record.layers:
        for one in row.scores:
            if one.score is not None:
                scored.setdefault(one.step, []).append((row.layer, one.score))
    steps = sorted(scored)
    series = [Series(f"after {step:,} steps", sorted(scored[step]), style + 2) for style, step in enumerate(steps)]
    for best in filter(None, [record.best]):
        place = (best.layer, best.scores[-1].score or 0.0)
        series.append(Series(f"{mark}: layer {best.layer}", [place], 1, "points", large=True))
    x, y = Axis("teacher layer", whole=True), Axis(f"score: mean of {', '.join(record.scores)} (percent)")
    return plot_figure("Students of the layers of the teacher", Plot(series, x, y))


def search_pictures(record: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures that a finished search leaves, by their files' names; none where there is no generation."""
    search = studies.Search.read(record)
    found: dict[str, Figure] = {}
    match search:
        case studies.MappingSearch() if search.generations:
            found = {"evolution": evolution_figure(search), "distribution": distribution_figure(search)}
        case studies.ArchitectureSearch():
            found = {"loss_and_latency": shapes_figure(search)}
        case studies.TeacherLayerSearch():
            found = {"layers": race_figure(search)}
    return {stem: replace(figure, title=f"{figure.title}: {search.name}") for stem, figure in found.items()}


def members_of(record: studies.MappingSearch, name: str) -> list[list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    by_gene = {one.gene: one.fitness if name == "fitness" else one.scores[name] for one in record.candidates}
    return [[by_gene[gene] for gene in row.members] for row in record.generations]


def _distribution(record: studies.MappingSearch, name: str) -> Plot:
    """Return the members of each generation, and their median with its box."""
    groups = {row.number: v for row, v in zip(record.generations, members_of(record, name), strict=True) if v}
    medians = [(number, statistics.median(values)) for number, values in groups.items()]
    series = [_members(record, name), Series("median", medians, 1, boxes=list(groups.values()))]
    return Plot(series, _GENERATION, Axis(f"{name} (percent)"))


def _members(record: studies.MappingSearch, name: str) -> Series:
    """Return the members of each generation side by side."""
    points: list[Point] = []
    for row, values in zip(record.generations, members_of(record, name), strict=True):
        middle = (len(values) - 1) / 2
        spread = (_SPREAD * (index - middle) / max(middle, 1) for index in range(len(values)))
        points += [(row.number + aside, value) for aside, value in zip(spread, values, strict=True)]
    return Series("member", points, 5, "points")


def _shapes(label: str, shapes: Sequence[studies.SearchedShape], style: int, **more: Any) -> Series:
    points = [(shape.latency_share or 0.0, shape.loss or 0.0) for shape in shapes]
    names = [f"{shape.layers}x{shape.hidden}h{shape.heads}f{shape.ffn}" for shape in shapes]
    return Series(label, points, style, **{"mark": "points", **more}, names=names)
