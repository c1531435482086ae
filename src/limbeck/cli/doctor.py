"""`limbeck doctor`: whether limbeck works on this machine, devices and kernels in use, missing packages by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from limbeck.cli.command import command
from limbeck.cli.messages import Messages, print_json, print_line, result_console
from limbeck.cli.options import Json, Quiet, Verbose

if TYPE_CHECKING:
    from limbeck.diagnosis.checks import Finding, Status

_STYLES: dict[Status, str] = {"ok": "green", "absent": "dim", "warning": "yellow", "failed": "bold red"}
_ENDS: dict[Status, str] = {
    "ok": "limbeck works here.",
    "warning": "limbeck works here; the warnings say what could be better.",
    "failed": "limbeck does not work properly here.",
}
_END_OF_TEACHER = "limbeck works here, but this teacher's sentence vectors are not confirmed."


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
    from limbeck.diagnosis.checks import examine, worst
    from limbeck.models.locating import is_local, resolve_model

    console = Messages(quiet, verbose).console()
    if teacher is not None and not is_local(teacher):
        resolve_model(teacher)  # A name that the Hub does not have is a finding.
    findings_by_part: list[tuple[str, Finding]] = []
    for part, finding in examine(lambda part: print_line(f"Examining {part} …", console, style="dim"), teacher):
        if not as_json:
            _show(part if not findings_by_part or findings_by_part[-1][0] != part else None, finding)
        findings_by_part.append((part, finding))
    status = worst(finding for _, finding in findings_by_part)
    if as_json:
        print_json(
            {"status": status, "findings": [{"part": part, **vars(finding)} for part, finding in findings_by_part]}
        )
    else:
        only_teacher = worst(finding for part, finding in findings_by_part if part != "teacher") != "failed"
        print_line(_END_OF_TEACHER if status == "failed" and only_teacher else _ENDS[status], style=_STYLES[status])
    if status == "failed":
        raise typer.Exit(1)


def _show(heading: str | None, finding: Finding) -> None:
    console = result_console()
    if heading is not None:
        print_line(heading, console, style="bold")
    console.print(f"  [{_STYLES[finding.status]}]{finding.status:<8}[/]", end="")
    print_line(f"{finding.name}: {finding.text}", console)
    if finding.way_out is not None:
        print_line(f"{'':10}→ {finding.way_out}", console)
