"""Running what a page says, in the current folder: its files, its commands, its Python."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.docs.pages import Block, Page
from tests.docs.shell import Command, commands
from tests.docs.shrinking import smaller

SHELL = ("bash", "sh", "console")
#: Options that are laid over a command, since its defaults are those of a real run. They follow what the page gives.
_SMALL_OPTIONS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("distill",): ("--set", "evaluation.enabled=false", "--quiet"),
    ("quickstart",): (
        *("--set", "evaluation.enabled=false", "--quiet"),
        *("--set", "stages.0.training.max_steps=1", "--set", "stages.1.training.max_steps=1"),
    ),
    ("evaluate",): (
        *("--preset", "quick", "--seeds", "1", "--set", "epochs=1", "--set", "length=32"),
        *("--seconds", "0.05", "--quiet"),
    ),
    ("search", "mapping"): ("--generations", "1", "--population", "2", "--set", "corpus.held_out=0.3"),
    ("search", "architecture"): ("--trials", "2", "--set", "corpus.held_out=0.3"),
    ("search", "teacher-layer"): ("--set", "corpus.held_out=0.3"),
    ("compare",): ("--set", "evaluation.speed.enabled=false", "--quiet"),
    ("export",): ("--seconds", "0.05", "--quiet"),
    ("benchmark", "model"): ("--seconds", "0.05", "--quiet"),
    ("benchmark", "step"): ("--seconds", "0.05", "--no-memory", "--quiet"),
    ("benchmark", "loss"): ("--seconds", "0.05", "--no-memory", "--quiet"),
}


def write_files(page: Page) -> None:
    """Write the blocks that are files, where the page says that they are."""
    for block in page.blocks:
        if block.title is not None and block.not_run is None:
            path = Path(block.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(smaller(block.text), encoding="utf-8")


def run_python(page: Page) -> None:
    """Run the page's Python, block after block, in one namespace."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in page.blocks:
        if block.language == "python" and block.not_run is None:
            # As many line breaks in front as in the page, so that a traceback names the line that its reader sees.
            code = "\n" * block.line + smaller(block.text)
            exec(compile(code, block.page, "exec"), namespace)


def run_commands(page: Page, limbeck: Callable[..., Any], wanted: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """Run the page's limbeck commands for which `wanted` says so, in order.

    Args:
        page: The page; its other programs are not started.
        limbeck: Runs a command line in this process.
        wanted: Takes the arguments as the page has them.

    Returns:
        What failed: place, command, and what it said.
    """
    found = [
        (block, command, command.limbeck)
        for block in page.blocks
        if block.language in SHELL and block.not_run is None
        for command in commands(smaller(block.text))
        if command.limbeck is not None and wanted(command.limbeck)
    ]
    for _, _, arguments in found:
        _remove_what_it_makes(arguments)
    return [failure for block, command, arguments in found for failure in _run(block, command, arguments, limbeck)]


def _remove_what_it_makes(arguments: tuple[str, ...]) -> None:
    """A run that the page makes itself is not there before."""
    if arguments[0] in ("distill", "compare") and "--output" in arguments:
        shutil.rmtree(arguments[arguments.index("--output") + 1], ignore_errors=True)


def _run(block: Block, command: Command, arguments: tuple[str, ...], limbeck: Callable[..., Any]) -> list[str]:
    done = limbeck(*arguments, *_small_options(arguments))
    if command.output is not None:
        Path(command.output).write_text(smaller(done.stdout), encoding="utf-8")
    return [] if done.returncode == 0 else [f"{block.place}: limbeck {' '.join(arguments)}\n{done.stderr[-2000:]}"]


def _small_options(arguments: tuple[str, ...]) -> tuple[str, ...]:
    more = next((more for names, more in _SMALL_OPTIONS.items() if arguments[: len(names)] == names), ())
    if arguments[0] == "search" and "--data" in arguments:
        more = (*more, "--tasks", "rte", "--preset", "quick", "--seeds", "1", "--set-task", "epochs=1")
    if arguments[0] == "quickstart" and "--corpus" not in arguments:
        more = (*more, "--corpus", "texts")  # The installed docstrings take half a minute to read.
        more = more if "--output" in arguments else (*more, "--output", "runs/quickstart")
    return more
