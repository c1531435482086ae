"""`write_report`: folders to a page, as HTML, as Markdown and as figures for papers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.core.files import write_atomically
from limbeck.errors import OutputError, RecipeError
from limbeck.report.page.build import build_page
from limbeck.report.page.collect import collect
from limbeck.report.page.content import Page
from limbeck.report.page.html import MADE_BY_US, render_html
from limbeck.report.page.markdown import render_markdown
from limbeck.report.page.picture import write_pictures

NAME = "report.html"
_SUFFIXES = (".html", ".htm")
_HEAD = 2000


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    Args:
        page: What it says.
        html: The HTML file.
        markdown: The Markdown file, where it was asked for.
        figures: The figures' files, where they were asked for.
    """

    page: Page
    html: Path
    markdown: Path | None
    figures: tuple[Path, ...]

    @property
    def sections(self) -> tuple[str, ...]:
        """The titles of its sections, in order."""
        return tuple(section.title for part in self.page.parts for section in part.sections)


def write_report(
    folders: Sequence[Path | str],
    output: Path | str | None = None,
    *,
    markdown: bool = False,
    figures: Path | str | None = None,
) -> WrittenReport:
    """Write a report of runs, comparisons, searches, evaluations and inspections.

    What is unfinished or damaged is reported as far as it goes, with a warning; nothing in the folders is changed,
    except for the report itself where it goes into one of them.

    Args:
        folders: What it is about; several are put side by side.
        output: The HTML file; by default `report.html` in the folder, or in the current one for several.
        markdown: Write the same as Markdown beside it, with its figures.
        figures: A folder for the figures as SVG and PNG; with Markdown by default beside it.

    Raises:
        RecipeError: for no folder, an output that is no HTML file, or a file where the figures' folder would be.
        OutputError: for a folder that holds nothing of ours, and for files that cannot be written, or are not a report
            and would be replaced.
    """
    if not folders:
        raise RecipeError("A report is of one folder or more: limbeck report runs/mine.")
    paths = [Path(folder) for folder in folders]
    html = _output(paths, output)
    if figures is not None:
        _check_folder(Path(figures).expanduser())
    page = build_page(collect(paths))
    beside = html.with_suffix(".md") if markdown else None
    place = Path(figures).expanduser() if figures is not None else html.with_name(f"{html.stem}-figures")
    drawn: list[Path] = []
    if markdown or figures is not None:
        for figure in page.figures():
            drawn += write_pictures(figure, place)
    _write(html, render_html(page))
    if beside is not None:
        relative = Path(os.path.relpath(place, beside.parent)).as_posix()
        _write(beside, render_markdown(page, relative))
    return WrittenReport(page, html, beside, tuple(drawn))


def _output(folders: Sequence[Path], output: Path | str | None) -> Path:
    """Choose and check where the page goes, before anything is read."""
    if output is None:
        first = folders[0].expanduser()
        home = (first if first.is_dir() else first.parent) if len(folders) == 1 else Path()
        path = home / NAME
    else:
        path = Path(output).expanduser()
    if path.suffix.lower() not in _SUFFIXES or path.is_dir():
        raise RecipeError(f"--output '{path}' is no HTML file; give a name that ends with .html.")
    if path.exists() and MADE_BY_US not in _head(path):
        raise OutputError(f"'{path}' is there already and is not a report of limbeck; give another --output.")
    return path


def _check_folder(path: Path) -> None:
    """Refuse what cannot become a folder of figures, before anything is read."""
    file = next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None)
    if file is not None:
        raise RecipeError(f"--figures '{path}' is to be a folder, and '{file}' is a file; give another folder.")


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror}.") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}.") from None
