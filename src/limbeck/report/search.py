"""Reports of searches: their course and result, as far as they have come, and the files that they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from limbeck.core import blocks
from limbeck.core.files import atomic_text
from limbeck.errors import OutputError
from limbeck.report import search_tables
from limbeck.report.figures import layers_figure
from limbeck.report.findings import Record, SearchFound
from limbeck.report.layer_links import find_links
from limbeck.report.plot_drawing import write_figure
from limbeck.report.records import entries, mapping, number, text, texts, without_path
from limbeck.report.run import provenance_blocks
from limbeck.report.search_figures import distribution_figures, evolution_figure, race_figure, shapes_figure

RECORD, RECIPE = "search.json", "recipe.yaml"
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
    texts = {RECORD: json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"}
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
    written = [folder / name for name in texts]
    for stem, figure in figures.items():
        for suffix in _SUFFIXES:
            path = folder / f"{stem}{suffix}"
            write_figure(figure, path, titled=True)
            written.append(path)
    return written


# The sections of a report.

_SHAPES_ON_PAGE = 100
_LONGEST = 200
_GOES_ON = {"teacher-layer": "the same command starts the training of its candidates again"}
_HOW = {
    "running": "is still going on",
    "interrupted": "was stopped; {goes_on}",
    "dead": "is not finished, and its workers are gone without a word; {goes_on}",
}


def _mapping_course(record: Record, so_far: str) -> Iterator[blocks.Block]:
    if not record["generations"]:
        yield blocks.Notes(("No mapping has a fitness yet." if so_far else "No generation is finished.",))
        return
    yield evolution_figure(record)
    yield from distribution_figures(record)
    yield replace(search_tables.generations(record), caption=f"Generations{so_far}")
    yield replace(search_tables.best_mappings(record), caption=f"Best mappings{so_far}", strong=(0,))


def _shape_course(record: Record, so_far: str) -> Iterator[blocks.Block]:
    if not record["shapes"]:
        yield blocks.Notes(("Of no shape it is known yet what becomes of it.",))
        return
    strong = () if record["best"] is None else (0,)
    if strong:
        yield shapes_figure(record)
        yield replace(search_tables.front(record), caption=f"Front of loss and latency{so_far}")
    yield replace(
        search_tables.shapes(record, _SHAPES_ON_PAGE), caption=f"All shapes{so_far}, the best first", strong=strong
    )


def _layer_course(record: Record, so_far: str) -> Iterator[blocks.Block]:
    strong = () if record["best"] is None else (0,)
    if strong:
        yield race_figure(record, mark="best so far") if so_far else race_figure(record)
    yield replace(search_tables.layers(record), caption=f"Layers{so_far}, the best first", strong=strong)


_COURSES: dict[str, tuple[str, Callable[[Record, str], Iterator[blocks.Block]]]] = {
    "mapping": ("Evolution", _mapping_course),
    "architecture": ("Shapes", _shape_course),
    "teacher-layer": ("Layers of the teacher", _layer_course),
}


def search_sections(found: SearchFound) -> list[blocks.Section]:
    """Lay out a search of any kind; of one that is not finished the trials of its study."""
    record = found.record
    title, course = _COURSES.get(text(record, "kind"), ("Search", _unknown))
    if text(record, "status") != "finished":
        so_far = found.so_far
        return [
            *blocks.guarded("What was done", lambda: _standing(found)),
            *blocks.guarded(title, lambda: course(so_far, " so far") if so_far else ()),
        ]
    return [
        *blocks.guarded("What was done", lambda: _flow(found)),
        *blocks.guarded(title, lambda: _with_notes(record, course(record, ""))),
        *blocks.guarded("Layers", lambda: _joined_layers(record)),
        *blocks.guarded("Recipe", lambda: _recipe(record)),
        *blocks.guarded("Provenance", lambda: provenance_blocks(record, found.folder)),
    ]


def what_was_found(record: Record) -> str:
    """Return the result of a search in a line."""
    best, kind = mapping(record, "best"), search_tables.KINDS.get(text(record, "kind"))
    return kind.best(best) if best and kind is not None else "nothing yet"


def _standing(found: SearchFound) -> Iterator[blocks.Block]:
    """Say how an unfinished search stands, and what its trials can be compared with."""
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
    yield blocks.Notes(tuple(lines), warning=True)
    if found.standing:
        yield blocks.Facts(found.standing)
    if identity := mapping(found.so_far, "identity"):
        rows = tuple((str(name), _brief(value)) for name, value in identity.items())
        yield blocks.Table("What it is bound to", ("", "Value"), rows, words=(1,), folded=True)


def _brief(value: object) -> str:
    if value is None:
        return blocks.NOTHING
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _LONGEST else f"{written[: _LONGEST - 1]}…"


def _flow(found: SearchFound) -> Iterator[blocks.Block]:
    record = found.record
    times = [number(record, "cost", name) for name in ("training_seconds", "scoring_seconds", "seconds")]
    spent = blocks.duration(sum(time for time in times if time is not None))
    yield blocks.Steps(
        (
            ("Teacher", f"{without_path(text(record, 'teacher', 'name'))}, {text(record, 'teacher', 'shape')}"),
            ("Student", text(record, "student", "shape") or "shapes of a list"),
            ("Proxy", f"{' and '.join(texts(record, 'methods'))} on {number(record, 'share') or 0:.0%} of the text"),
            ("Search", f"{text(record, 'kind')}, {spent} of workers' time"),
            ("Found", what_was_found(record)),
        )
    )
    given_up = [f"Given up: {one.get('mapping')}: {text(one, 'problem')}" for one in entries(record, "given_up")]
    if lines := [*found.problems, *given_up]:
        yield blocks.Notes(tuple(lines), warning=True)


def _with_notes(record: Record, course: Iterator[blocks.Block]) -> Iterator[blocks.Block]:
    yield from course
    if (kind := search_tables.KINDS.get(text(record, "kind"))) is not None and record.get("generations") != []:
        yield blocks.Notes(tuple(kind.notes(record)))


def _unknown(record: Record, so_far: str) -> Iterator[blocks.Block]:
    if not so_far:
        yield blocks.Notes((f"There is no search of the kind '{text(record, 'kind')}'.",), warning=True)


def _joined_layers(record: Record) -> Iterator[blocks.Block]:
    """Draw the layers that the result joins."""
    student = text(record, "student", "shape")
    for stage in entries(record, "recipe", "stages"):
        named = stage.get("method")
        method: Mapping[str, Any] = named if isinstance(named, Mapping) else {"name": named}
        links = find_links(method, student, text(record, "teacher", "shape"))
        if links is not None and any(kind.pairs for kind in links.kinds):
            yield layers_figure(f"What was found: {text(method, 'name')}", links)


def _recipe(record: Record) -> Iterator[blocks.Block]:
    recipe = mapping(record, "recipe")
    if recipe:
        yield blocks.Paragraph("`limbeck distill recipe.yaml` in the search's folder trains what was found.")
        dumped = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        yield blocks.Code("Recipe of what was found", dumped, "yaml")
