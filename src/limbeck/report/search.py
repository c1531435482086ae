"""Reports of searches: their course and result, as far as they have come, and the files that they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from limbeck.core import blocks, studies
from limbeck.core.blocks import DAMAGED, Block, Notes, Table, guarded
from limbeck.core.files import atomic_text
from limbeck.core.records import text_of
from limbeck.errors import OutputError
from limbeck.report import search_figures, search_tables
from limbeck.report.figures import layers_figure
from limbeck.report.findings import SearchFound, without_path
from limbeck.report.layer_links import find_links
from limbeck.report.plot_drawing import write_figure
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
    """Say how an unfinished search stands, and what its trials can be compared with."""
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
        yield Table("What it is bound to", ("", "Value"), rows, words=(1,), folded=True)


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
            yield search_figures.evolution_figure(record)
            yield from search_figures.distribution_figures(record)
            yield replace(search_tables.generations(record), caption=f"Generations{so_far}")
            yield replace(search_tables.best_mappings(record), caption=f"Best mappings{so_far}", strong=(0,))
        case studies.ArchitectureSearch(shapes=[]):
            yield Notes(("Of no shape it is known yet what becomes of it.",))
        case studies.ArchitectureSearch():
            if record.best is not None:
                yield search_figures.shapes_figure(record)
                yield replace(search_tables.front(record), caption=f"Front of loss and latency{so_far}")
            table = search_tables.shapes(record, f"All shapes{so_far}, the best first", _SHAPES_ON_PAGE)
            yield replace(table, strong=() if record.best is None else (0,))
        case studies.TeacherLayerSearch():
            if record.best is not None:
                yield search_figures.race_figure(record, "best so far" if so_far else "recommended")
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
        dumped = yaml.safe_dump(found.record.recipe.to_plain(), sort_keys=False, allow_unicode=True)
        yield blocks.Code("Recipe of what was found", dumped, "yaml")
