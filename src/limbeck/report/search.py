"""What a report says of a search: its course, what it found, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from limbeck.report.content import NOTHING, Block, Code, Facts, Notes, Paragraph, Section, Steps, Table, guarded
from limbeck.report.findings import Record, SearchFound
from limbeck.report.layer_figures import layers_figure
from limbeck.report.layer_links import find_links
from limbeck.report.records import entries, mapping, number, text, texts, without_path
from limbeck.report.run import provenance_blocks
from limbeck.report.search_figures import distribution_figures, evolution_figure, race_figure, shapes_figure
from limbeck.report.search_tables import (
    SearchGrid,
    architecture_notes,
    best_mappings_grid,
    describe_shape,
    duration,
    front_grid,
    generations_grid,
    layers_grid,
    mapping_notes,
    ranked_shapes,
    shapes_grid,
    show_mapping,
    shown,
    teacher_layer_notes,
)

# The grids of searches as tables of the page.


MOST_SHAPES = 100


def search_table(caption: str, grid: SearchGrid, left_out: int = 0, strong: tuple[int, ...] = ()) -> Table:
    """Make a table of a grid.

    Args:
        caption: What it shows.
        grid: Its cells.
        left_out: How many rows the grid lacks; none if it is less than that.
        strong: Rows that stand out, by number.
    """
    words = tuple(index for index, heading in enumerate(grid.headings) if heading in grid.words)
    rows = tuple(tuple(row) for row in grid.rows)
    return Table(caption, tuple(grid.headings), rows, words, strong=strong, left_out=max(0, left_out))


# What a report says of a search that is not finished: how it stands, and what its trials have found so far.


_LONGEST = 200
_GOES_ON = {
    "mapping": "the same command goes on with it",
    "architecture": "the same command goes on with it",
    "teacher-layer": "the same command starts the training of its candidates again",
}
_HOW = {
    "running": "is still going on",
    "interrupted": "was stopped; {goes_on}",
    "dead": "is not finished, and its workers are gone without a word; {goes_on}",
}


def standing_blocks(found: SearchFound) -> Iterator[Block]:
    """Say that a search is not finished, how it stands, and what its trials can be compared with."""
    kind = text(found.record, "kind")
    lines = [*found.problems]
    if found.record:
        goes_on = _GOES_ON.get(kind, "the same command goes on with it")
        how = _HOW.get(found.status, "is not finished; {goes_on}").format(goes_on=goes_on)
        rest = (
            "What follows is as far as it has come."
            if found.standing
            else "No trials are in its folder: it has none yet, or keeps them in a storage elsewhere (--storage)."
        )
        lines.append(f"The search '{found.title}' ({kind or 'of an unknown kind'}) {how}. {rest}")
    yield Notes(tuple(lines), warning=True)
    if found.standing:
        yield Facts(found.standing)
    if identity := mapping(found.so_far, "identity"):
        rows = tuple((str(name), _brief(value)) for name, value in identity.items())
        yield Table("What it is bound to", ("", "Value"), rows, words=(1,), folded=True)


def course_so_far(found: SearchFound) -> Iterator[Block]:
    """Show what the trials of a search have found, as its report will when it is finished."""
    blocks = {
        "mapping": _unfinished_mapping,
        "architecture": _unfinished_architecture,
        "teacher-layer": _unfinished_teacher_layer,
    }
    show = blocks.get(text(found.record, "kind"))
    if show is not None and found.so_far:
        yield from show(found.so_far)


def _unfinished_mapping(record: Record) -> Iterator[Block]:
    if not record["generations"]:
        yield Notes(("No mapping has a fitness yet.",))
        return
    yield evolution_figure(record)
    yield from distribution_figures(record)
    yield search_table("Generations so far", generations_grid(record))
    yield search_table("Best mappings so far", best_mappings_grid(record), strong=(0,))


def _unfinished_architecture(record: Record) -> Iterator[Block]:
    if not record["shapes"]:
        yield Notes(("Of no shape it is known yet what becomes of it.",))
        return
    if record["best"] is not None:
        yield shapes_figure(record)
        yield search_table("Front of loss and latency so far", front_grid(record))
    shapes = ranked_shapes(record)
    left_out, strong = len(shapes) - MOST_SHAPES, () if record["best"] is None else (0,)
    yield search_table("All shapes so far, the best first", shapes_grid(shapes[:MOST_SHAPES]), left_out, strong)


def _unfinished_teacher_layer(record: Record) -> Iterator[Block]:
    if record["best"] is not None:
        yield race_figure(record, mark="best so far")
    rows = entries(record, "layers")
    steps = sorted({one["step"] for row in rows for one in row["scores"]})
    scores = [{one["step"]: one["score"] for one in row["scores"]} for row in rows]
    cells = (
        (str(row["layer"]), *(shown(found.get(step), 2) for step in steps), row["state"])
        for row, found in zip(rows, scores, strict=True)
    )
    headings = ("Layer", *(f"Step {step}" for step in steps), "Trial")
    strong = () if record["best"] is None else (0,)
    yield Table("Layers so far, the best first", headings, tuple(cells), words=(len(headings) - 1,), strong=strong)


def _brief(value: object) -> str:
    if value is None:
        return NOTHING
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _LONGEST else f"{written[: _LONGEST - 1]}…"


def search_sections(found: SearchFound) -> list[Section]:
    """Lay out a search of any kind; of one that is not finished what is known."""
    record = found.record
    course: dict[str, tuple[str, Callable[[Record], Iterator[Block]]]] = {
        "mapping": ("Evolution", _mapping),
        "architecture": ("Shapes", _architecture),
        "teacher-layer": ("Layers of the teacher", _teacher_layer),
    }
    title, blocks = course.get(text(record, "kind"), ("Search", _unknown))
    if text(record, "status") != "finished":
        return [
            *guarded("What was done", lambda: standing_blocks(found)),
            *guarded(title, lambda: course_so_far(found)),
        ]
    return [
        *guarded("What was done", lambda: _flow(found)),
        *guarded(title, lambda: blocks(record)),
        *guarded("Layers", lambda: _layers(record)),
        *guarded("Recipe", lambda: _recipe(record)),
        *guarded("Provenance", lambda: provenance_blocks(record, found.folder)),
    ]


def what_was_found(record: Record) -> str:
    """Say in a line what a search found."""
    best = mapping(record, "best")
    match text(record, "kind"):
        case "mapping" if best:
            return f"mapping {show_mapping(best['mapping'])}, fitness {best['fitness']:.2f}"
        case "architecture" if best:
            return f"{describe_shape(best)}, {best['latency_share']:.3f} of the latency, loss {best['loss']:.4f}"
        case "teacher-layer" if best:
            return f"layer {best['layer']}, score {best['scores'][-1]['score']:.2f}"
    return "nothing yet"


def _flow(found: SearchFound) -> Iterator[Block]:
    record = found.record
    cost = mapping(record, "cost")
    times = [number(cost, name) for name in ("training_seconds", "scoring_seconds", "seconds")]
    spent = duration(sum(time for time in times if time is not None))
    share = number(record, "share")
    yield Steps(
        (
            ("Teacher", f"{without_path(text(record, 'teacher', 'name'))}, {text(record, 'teacher', 'shape')}"),
            ("Student", text(record, "student", "shape") or "shapes of a list"),
            ("Proxy", f"{' and '.join(texts(record, 'methods'))} on {share or 0:.0%} of the text"),
            ("Search", f"{text(record, 'kind')}, {spent} of workers' time"),
            ("Found", what_was_found(record)),
        )
    )
    given_up = [f"Given up: {one.get('mapping')}: {text(one, 'problem')}" for one in entries(record, "given_up")]
    if lines := [*found.problems, *given_up]:
        yield Notes(tuple(lines), warning=True)


def _mapping(record: Record) -> Iterator[Block]:
    if not record["generations"]:
        yield Notes(("No generation is finished.",))
        return
    yield evolution_figure(record)
    yield from distribution_figures(record)
    yield search_table("Generations", generations_grid(record))
    yield search_table("Best mappings", best_mappings_grid(record), strong=(0,))
    yield Notes(tuple(mapping_notes(record)))


def _architecture(record: Record) -> Iterator[Block]:
    yield shapes_figure(record)
    yield search_table("Front of loss and latency", front_grid(record))
    shapes = ranked_shapes(record)
    yield search_table(
        "All shapes, the best first", shapes_grid(shapes[:MOST_SHAPES]), len(shapes) - MOST_SHAPES, strong=(0,)
    )
    yield Notes(tuple(architecture_notes(record)))


def _teacher_layer(record: Record) -> Iterator[Block]:
    yield race_figure(record)
    yield search_table("Layers, the best first", layers_grid(record), strong=(0,))
    yield Notes(tuple(teacher_layer_notes(record)))


def _unknown(record: Record) -> Iterator[Block]:
    yield Notes((f"There is no search of the kind '{text(record, 'kind')}'.",), warning=True)


def _layers(record: Record) -> Iterator[Block]:
    """Draw the layers that what was found joins."""
    student = text(record, "student", "shape")
    for stage in entries(record, "recipe", "stages"):
        named = stage.get("method")
        method: Mapping[str, Any] = named if isinstance(named, Mapping) else {"name": named}
        links = find_links(method, student, text(record, "teacher", "shape"))
        if links is not None and any(kind.pairs for kind in links.kinds):
            yield layers_figure(f"What was found: {text(method, 'name')}", links)


def _recipe(record: Record) -> Iterator[Block]:
    recipe = mapping(record, "recipe")
    if recipe:
        yield Paragraph("`limbeck distill recipe.yaml` in the search's folder trains what was found.")
        yield Code(
            "Recipe of what was found", yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True), "yaml"
        )
