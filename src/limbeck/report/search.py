"""Searches: tables for the terminal, the files that they leave, and the sections of a report."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import RenderableType

from limbeck.core import blocks, markdown, records, studies
from limbeck.core.blocks import DAMAGED, Block, Notes, Paragraph, Section, Table
from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import RECIPE
from limbeck.report import figures, plot_drawing
from limbeck.report.findings import SearchFound, without_path
from limbeck.report.run import provenance_blocks
from limbeck.report.search_kinds import KINDS, SearchKind


def search_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables of a finished search for the terminal."""
    search, kind = _read(record)
    return blocks.console(*kind.shown(search), Notes(tuple(kind.notes(search))))


def search_files(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of a finished search, by the names of their files."""
    search, kind = _read(record)
    _, found = kind.result(search)
    setting = [kind.setting(search), *([f"{found} `limbeck distill recipe.yaml` trains it."] if found else [])]
    sections = [
        Section("", tuple(map(Paragraph, setting))),
        *(Section(table.caption, (table,)) for table in kind.tables(search)),
        Section("Notes", (Notes(tuple(kind.notes(search))),)),
    ]
    return {"search.md": markdown.markdown_file(f"{kind.TITLE}: {search.name}", sections), **kind.files(search)}


def _read(record: Mapping[str, Any]) -> tuple[studies.Search, SearchKind[Any]]:
    search = studies.Search.read(record)
    return search, KINDS[search.kind or ""]


def write_search(folder: Path, record: Mapping[str, Any]) -> list[Path]:
    """Write the record, recipe, tables and figures of a search; existing files are replaced, each whole or not at all.

    Args:
        folder: The search's folder, made if missing.
        record: Plain values without NaN. `recipe`, if it is there, is the recipe of the result, and goes to
            `recipe.yaml`, under a line with the `kind` and `name` of the search.

    Returns:
        The files: record, recipe, tables, and the figures as SVG and as PNG.

    Raises:
        OutputError: if a file cannot be written.
    """
    search, kind = _read(record)
    texts = {studies.Search.FILE: records.text_of(record)}
    if record.get("recipe") is not None:
        study = f"`limbeck search {record['kind']}` (study '{record['name']}')"
        header = f"# Highest-scoring candidate of {study}; each was trained once. To train it: limbeck distill\n"
        texts[RECIPE] = header + yaml.safe_dump(record["recipe"], sort_keys=False, allow_unicode=True, width=100)
    texts |= search_files(record)
    with writing(folder):
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            # Workers that were started by hand end together, and all write.
            atomic_text(folder / name, text, shared=True)
    pictures = []
    for stem, figure in kind.pictures(search).items():
        named = replace(figure, title=f"{figure.title}: {search.name}")
        for suffix in (".svg", ".png"):
            pictures.append(folder / f"{stem}{suffix}")
            plot_drawing.write_figure(named, pictures[-1], titled=True)
    return [*(folder / name for name in texts), *pictures]


# The sections of a report; of a search that is not finished the trials of its study.

_LONGEST = 200
_GOES_ON = {"teacher-layer": "the same command restarts the training of its candidates"}
_HOW = {
    "running": "is still in progress",
    "interrupted": "was stopped; {goes_on}",
    "dead": "is not finished, and its workers vanished without recording an end; {goes_on}",
}


def result_of(found: SearchFound) -> str:
    """Return the result of a search in a line, or the best so far; nothing of a damaged record, as its part says so."""
    record, kind = found.so_far or found.record, KINDS.get(found.record.kind or "")
    try:
        best = kind.result(record)[0] if kind is not None else ""
    except DAMAGED:
        return ""
    if found.so_far is not None:
        return f"{best}, so far" if best else ""
    return (best or "no result") if record.is_finished else ""


def verdict_of(found: SearchFound) -> str:
    """Return the result of a finished search in whole sentences, or what it has come to so far."""
    kind = KINDS.get(found.record.kind or "")
    if kind is not None and found.record.is_finished and (said := str(kind.result(found.record)[1])):
        return said
    found_so_far = result_of(found)
    return f"Not finished: {found_so_far}." if found_so_far else ""


def _standing(found: SearchFound) -> Iterator[Block]:
    """Say the progress of an unfinished search, and references for its trials."""
    kind = found.record.kind or ""
    lines = [*found.problems]
    if not found.record.is_empty:
        goes_on = _GOES_ON.get(kind, "the same command continues it")
        how = _HOW.get(found.status, "is not finished; {goes_on}").format(goes_on=goes_on)
        rest = "The following is its result so far."
        if not found.standing:
            rest = "Its folder has no trials: there are none yet, or they are kept in another storage (--storage)."
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
    if not found.record.is_finished:
        yield from _standing(found)
        return
    record = found.record
    spent = blocks.duration(record.cost.all_seconds)
    yield blocks.Steps(
        (
            ("Teacher", f"{without_path(record.teacher.name)}, {record.teacher.shape}"),
            ("Student", record.student.shape or "chosen by the search"),
            ("Proxy", f"{' and '.join(record.methods)} on {record.share or 0:.0%} of the text"),
            ("Search", f"{record.kind}, {spent} of worker time"),
            ("Result", result_of(found)),
        )
    )
    given_up = record.given_up if isinstance(record, studies.MappingSearch) else []
    lines = (*found.problems, *(f"Given up: {one.mapping}: {one.problem}" for one in given_up))
    yield Notes(lines, warning=True)


def _course(name: str, kind: SearchKind[Any]) -> Callable[[SearchFound], Iterator[Block]]:
    def build(found: SearchFound) -> Iterator[Block]:
        record = found.record if found.record.is_finished else found.so_far
        if record is not None and found.record.kind == name:
            yield from kind.course(record, "" if found.record.is_finished else " so far")

    return build


def _unknown(found: SearchFound) -> Iterator[Block]:
    if found.record.is_finished and found.record.kind not in KINDS:
        yield Notes((f"Unknown kind of search: '{found.record.kind or ''}'.",), warning=True)


def _joined_layers(found: SearchFound) -> Iterator[Block]:
    """Draw the layers that the result joins."""
    record = found.record
    for stage in record.recipe.stages if record.is_finished and record.recipe is not None else ():
        links = figures.find_links(stage.method, record.student.shape, record.teacher.shape)
        if links is not None and links.joins:
            yield figures.layers_figure(f"Highest-scoring candidate: {stage.method_name}", links)


def _recipe(found: SearchFound) -> Iterator[Block]:
    if found.record.is_finished and found.record.recipe is not None:
        yield Paragraph(
            "`limbeck distill recipe.yaml` in the search's folder trains the candidate with the highest score."
        )
        dumped = yaml.safe_dump(found.record.recipe.to_dict(), sort_keys=False, allow_unicode=True)
        yield blocks.Code("Recipe of the highest-scoring candidate", dumped, "yaml")


def _provenance(found: SearchFound) -> Iterable[Block]:
    return provenance_blocks(found.record, found.folder) if found.record.is_finished else ()


SECTIONS: dict[str, Callable[[SearchFound], Iterable[Block]]] = {
    "Overview": _flow,
    **{kind.SECTION: _course(name, kind) for name, kind in KINDS.items()},
    "Search": _unknown,
    "Layers": _joined_layers,
    "Recipe": _recipe,
    "Provenance": _provenance,
}
"""Of a search of any kind."""
