"""`limbeck status`: the state of runs, as text, a table or JSON, and what they need to go on elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limbeck.cli.command import command
from limbeck.cli.messages import print_json, print_line, result_console
from limbeck.cli.options import Json
from limbeck.core.blocks import BOXED, NOTHING, AnyCell, Cell, Table
from limbeck.core.console_blocks import console
from limbeck.core.escaping import one_line
from limbeck.core.paths import COMPARISON_RECORD, SEARCH_RECORD

if TYPE_CHECKING:
    from limbeck.core.run_status import RunStatus
    from limbeck.training.run_needs import Need

_STYLES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "dead": "bold red", "failed": "red"}
_DEFAULT_NAME = "run"
"""The name of a run whose recipe gives none."""
_UNITS_OF_TIME = (("d", 86_400), ("h", 3_600), ("min", 60))
"""Units of time with their seconds, the longest first."""
_WORK_WITH_RUNS = (
    (COMPARISON_RECORD, "comparison", "limbeck compare"),
    (SEARCH_RECORD, "search", "limbeck search"),
)
"""Work that has runs in its folder and continues them itself: its record, its name and its command."""
_PACKAGES_OF_RESULTS = ("limbeck", "torch", "transformers")
"""Packages whose versions decide whether a student is the same bit for bit."""


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

    A run that is alive but has made no progress for ten minutes is 'running, no update for …'.

    The exit code is 0 if every run is running, finished or interrupted, and 1 if one is dead, failed or has no update.
    """
    from limbeck.core.run_status import find_runs, status_of

    run_folders = find_runs(folders)
    if portable:
        _print_relocations(run_folders, as_json)
        return

    runs = [_with_checkpoint(status_of(folder)) for folder in run_folders]
    if as_json:
        print_json([{**asdict(run), "well": not run.needs_attention} for run in runs])
    elif len(runs) == 1:
        _print_lines(runs[0])
    else:
        _print_table(runs)
    if any(run.needs_attention for run in runs):
        raise typer.Exit(1)


def _with_checkpoint(run: RunStatus) -> RunStatus:
    """Return a status with the run's last checkpoint.

    The heartbeat of `limbeck finish` names none, and that of a finished run may name one that the run has removed.
    """
    from limbeck.training.run_checkpoints import checkpoints_of

    is_finished = run.status == "finished"
    if run.checkpoint is not None and not is_finished:
        return run
    checkpoints = checkpoints_of(run.folder)
    if checkpoints:
        return replace(run, checkpoint=checkpoints[-1].step)
    return replace(run, checkpoint=None)


def _print_lines(run: RunStatus) -> None:
    """Print the status of one run, a line for each figure."""
    shown = str(run.folder)
    # A run without a name of its own is known by its folder.
    if run.name not in (_DEFAULT_NAME, run.folder.name):
        shown = f"{run.name} ({run.folder})"
    print_line(f"run: {one_line(shown)}")
    for name, text in _columns(run).items():
        style = _STYLES[run.status] if name == "status" else None
        print_line(f"{name}: {one_line(text)}", style=style)
    if run.stop is not None:
        print_line(one_line(run.stop))
    # A dead run could not record how it continues, as a run does that is stopped.
    if run.status == "dead" and run.problem is None:
        print_line(f"The run was killed. {one_line(_way_to_continue(run))}")
    if run.problem is not None:
        print_line(f"problem: {one_line(run.problem)}")


def _way_to_continue(run: RunStatus) -> str:
    """Return a sentence on how a dead run continues: by its own command, or by that of a comparison or a search."""
    from limbeck.training.run_checkpoints import has_saved, has_saved_assistants_alone

    for folder_above in run.folder.absolute().parents:
        for record, work, its_command in _WORK_WITH_RUNS:
            if (folder_above / record).is_file():
                place = shlex.quote(str(folder_above))
                return f"It belongs to the {work} in {place}: run the same `{its_command}` command again to continue."
    place = shlex.quote(str(run.folder))
    resume = f"limbeck distill --resume --output {place}"
    if run.checkpoint is None and not has_saved(run.folder):
        return f"No checkpoint was saved before, so it begins again with: {resume}"
    if has_saved_assistants_alone(run.folder):
        return f"Continue with: {resume}"
    return f"Continue with: {resume}; or keep the student as it is, with: limbeck finish {place}"


def _print_table(runs: Sequence[RunStatus]) -> None:
    """Print a row for each run, and below them the problems of those that are dead."""
    headings = ("run", *_columns(runs[0]))
    rows: list[tuple[AnyCell, ...]] = []
    for run in runs:
        # The status, which comes first, is coloured.
        status_text, *other_texts = (one_line(text) for text in _columns(run).values())
        rows.append((one_line(str(run.folder)), Cell(status_text, mark=_STYLES[run.status]), *other_texts))
    table = Table(
        caption="",
        headings=headings,
        rows=tuple(rows),
        words=tuple(range(len(headings))),  # Every column holds words, no figures.
        layout=BOXED,
    )
    result_console().print(console(table))
    # A dead run could not record its end. A problem that is known all the same, such as a damaged record, is printed.
    for run in runs:
        if run.status == "dead" and run.problem is not None:
            print_line(one_line(run.problem), style=_STYLES[run.status])


