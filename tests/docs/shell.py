"""Shell blocks: the commands in them, and which of them are limbeck's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

#: Programs that start other programs.
_LAUNCHERS = ("torchrun", "accelerate", "srun", "nohup", "time")


@dataclass(frozen=True)
class Command:
    """One command of a shell block.

    Args:
        words: The program and its arguments, without variables set in front, redirections and a `&` at the end.
        output: The file that its output goes to, or None.
    """

    words: tuple[str, ...]
    output: str | None = None

    @property
    def limbeck(self) -> tuple[str, ...] | None:
        """The arguments of limbeck, however it is started; None for another program."""
        if "limbeck" not in self.words:
            return None
        place = self.words.index("limbeck")
        as_module = self.words[0] in ("python", "python3") and self.words[place - 1] == "-m"
        return self.words[place + 1 :] if place == 0 or as_module or self.words[0] in _LAUNCHERS else None


def commands(text: str) -> Iterator[Command]:
    """Split a block into commands; comments are dropped, lines that end in a backslash are joined.

    Args:
        text: The block. Where a line has a prompt, lines without one are output.

    Raises:
        ValueError: for a line that a shell could not read.
    """
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split = True
        for ends, words in groupby(lexer, lambda word: word in (";", "&&", "||", "&")):
            if not ends:
                yield _command(list(words))


def _command(words: list[str]) -> Command:
    while "=" in words[0] and words[0].split("=")[0].isidentifier():
        words = words[1:]
    output = None
    if ">" in words:
        place = words.index(">")
        output, words = words[place + 1], words[:place] + words[place + 2 :]
    return Command(tuple(words), output)


def targets(makefile: Path) -> set[str]:
    """The targets of a makefile."""
    return set(re.findall(r"^(\w[^:=\n]*):(?!=)", makefile.read_text(encoding="utf-8"), re.MULTILINE))
