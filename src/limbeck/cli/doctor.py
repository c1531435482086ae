"""`limbeck doctor`: whether limbeck works on this machine, devices and kernels in use, missing packages by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from limbeck.cli.command import command
from limbeck.cli.messages import Messages, print_json, print_line, result_console
from limbeck.cli.options import Json, Quiet, Verbose

if TYPE_CHECKING:
    from limbeck.diagnosis.findings import Finding, Status

_STYLES: dict[Status, str] = {"ok": "green", "absent": "dim", "warning": "yellow", "failed": "bold red"}
_CONCLUSIONS: dict[Status, str] = {
    "ok": "limbeck works here.",
    "warning": "limbeck works here; the warnings say what could be better.",
    "failed": "limbeck does not work properly here.",
}
_CONCLUSION_OF_TEACHER = "limbeck works here, but this teacher's sentence vectors are not confirmed."


@command("limbeck doctor", "limbeck doctor --json", "limbeck doctor --teacher intfloat/e5-small-v2")
def doctor(
    teacher: Annotated[
        str | None,
        typer.Option(help="Compare this model's sentence vectors with sentence-transformers': a folder or Hub name."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Show what is installed and which devices, precision and kernels will be used, and run a short self-test.

    The exit code is 0 if limbeck works here, even with warnings, and 1 if something failed.
    """
    from limbeck.diagnosis.examination import examine
    from limbeck.diagnosis.findings import worst
    from limbeck.models.locating import is_local, resolve_model

    console = Messages(quiet, verbose).console()
    # A place without a model is a mistake of the call; a name that the Hub does not have is a finding.
    if teacher is not None and not is_local(teacher):
        resolve_model(teacher)

    def announce(part: str) -> None:
        print_line(f"Examining {part} …", console, style="dim")

    # Each finding is shown as soon as it is there, below the heading of its part.
    examined: list[tuple[str, Finding]] = []
    last_part = None
    for part, finding in examine(announce, teacher):
        examined.append((part, finding))
        if as_json:
            continue
        if part != last_part:
            print_line(part, result_console(), style="bold")
            last_part = part
        _show(finding)

    status = worst([finding for _, finding in examined])
    if as_json:
        content = [{"part": part, **vars(finding)} for part, finding in examined]
        print_json({"status": status, "findings": content})
    else:
        conclusion = _CONCLUSIONS[status]
        # If nothing but the teacher has failed, limbeck itself works.
        status_without_teacher = worst([finding for part, finding in examined if part != "teacher"])
        if status == "failed" and status_without_teacher != "failed":
            conclusion = _CONCLUSION_OF_TEACHER
        print_line(conclusion, style=_STYLES[status])
    if status == "failed":
        raise typer.Exit(1)


def _show(finding: Finding) -> None:
    """Print a finding: its status in a column of colour, its text, and a way out on a line below."""
    console = result_console()
    console.print(f"  [{_STYLES[finding.status]}]{finding.status:<8}[/]", end="")
    print_line(f"{finding.name}: {finding.text}", console)
    if finding.way_out is not None:
        print_line(f"{'':10}→ {finding.way_out}", console)
