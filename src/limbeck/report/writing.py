"""Writing a report: the folders are read, laid out as a page, and written as HTML, Markdown and files of figures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import REPORT_PAGE
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.errors import OutputError, RecipeError
from limbeck.report.collect import collect
from limbeck.report.page import Page, build_page
from limbeck.report.pictures import write_figure
from limbeck.report.rendering import MARKDOWN_MARK, render_html, render_markdown

_SUFFIXES = (".html", ".htm")
"""Suffixes by which a path is that of a page."""
_HTML_MARK = '<meta name="generator" content="limbeck '
"""In the first letters of the HTML of any version."""
_HEAD_LETTERS = 2000
"""First letters of a file in which the mark is looked for."""


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
    report: Report = no_progress,
) -> WrittenReport:
    """Write a report of runs, comparisons, searches, evaluations and inspections.

    Unfinished or damaged folders are reported as far as their files go, with a warning. Nothing in the folders is
    changed; the report itself may be written into one of them.

    Args:
        folders: The folders that the report is on; several are put side by side.
        output: The HTML file; by default `report.html` in the folder, or in the current one for several.
        markdown: Write the same as Markdown beside it, with its figures.
        figures: A folder for the figures as SVG and PNG; with Markdown by default beside it.
        report: Receives the progress.

    Raises:
        RecipeError: for no folder, an output that is no HTML file, or a file where the figures' folder would be.
        OutputError: for a folder that holds nothing of ours, and for files that cannot be written. Also for HTML,
            Markdown or a default folder of figures that is not of a report and would be replaced.
    """
    if not folders:
        raise RecipeError("A report needs at least one folder, as in limbeck report runs/mine.")
    # Wrong places are refused before anything is read or drawn.
    paths = [Path(folder) for folder in folders]
    html = _html_path(paths, output)
    _check_replaceable(html, _HTML_MARK)
    markdown_path = None
    if markdown:
        markdown_path = html.with_suffix(".md")
        _check_replaceable(markdown_path, MARKDOWN_MARK)
    figures_folder = html.with_name(f"{html.stem}-figures")
    if figures is not None:
        figures_folder = Path(figures).expanduser()
        _check_figures_folder(figures_folder)
    elif markdown_path is not None:
        _check_default_figures_folder(figures_folder, markdown_path)

    # Figures in files are drawn again, each as SVG and as PNG.
    needs_figure_files = markdown or figures is not None
    share_of_html = 0.3 if needs_figure_files else 1.0
    report(0.0, "reading the folders")
    page = build_page(collect(paths))
    _write_text(html, render_html(page, part_of(report, 0.0, share_of_html)))
    # The Markdown is written before its figures. If you stop the report while they are drawn and call it again, the
    # Markdown is the sign that the folder of figures belongs to a report.
    if markdown_path is not None:
        relative = Path(os.path.relpath(figures_folder, html.parent)).as_posix()
        _write_text(markdown_path, render_markdown(page, relative))
    # The HTML holds its figures itself.
    figure_files: list[Path] = []
    if needs_figure_files:
        figure_files = _write_figures(page, figures_folder, part_of(report, share_of_html, 1.0))
    return WrittenReport(page, html, markdown_path, tuple(figure_files))


def _write_text(path: Path, text: str) -> None:
    with writing(path):
        atomic_text(path, text)


def _write_figures(page: Page, folder: Path, report: Report) -> list[Path]:
    """Write each figure of a page as SVG and as PNG, and return the paths."""
    all_figures = list(page.figures())
    paths = []
    for done, figure in enumerate(all_figures):
        report(done / len(all_figures), "writing the figures", Count(done, "figures"))
        for suffix in (".svg", ".png"):
            path = folder / f"{figure.name}{suffix}"
            write_figure(figure, path)
            paths.append(path)
    return paths


def _html_path(folders: Sequence[Path], output: Path | str | None) -> Path:
    """Return the place of the HTML: `output`, else `report.html` in the only folder or in the current one."""
    if output is not None:
        path = Path(output).expanduser()
    elif len(folders) == 1:
        first = folders[0].expanduser()
        path = first / REPORT_PAGE if first.is_dir() else first.parent / REPORT_PAGE
    else:
        path = Path(REPORT_PAGE)
    if path.suffix.lower() not in _SUFFIXES or path.is_dir():
        raise RecipeError(f"--output '{path}' does not end with .html; give a file name that does.")
    return path


def _check_replaceable(path: Path, mark: str) -> None:
    """Refuse to replace a file without the mark of a report."""
    if path.is_dir():
        raise OutputError(
            f"'{path}' is a folder, but the page is to be written to a file of that name; give another --output."
        )
    if path.exists() and mark not in _head(path):
        raise OutputError(f"'{path}' exists and is not a limbeck report; give another --output.")


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


def _check_default_figures_folder(path: Path, markdown: Path) -> None:
    """Refuse a folder that may hold a user's own pictures: a folder of figures belongs to the Markdown beside it.

    Args:
        path: The folder that is taken without --figures.
        markdown: The Markdown beside it.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(
            f"'{path}' is a file, but the figures are to be written to a folder of that name; give another folder "
            "as --figures."
        )
    is_in_use = path.is_dir() and any(path.iterdir())
    if is_in_use and not markdown.exists():
        raise OutputError(
            f"The folder for the figures, '{path}', already has files of something else (there is no "
            f"'{markdown.name}' beside it); move that folder, or give another one as --figures."
        )
