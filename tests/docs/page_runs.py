"""Runs that a page makes, and runs that it uses: a reader who copies block after block has only the former."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.docs.pages import Block, Page
from tests.docs.running import SHELL
from tests.docs.shell import commands
from tests.docs.shrinking import smaller

_RUN = r"(runs/[\w.-]+)"
_OUTPUT = re.compile(rf"\boutput[:=] *{_RUN}")
_IN_CODE = re.compile(rf"\"{_RUN}")
_IN_WORDS = re.compile(_RUN)


def runs_made(block: Block) -> set[str]:
    """Return the runs that a block makes, as `runs/NAME`: by a recipe's `output`, `--output`, or the quickstart."""
    made = set(_OUTPUT.findall(block.text)) if block.language in ("yaml", "python") else set()
    for command in commands(block.text) if block.language in SHELL else ():
        words = command.words
        made |= {_run(words[i + 1]) for i, word in enumerate(words[:-1]) if word == "--output" and _run(words[i + 1])}
        if command.limbeck is not None and command.limbeck[0] == "quickstart" and "--output" not in words:
            made.add("runs/quickstart")
    return made


def runs_used(block: Block) -> set[str]:
    """Return the runs that a block's Python or commands read."""
    if block.language == "python":
        return set(_IN_CODE.findall(block.text))
    found = [word for command in commands(block.text) for word in command.words] if block.language in SHELL else []
    return {_run(word) for word in found} - {""}


def lay_runs(page: Page, finished: Path) -> None:
    """Copy a finished run to where those of the page's recipes and commands would be."""
    for run in set().union(*(runs_made(block) for block in page.blocks if block.language != "python")):
        if not (small := Path(smaller(run))).exists():
            shutil.copytree(finished, small)


def _run(word: str) -> str:
    return found.group(0) if (found := _IN_WORDS.match(word)) else ""
