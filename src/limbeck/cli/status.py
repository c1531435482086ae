"""`limbeck status`: how runs stand, and which of them are dead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limbeck.cli.command import command
from limbeck.cli.messages import print_json, print_line, result_console
from limbeck.cli.options import Json
from limbeck.core.blocks import BOXED, NOTHING, AnyCell, Cell, Table, console
from limbeck.core.escaping import one_line

if TYPE_CHECKING:
    from limbeck.core.run_status import RunStatus

_STYLES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "dead": "bold red", "failed": "red"}


@command("limbeck status runs/mine", "limbeck status runs --json", "limbeck status runs/mine --portable")
def status(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders with runs in them at any depth.")],
    as_json: Json = False,
    portable: Annotated[
        bool,
        typer.Option("--portable", help="Show what the runs need to continue in another place or on another machine."),
    ] = False,
) -> None:
    """Show the state of runs: running, dead, finished, interrupted or failed.

    A run is dead if its process vanished without recording an end; interrupted and dead runs continue with --resume.

    A run is silent if it is alive but has made no step for ten minutes.

    The exit code is 0 if every run is running, finished or interrupted, and 1 if one is dead, failed or silent.
    """
    from limbeck.core.run_status import find_runs, status_of

    if portable:
        _print_needs(find_runs(folders), as_json)
        return
    statuses = [status_of(folder) for folder in find_runs(folders)]
    if as_json:
        print_json([{**asdict(run), "well": not run.needs_attention} for run in statuses])
    elif len(statuses) == 1:
        _print_lines(statuses[0])
    else:
        _print_table(statuses)
    if any(run.needs_attention for run in statuses):
        raise typer.Exit(1)


def _print_lines(run: RunStatus) -> None:
    for name, text in {"run": f"{run.name} ({run.folder})", **_columns(run), "problem": run.problem}.items():
        if text is not None:
            style = _STYLES[run.status] if name == "status" else None
            print_line(f"{name}: {one_line(text)}", style=style)


def _print_needs(folders: Sequence[Path], as_json: bool) -> None:
    from rich.filesize import decimal

    from limbeck.core import records
    from limbeck.training.run_needs import needs_of

    shown = []
    for folder in folders:
        needs, by_content = needs_of(folder)
        run = records.load(records.Run, folder)
        versions = {name: run.versions[name] for name in ("limbeck", "torch", "transformers") if name in run.versions}
        options = " ".join(f"--set {need.option}={'[PLACE, …]' if len(need.places) > 1 else 'PLACE'}" for need in needs)
        go_on = f"limbeck distill --resume --output {shlex.quote(str(folder))} {options}".strip()
        shown.append({
            "folder": folder, "by_content": by_content, "needs": [asdict(need) for need in needs],
            "teacher_hash": run.teacher.weights, "versions": versions, "command": go_on,
        })  # fmt: skip
        if as_json:
            continue
        print_line(f"copy: the whole of {one_line(str(folder))}, with any program")
        for need in needs:
            size = f" ({decimal(need.bytes)})" if need.bytes is not None else ""
            print_line(f"{need.what}: {one_line(', '.join(need.places))}{size}; elsewhere: {need.option}")
        print_line("cache: not needed; text that was moved, or has other dates, is tokenised again")
        if versions:
            print_line(f"bit-identical with: {one_line(', '.join(f'{n} {v}' for n, v in versions.items()))}")
        print_line(
            f"continue: {one_line(go_on)}"
            if by_content
            else (
                "continue: only in this place; a run of that version recognises its text by path and date, "
                "not by content"
            ),
            style=None if by_content else "yellow",
        )
    if as_json:
        print_json(shown)


def _print_table(runs: Sequence[RunStatus]) -> None:
    headings = ("run", *_columns(runs[0]))
    rows: list[tuple[AnyCell, ...]] = []
    for run in runs:
        status, *others = map(one_line, _columns(run).values())
        rows.append((one_line(str(run.folder)), Cell(status, mark=_STYLES[run.status]), *others))
    table = Table("", headings, tuple(rows), words=tuple(range(len(headings))), layout=BOXED)
    result_console().print(console(table))
    for run in runs:
        if run.status == "dead" and run.problem is not None:  # What the others died of, nobody wrote down.
            print_line(one_line(run.problem), style=_STYLES[run.status])


def _columns(run: RunStatus) -> dict[str, str]:
    """Return the cells of a run by their headings."""
    doing = run.stage or run.activity
    return {
        "status": run.shown,
        "stage": doing or NOTHING,
        "step": f"{run.step:,} of {run.steps:,}" if run.step is not None and run.steps is not None else NOTHING,
        "tokens/s": f"{run.tokens_per_second:,.0f}" if run.tokens_per_second is not None else NOTHING,
        "time left": _duration(run.seconds_left),
        "last update": f"{_duration(run.seconds_since)} ago" if run.seconds_since is not None else NOTHING,
        "checkpoint": NOTHING if run.checkpoint is None else f"step {run.checkpoint:,}",
        "process": f"{run.pid} on {run.host}" if run.pid is not None else NOTHING,
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
