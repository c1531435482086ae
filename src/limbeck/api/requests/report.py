"""The options of `limbeck report` and `limbeck.report`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import shared
from limbeck.api.requests.fields import argument, option, request


@request
class ReportRequest:
    """Folders with results, and the files of their report."""

    folders: Any = argument(
        "One or more folders, each of a run, comparison, search, evaluation or inspection; several folders are "
        "shown side by side.",
        python="A folder, or several that are put side by side; results of limbeck stand for their folders.",
        cls=list[Path],
        metavar="RUN...",
    )
    output: str | Path | None = option(
        "Page to write; default: report.html in that folder or, for several folders, in the current folder.",
        default=None,
        python="The HTML file; by default `report.html` in the folder, or in the current one for several.",
        cls=Path,
        metavar="FILE.html",
        show_default=False,
    )
    _: KW_ONLY
    markdown: bool = option("Also write the report as Markdown, with its figures in a folder.", default=False)
    figures: str | Path | None = option(
        "Also write the figures as SVG and PNG to this folder, for papers.",
        default=None,
        python="A folder for the figures as SVG and PNG, for papers.",
        cls=Path,
        metavar="DIR",
    )
    show: bool = option("Open the page in a browser.", default=False, flag="--open")
    console: Console | None = shared.console_option()
