"""Running what a page says, in the current folder and made small: its files, its commands, its Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import Block, Page
from tests.docs.shell import Command, commands

SHELL = ("bash", "sh", "console")
SMALL = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text(encoding="utf-8"))
_RUN = r"(runs/[\w.-]+)"


def smaller(text: str) -> str:
    """The block, with its numbers made small."""
    for pattern, small in SMALL["patterns"]:
        text = re.sub(pattern, small, text)
    return text


def commands_of(block: Block) -> list[Command]:
    """The commands of a shell block; none of another."""
    return list(commands(block.text)) if block.language in SHELL else []


def runs_made(block: Block) -> set[str]:
    """Return the runs that a block makes, as `runs/NAME`: by a recipe's `output`, `--output`, or the quickstart."""
    made = set(re.findall(rf"\boutput[:=] *{_RUN}", block.text)) if block.language in ("yaml", "python") else set()
    for command in commands_of(block):
        if "--output" in command.words:
            made |= set(re.findall(f"^{_RUN}", command.words[command.words.index("--output") + 1]))
        elif command.limbeck is not None and command.limbeck[0] == "quickstart":
            made.add("runs/quickstart")
    return made


def runs_used(block: Block) -> set[str]:
    """Return the runs that a block's Python or commands read."""
    if block.language == "python":
        return set(re.findall(f'"{_RUN}', block.text))
    return {run for command in commands_of(block) for word in command.words for run in re.findall(f"^{_RUN}", word)}


def lay_runs(page: Page, finished: Path) -> None:
    """Copy a finished run to where those of the page's recipes and commands would be."""
    for run in set().union(*(runs_made(block) for block in page.blocks if block.language != "python")):
        if not (small := Path(smaller(run))).exists():
            shutil.copytree(finished, small)


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
    """Run the page's limbeck commands for which `wanted` says so, in order; the runs they make are not there before.

    Args:
        page: The page; its other programs are not started.
        limbeck: Runs a command line in this process.
        wanted: Takes the arguments as the page has them.

    Returns:
        The failures: place, command, and its errors.
    """
    found = [
        (block, command, command.limbeck)
        for block in page.blocks
        if block.language in SHELL and block.not_run is None
        for command in commands(smaller(block.text))
        if command.limbeck is not None and wanted(command.limbeck)
    ]
    for _, _, arguments in found:
        if arguments[0] in ("distill", "compare", "finetune") and "--output" in arguments:
            shutil.rmtree(arguments[arguments.index("--output") + 1], ignore_errors=True)
    failed = []
    for block, command, arguments in found:
        done = limbeck(*arguments, *_small_options(arguments))
        if command.output is not None:
            Path(command.output).write_text(smaller(done.stdout), encoding="utf-8")
        if done.returncode != 0:
            failed.append(f"{block.place}: limbeck {' '.join(arguments)}\n{done.stderr[-2000:]}")
    return failed


def _small_options(arguments: tuple[str, ...]) -> list[str]:
    line = " ".join(arguments) + " "
    more = next((more.split() for names, more in SMALL["options"].items() if line.startswith(f"{names} ")), [])
    if arguments[0] == "search" and "--data" in arguments:
        more += ["--tasks", "rte", "--preset", "quick", "--seeds", "1", "--set-task", "epochs=1"]
    if arguments[0] == "quickstart" and "--corpus" not in arguments:
        more += ["--corpus", "texts"]
        more += [] if "--output" in arguments else ["--output", "runs/quickstart"]
    return more
