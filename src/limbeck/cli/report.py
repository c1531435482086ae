"""`limbeck report`: what runs, comparisons, searches, evaluations and inspections found, as one page."""

from pathlib import Path

from rich.text import Text

from limbeck.api.requests.report import ReportRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result
from limbeck.core.blocks import counted


@request_command(
    ReportRequest,
    "limbeck report runs/mine",
    "limbeck report runs/first runs/second --output both.html",
    "limbeck report runs/methods --markdown --figures paper/figures",
    "limbeck report runs/mine runs/look --open",
    options="folders output markdown figures show",
    is_long=False,
)
def report(request: ReportRequest, messages: Messages) -> None:
    """Write a report on runs and other results as one HTML page, which needs no network and no other file.

    Runs that are unfinished, failed or damaged are reported as far as possible, with warnings.

    The exit code is 0 if the page was written, and 2 for a folder without results of limbeck.
    """
    from limbeck.api.reporting import carry_out_report

    output = request.output
    makes_folder = output is not None and not Path(output).expanduser().parent.exists()
    written = carry_out_report(messages.of(request))
    warnings = written.page.warnings()
    content = {
        "html": written.html,
        "markdown": written.markdown,
        "figures": written.figures,
        "sections": written.sections,
        "warnings": warnings,
    }
    lines: list[str | Text] = [Text(f"warning: {line}", style="yellow") for line in warnings]
    if written.figures:
        lines.append(f"Figures: {counted(len(written.figures), 'file')} in {written.figures[0].parent}")
    if makes_folder:
        lines.append(f"Made the folder '{written.html.parent}'.")
    lines += [f"Report: {path}" for path in (written.markdown, written.html) if path is not None]
    print_result(messages.as_json, content, (), *lines)
