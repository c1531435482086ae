"""Where results and progress are shown: as tables of pandas, in notebooks, as reports, on a console or in a log."""

import io
import logging
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from limbeck.core.blocks import Block, Figure, console
from limbeck.core.escaping import TerminalConsole, printable
from limbeck.core.ranks import is_main
from limbeck.errors import LimbeckError

if TYPE_CHECKING:
    from pandas import DataFrame

    from limbeck.report.writing import WrittenReport

_WIDTH = 120
"""Columns of a result that is printed."""
_IN_NOTEBOOK = '<pre style="white-space:pre;line-height:normal">{code}</pre>'

# Progress.


class _LogLines(io.TextIOBase):
    """Writes lines as records of limbeck's logger."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        """Log every whole line that is not empty."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, map(str.strip, lines)):
            logging.getLogger("limbeck").info("%s", line)
        return len(text)


def chosen_console(given: Console | None) -> Console:
    """Return where progress goes: where it is said, else the terminal or the notebook, else limbeck's logger.

    Of several processes of a run one shows progress.

    Args:
        given: `Console(quiet=True)` of rich shows nothing.
    """
    if not is_main():
        return Console(quiet=True)
    if given is not None:
        return given
    shown = TerminalConsole(stderr=True)
    if shown.is_terminal or shown.is_jupyter:
        return shown
    return TerminalConsole(file=_LogLines(), width=_WIDTH, color_system=None)  # type: ignore[arg-type]


# Results.


class Shown(ABC):
    """What a call found: printed it is a table, at the end of a notebook's cell a table and a figure."""

    @abstractmethod
    def _blocks(self) -> Iterator[Block]:
        """Yield what is printed."""

    @abstractmethod
    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""

    def _figure(self) -> Figure | None:
        """Return the figure that a notebook shows below the table."""
        return None

    def to_pandas(self) -> "DataFrame":
        """Return its figures as a table of pandas, unrounded, a row each."""
        from pandas import read_csv

        return read_csv(io.StringIO(self._csv()))

    def __repr__(self) -> str:
        """As it is printed in a terminal."""
        written = io.StringIO()
        # In a notebook, rich would show what it prints as an output of the cell.
        self._print(TerminalConsole(file=written, width=_WIDTH, color_system=None, force_jupyter=False))
        return written.getvalue().rstrip()

    def _print(self, page: Console) -> None:
        page.print(console(*self._blocks()), highlight=False, markup=False)

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        page = TerminalConsole(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, force_jupyter=False)
        self._print(page)
        figure = self._figure()
        table = page.export_html(inline_styles=True, code_format=_IN_NOTEBOOK)
        return table if figure is None else f"{table}\n{_picture_of(figure)}"


class Result(Shown):
    """What a call leaves in a folder, of which there are reports."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder that it lies in."""

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
        return write_page([self.folder], output, markdown=markdown, figures=figures, show=show).html

    @property
    def _place(self) -> str:
        """Where to find it, below the table."""
        return f"Folder: {self.folder}"

    def _print(self, page: Console) -> None:
        super()._print(page)
        page.print(self._place, highlight=False, markup=False, soft_wrap=True)

    def _figure(self) -> Figure | None:
        """Return the first figure of the report; none where the folder was moved since."""
        from limbeck.report.collect import collect
        from limbeck.report.page import build_page

        try:
            return next(build_page(collect([self.folder])).figures(), None)
        except LimbeckError:
            return None


class Pushed(Shown):
    """What a call leaves, with a model that can be uploaded to the Hub."""

    @property
    @abstractmethod
    def _model(self) -> Path:
        """The folder of the model."""

    @property
    def _message(self) -> str:
        """Of the commit on the Hub."""
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

        check_repository(repository)
        check_login()
        return push_folder(self._model, repository, private=private, message=self._message)


class ModelResult(Result, Pushed):
    """What a call leaves in a folder, with a model in it."""

    @property
    def _place(self) -> str:
        return f"Model: {self._model}"


def write_page(
    folders: list[Path],
    output: str | Path | None,
    *,
    markdown: bool,
    figures: str | Path | None,
    show: bool,
) -> "WrittenReport":
    """Write a report of folders, and open it in a browser where that is asked for; see `Result.report`."""
    from limbeck.report.collect import check_folders

    check_folders(folders)
    from limbeck.report.writing import write_report

    written = write_report(folders, output, markdown=markdown, figures=figures)
    if show:
        webbrowser.open(written.html.resolve().as_uri())
    return written


def _picture_of(figure: Figure) -> str:
    """Return a figure as a picture in HTML, in the light theme."""
    from limbeck.report.pictures import picture_address

    words = escape(printable(f"{figure.title}. {figure.description}"), quote=True)
    title = escape(printable(figure.title))
    address = picture_address(figure, transparent=False)
    return f'<figure><img alt="{words}" src="{address}"><figcaption>{title}</figcaption></figure>'
