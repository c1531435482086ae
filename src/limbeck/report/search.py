"""Searches: tables for the terminal, and the files that they leave."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from rich.console import RenderableType

from limbeck.core import markdown, records, studies
from limbeck.core.blocks import Block, Figure, Notes, Paragraph, Section, Table
from limbeck.core.console_blocks import console
from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import RECIPE
from limbeck.report.pictures import write_figure
from limbeck.report.search_architecture import ArchitectureView
from limbeck.report.search_mapping import MappingView
from limbeck.report.search_teacher_layer import TeacherLayerView
from limbeck.report.search_view import SearchView

VIEWS: Mapping[str, SearchView[Any]] = {
    "mapping": MappingView(),
    "architecture": ArchitectureView(),
    "teacher-layer": TeacherLayerView(),
}
"""By the kind of search in its record."""
SearchRecord: TypeAlias = Mapping[str, Any] | studies.Search
"""The record of a finished search, typed or as plain values."""


def search_blocks(record: SearchRecord) -> list[Block]:
    """Return the result, the tables and the notes of a finished search as blocks."""
    search = studies.Search.read(record)
    view = VIEWS[str(search.kind)]
    blocks: list[Block] = []
    result = view.result_line(search)
    if result:
        blocks.append(Paragraph(result))
    blocks += [block for block in view.blocks(search) if not isinstance(block, Figure)]
    blocks.append(Notes(tuple(view.notes(search))))
    return blocks


def search_table(record: SearchRecord) -> RenderableType:
    """Return the tables of a finished search for the terminal."""
    return console(*search_blocks(record))


def search_files(record: SearchRecord) -> dict[str, str]:
    """Return the tables of a finished search, `search.md` and CSV, by the names of their files."""
    search = studies.Search.read(record)
    view = VIEWS[str(search.kind)]
    head = [Paragraph(_describe_setting(search))]
    result = view.result_line(search)
    if result:
        head.append(Paragraph(f"{result} `limbeck distill recipe.yaml` trains it."))
    sections = [Section("", tuple(head))]
    tables = [block for block in view.blocks(search) if isinstance(block, Table)]
    sections += [Section(table.caption, (table,)) for table in tables]
    sections.append(Section("Notes", (Notes(tuple(view.notes(search))),)))
    text = markdown.markdown_file(f"{view.TITLE}: {search.name}", sections)
    return {"search.md": text, **view.csv_files(search)}


def _describe_setting(search: studies.Search) -> str:
    """Return the models, the methods and the text of a search in a sentence."""
    # A search of shapes has no student of its own: it chooses one.
    student = f" student {search.student.shape}," if search.student.shape else ""
    methods = " and ".join(search.methods)
    return (
        f"Teacher {search.teacher.name} ({search.teacher.shape}),{student} {methods} on {search.share:.0%} of the "
        "corpus."
    )


def write_search(folder: Path, record: SearchRecord) -> list[Path]:
    """Write the recipe, tables, figures and record of a search; existing files are replaced, each whole or not at all.

    The record is written last: a search that is stopped before is not finished, and its files are written again.

    Args:
        folder: The search's folder, made if missing.
        record: The record of the search. Its `recipe`, if there is one, trains the best candidate. It is written to
            `recipe.yaml`, below a line with the kind and the name of the search.

    Returns:
        The files: record, recipe, tables, and the figures as SVG and as PNG.

    Raises:
        OutputError: if a file cannot be written.
    """
    search = studies.Search.read(record)
    texts: dict[str, str] = {}
    if search.recipe is not None:
        study = f"`limbeck search {search.kind}` (study '{search.name}')"
        header = f"# Highest-scoring candidate of {study}; each was trained once. To train it: limbeck distill\n"
        recipe = yaml.safe_dump(search.recipe.to_dict(), sort_keys=False, allow_unicode=True, width=100)
        texts[RECIPE] = f"{header}{recipe}"
    texts |= search_files(search)

    record_file = folder / studies.Search.FILE
    files = [record_file]
    with writing(folder):
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            # `shared`, since several workers that were started by hand may end together, and each writes these files.
            atomic_text(folder / name, text, shared=True)
            files.append(folder / name)
    files += _write_figures(folder, search)
    with writing(record_file):
        atomic_text(record_file, records.text_of(search.to_dict()), shared=True)
    return files


def _write_figures(folder: Path, search: studies.Search) -> list[Path]:
    """Write each figure of a search as SVG and as PNG, with the name of the search in its title; return the files."""
    files = []
    for block in VIEWS[str(search.kind)].blocks(search):
        if isinstance(block, Figure):
            titled_figure = replace(block, title=f"{block.title}: {search.name}")
            for suffix in (".svg", ".png"):
                path = folder / f"{block.name}{suffix}"
                write_figure(titled_figure, path, titled=True)
                files.append(path)
    return files