def _columns(run: RunStatus) -> dict[str, str]:
    """Return the figures of a run as text, by their headings; the status comes first."""
    # A finished run is in no stage and at no step any more. Of one that stopped, they say where it did.
    is_finished = run.status == "finished"
    stage = None if is_finished else run.place
    columns = {
        "status": run.shown,
        "stage": stage or NOTHING,
        "step": NOTHING,
        "tokens/s": NOTHING,
        "time left in stage": _duration(run.seconds_left),
        "last update": NOTHING,
        "checkpoint": NOTHING,
        "process": NOTHING,
    }
    if run.step is not None and run.steps is not None and not is_finished:
        columns["step"] = f"{run.step:,} of {run.steps:,}"
    if run.tokens_per_second is not None:
        columns["tokens/s"] = f"{run.tokens_per_second:,.0f}"
    if run.seconds_since is not None:
        columns["last update"] = f"{_duration(run.seconds_since)} ago"
    if run.checkpoint is not None:
        columns["checkpoint"] = f"step {run.checkpoint:,}"
    if run.process is not None:
        columns["process"] = run.process
    return columns


def _duration(seconds: float | None) -> str:
    """Return a time in the longest unit in which it is 2 or more: 119 minutes as `119.0 min`, 120 as `2.0 h`."""
    if seconds is None:
        return NOTHING
    for unit, size in _UNITS_OF_TIME:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True)
class _Relocation:
    """What a run needs to go on in another place.

    Args:
        folder: The folder of the run.
        recognises_text_by_content: Whether the run identifies its text by a hash of its content, and so in any place.
            Runs of older versions identify it by path and date.
        needs: The teachers, texts and other files that it reads, with their places.
        teacher_hash: The hash of the teacher's weights.
        versions: Versions of packages with which the student is the same bit for bit.
    """

    folder: Path
    recognises_text_by_content: bool
    needs: Sequence[Need]
    teacher_hash: str | None
    versions: dict[str, str]

    @property
    def command(self) -> str:
        """The command that continues the run; PLACE stands for the new places."""
        words = ["limbeck distill --resume --output", shlex.quote(str(self.folder))]
        for need in self.needs:
            # Some files have to be in one place, which no option changes.
            if need.option is None:
                continue
            places = "[PLACE, …]" if len(need.places) > 1 else "PLACE"
            words.append(f"--set {need.option}={places}")
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return what the run needs to go on in another place, as plain values for JSON."""
        return {
            "folder": self.folder,
            "by_content": self.recognises_text_by_content,
            "needs": [asdict(need) for need in self.needs],
            "teacher_hash": self.teacher_hash,
            "versions": self.versions,
            "command": self.command,
        }


def _print_relocations(folders: Sequence[Path], as_json: bool) -> None:
    """Print what runs need to go on in another place."""
    relocations = [_relocation_of(folder) for folder in folders]
    if as_json:
        print_json([relocation.to_dict() for relocation in relocations])
        return
    for relocation in relocations:
        _print_relocation(relocation)


def _relocation_of(folder: Path) -> _Relocation:
    """Read from the record of a run what continuing it elsewhere needs."""
    from limbeck.core import records
    from limbeck.training.run_identity import knows_content
    from limbeck.training.run_needs import needs_of

    needs = needs_of(folder)
    run = records.load(records.Run, folder)
    versions = {name: run.versions[name] for name in _PACKAGES_OF_RESULTS if name in run.versions}
    return _Relocation(
        folder=folder,
        recognises_text_by_content=knows_content(run),
        needs=needs,
        teacher_hash=run.teacher.weights,
        versions=versions,
    )


def _print_relocation(relocation: _Relocation) -> None:
    """Print what to copy, and how to continue the run elsewhere."""
    from rich.filesize import decimal

    print_line(f"copy: the whole folder {one_line(str(relocation.folder))}, with any program")
    for need in relocation.needs:
        size = f" ({decimal(need.bytes)})" if need.bytes is not None else ""
        print_line(f"{need.what}: {one_line(', '.join(need.places))}{size}; elsewhere: {need.option or need.where}")
    print_line("cache: need not be copied; text that was moved, or whose files have other dates, is tokenised again")
    if relocation.versions:
        versions = ", ".join(f"{name} {version}" for name, version in relocation.versions.items())
        print_line(f"bit-identical with: {one_line(versions)}")
    if relocation.recognises_text_by_content:
        print_line(f"continue: {one_line(relocation.command)}")
    else:
        print_line(
            "continue: only in this place; the run was started by a version that recognises text by path and "
            "date, not by content",
            style="yellow",
        )
