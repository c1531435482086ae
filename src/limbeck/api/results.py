"""Results of calls: each holds its typed record, and shows the same blocks in a terminal, a notebook and a report."""

import io
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from limbeck.api.calls import named_for_python
from limbeck.api.progress import progress_console
from limbeck.api.report_page import ReportPage
from limbeck.core.blocks import Block, Figure, Table
from limbeck.core.console_blocks import console as for_console
from limbeck.core.escaping import TerminalConsole, printable
from limbeck.core.notebook_html import html_of_page
from limbeck.core.progress_bars import ProgressBar
from limbeck.errors import LimbeckError
from limbeck.option_names import called_from_python

if TYPE_CHECKING:
    from pandas import DataFrame

    from limbeck.report.writing import WrittenReport

_WIDTH = 120
"""Columns of a result that is printed."""


class Shown(ABC):
    """A result: printed it is a table, at the end of a notebook's cell a table and a figure."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the tables and notes of the result, which every form of output renders."""

    @abstractmethod
    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""

    @property
    def place(self) -> str:
        """The line below the table, such as the folder of the result; empty for none."""
        return ""

    def _figure(self) -> Figure | None:
        """Return the figure that a notebook shows below the table."""
        return None

    def to_pandas(self) -> "DataFrame":
        """Return its figures as a table of pandas, unrounded, a row each."""
        from pandas import read_csv

        return read_csv(io.StringIO(self._csv()))

    def __repr__(self) -> str:
        """Return the result as it is printed in a terminal."""
        text = io.StringIO()
        # In a notebook, rich would show what it prints as an output of the cell.
        self._print(TerminalConsole(file=text, width=_WIDTH, color_system=None, force_jupyter=False))
        return text.getvalue().rstrip()

    def _print(self, page: Console) -> None:
        """Print the tables and notes, and the line below them."""
        with called_from_python():
            page.print(for_console(*self.blocks()), highlight=False, markup=False)
        if self.place:
            page.print(self.place, highlight=False, markup=False, soft_wrap=True)

    def _repr_html_(self) -> str:
        """Return the result as a notebook shows it."""
        parts = []
        for are_tables, blocks in groupby(self.blocks(), key=lambda block: isinstance(block, Table)):
            with called_from_python():
                parts.append(_html_of(for_console(*blocks), are_lines=not are_tables))
        if self.place:
            parts.append(_html_of(self.place, are_lines=True))
        figure = self._figure()
        if figure is not None:
            parts.append(_picture_of(figure))
        return "\n".join(parts)


class Result(Shown):
    """A result in a folder, of which there are reports."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of the result."""

    def report(
        self,
        output: str | Path | None = None,
        *,
        markdown: bool = False,
        figures: str | Path | None = None,
        show: bool = False,
    ) -> Path:
        """Write one HTML page of what was done and found, as `limbeck report`, and return the file.

        Args:
            output: The HTML file; by default `report.html` in the folder.
            markdown: Write the same as Markdown too.
            figures: A folder for the figures as SVG and PNG.
            show: Open the page in a browser.

        Raises:
            LimbeckError: one clear line; see `limbeck.errors`.
        """
        # Errors name the options as arguments of Python: `output=` for `--output`.
        with named_for_python():
            written = write_page([self.folder], output, markdown=markdown, figures=figures, show=show)
        return ReportPage(written.html)

    @property
    def place(self) -> str:
        """The line below the table: where the result lies."""
        return f"Folder: {self.folder}"

    def _figure(self) -> Figure | None:
        """Return the first figure of the report; None where the folder was moved since."""
        from limbeck.report.collect import collect
        from limbeck.report.page import build_page

        try:
            return next(build_page(collect([self.folder])).figures(), None)
        except LimbeckError:
            return None


class Pushed(Shown):
    """A result with a model that can be uploaded to the Hub."""

    @property
    @abstractmethod
    def _model(self) -> Path:
        """The folder of the model."""

    @property
    def _message(self) -> str:
        """The message of the commit on the Hub."""
        return "Model, made with limbeck"

    def push(self, repository: str, *, private: bool = False) -> str:
        """Upload the model's folder, with its card, to a repository of the Hub, and return the address.

        Args:
            repository: `owner/name`; it is made where it does not exist.
            private: Make a new repository private.

        Raises:
            OutputError: without a login, or if the Hub refuses or cannot be reached.
        """
        from limbeck.export.pushing import check_login, check_repository, push_folder

        with named_for_python():
            check_repository(repository, option="repository")
            check_login()
            return push_folder(self._model, repository, private=private, message=self._message)


class ModelResult(Result, Pushed):
    """A result in a folder, with a model in it."""

    @property
    def place(self) -> str:
        """The line below the table: where the model lies."""
        return f"Model: {self._model}"


def write_page(
    folders: list[Path],
    output: str | Path | None,
    *,
    markdown: bool,
    figures: str | Path | None,
    show: bool,
    console: Console | None = None,
) -> "WrittenReport":
    """Write a report of folders, and open it in a browser where that is asked for; see `Result.report`.

    The progress goes to `console`, or to the place that `progress_console` chooses.
    """
    from limbeck.report.collect import check_folders

    check_folders(folders)
    from limbeck.report.writing import write_report

    with ProgressBar(progress_console(console)) as bar:
        written = write_report(folders, output, markdown=markdown, figures=figures, report=bar)
    if show:
        webbrowser.open(written.html.resolve().as_uri())
    return written


def _html_of(text: RenderableType, *, are_lines: bool) -> str:
    """Return text of rich as HTML.

    Args:
        text: The text.
        are_lines: Whether it is lines, which the page wraps; a table is printed as wide as in a terminal.
    """
    page = TerminalConsole(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, force_jupyter=False)
    page.print(text, highlight=False, markup=False, soft_wrap=are_lines)
    return html_of_page(page, are_lines=are_lines)


def _picture_of(figure: Figure) -> str:
    """Return a figure as a picture in HTML, in the light theme."""
    from limbeck.report.pictures import picture_address

    description = escape(printable(f"{figure.title}. {figure.description}"), quote=True)
    title = escape(printable(figure.title))
    image = f'<img alt="{description}" src="{picture_address(figure, transparent=False)}">'
    return f"<figure>{image}<figcaption>{title}</figcaption></figure>"
