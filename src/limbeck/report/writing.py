"""Writing a report: folders to a page, as HTML, as Markdown, and its figures as files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import REPORT_PAGE
from limbeck.errors import OutputError, RecipeError
from limbeck.report.collect import collect
from limbeck.report.page import Page, build_page
from limbeck.report.pictures import write_figure
from limbeck.report.rendering import render_html, render_markdown

_SUFFIXES = (".html", ".htm")
_MADE_BY_US = '<meta name="generator" content="limbeck '
"""In the first letters of a page of any version."""
_HEAD_LETTERS = 2000


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    Args:
        page: Its content.
        html: The HTML file.
        markdown: The Markdown file, if one was asked for.
        figures: The figures' files.
    """

    page: Page
    html: Path
    markdown: Path | None
    figures: tuple[Path, ...]

    @property
    def sections(self) -> tuple[str, ...]:
        """The titles of its sections, in order."""
        titles: list[str] = []
        for part in self.page.parts:
            titles += [section.title for section in part.sections]
        return tuple(titles)


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
        folders: Its subjects; several are put side by side.
        output: The HTML file; by default `report.html` in the folder, or in the current one for several.
        markdown: Write the same as Markdown beside it, with its figures.
        figures: A folder for the figures as SVG and PNG; with Markdown by default beside it.

    Raises:
        RecipeError: for no folder, an output that is no HTML file, or a file where the figures' folder would be.
        OutputError: for a folder that holds nothing of ours, and for files that cannot be written, or are not a report
            and would be replaced.
    """
    if not folders:
        raise RecipeError("A report needs at least one folder: limbeck report runs/mine.")
    # Wrong places are refused before anything is read or drawn.
    paths = [Path(folder) for folder in folders]
    html = _html_path(paths, output)
    figures_folder = html.with_name(f"{html.stem}-figures")
    if figures is not None:
        figures_folder = Path(figures).expanduser()
        _check_figures_folder(figures_folder)

    page = build_page(collect(paths))
    written: list[Path] = []
    if markdown or figures is not None:
        for figure in page.figures():
            for suffix in (".svg", ".png"):
                path = figures_folder / f"{figure.name}{suffix}"
                write_figure(figure, path)
                written.append(path)
    _write_text(html, render_html(page))
    markdown_path = None
    if markdown:
        markdown_path = html.with_suffix(".md")
        relative = Path(os.path.relpath(figures_folder, html.parent)).as_posix()
        _write_text(markdown_path, render_markdown(page, relative))
    return WrittenReport(page, html, markdown_path, tuple(written))


def _write_text(path: Path, text: str) -> None:
    with writing(path):
        atomic_text(path, text)


def _html_path(folders: Sequence[Path], output: Path | str | None) -> Path:
    """Return where the page goes, checked before anything is read."""
    if output is not None:
        path = Path(output).expanduser()
    elif len(folders) == 1:
        first = folders[0].expanduser()
        path = first / REPORT_PAGE if first.is_dir() else first.parent / REPORT_PAGE
    else:
        path = Path(REPORT_PAGE)
    if path.suffix.lower() not in _SUFFIXES or path.is_dir():
        raise RecipeError(f"--output '{path}' is not an HTML file; give a name that ends with .html.")
    if path.exists() and _MADE_BY_US not in _head(path):
        raise OutputError(f"'{path}' exists and is not a limbeck report; give another --output.")
    return path


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD_LETTERS)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror}.") from None


def _check_figures_folder(path: Path) -> None:
    """Refuse a place that cannot become a folder, before anything is read."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise RecipeError(f"--figures '{path}' must be a folder, but '{place}' is a file; give another folder.")
