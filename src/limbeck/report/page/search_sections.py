"""What a report says of a search: its course, what it found, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from limbeck.report.page.content import Block, Code, Notes, Paragraph, Section, Steps
from limbeck.report.page.findings import Record, SearchFound
from limbeck.report.page.guarded import guarded
from limbeck.report.page.layer_figures import layers_figure
from limbeck.report.page.layer_links import find_links
from limbeck.report.page.model_names import without_path
from limbeck.report.page.plain_values import entries, mapping, number, text, texts
from limbeck.report.page.provenance import provenance_blocks
from limbeck.report.page.search_figures import distribution_figures, evolution_figure, race_figure, shapes_figure
from limbeck.report.page.search_tables import MOST_SHAPES, search_table
from limbeck.report.page.search_unfinished import course_so_far, standing_blocks
from limbeck.report.search_architecture_tables import (
    architecture_notes,
    describe_shape,
    front_grid,
    ranked_shapes,
    shapes_grid,
)
from limbeck.report.search_grid import duration
from limbeck.report.search_mapping_tables import best_mappings_grid, generations_grid, mapping_notes, show_mapping
from limbeck.report.search_teacher_layer_tables import layers_grid, teacher_layer_notes


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
