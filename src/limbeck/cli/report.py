"""`limbeck report`: what runs, comparisons, searches, evaluations and inspections found, as one page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from limbeck.cli import messages, options
from limbeck.core.blocks import counted


@options.command(
    "limbeck report runs/mine",
    "limbeck report runs/first runs/second --output both.html",
    "limbeck report runs/methods --markdown --figures paper/figures",
    "limbeck report runs/mine runs/look --open",
)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs, comparisons, searches, evaluations or inspections; several are shown side by side.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Page to write; default: report.html in the folder, or in the current folder for several.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Also write the report as Markdown, with its figures in a folder.")
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the figures as SVG and PNG to this folder, for papers."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a single HTML page of what was done and found, which needs no network and no other file.

    Runs that are unfinished, failed or damaged are reported as far as they go, with warnings.

    The exit code is 0 if the page was written, and 2 for a folder without results of limbeck.
    """
    from limbeck.api import report as run_report

    written = run_report(folders, output, markdown=markdown, figures=figures, show=show)
    warnings = written.page.warnings()
    content = {
        "html": written.html, "markdown": written.markdown, "figures": written.figures, "sections": written.sections,
        "warnings": warnings,
    }  # fmt: skip
    lines: list[str | Text] = [Text(f"warning: {line}", style="yellow") for line in warnings]
    if written.figures:
        lines.append(f"Figures: {counted(len(written.figures), 'file')} in {written.figures[0].parent}")
    lines += [f"Report: {path}" for path in (written.markdown, written.html) if path is not None]
    messages.print_result(as_json, content, *lines)
