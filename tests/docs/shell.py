"""Shell blocks: the commands in them, and which of them are limbeck's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Programs that start other programs, each with its options that take a value.
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
        if self.words[0] == "limbeck":
            return self.words[1:]
        for first in ("-m", "--module"):
            if first in self.words and self.words[0] in (*_LAUNCHERS, "python", "python3"):
                after = self.words[self.words.index(first) + 1 :]
                return after[1:] if after[:1] == ("limbeck",) else None
        if self.words[0] in _LAUNCHERS and "limbeck" in self.words:
            return self.words[self.words.index("limbeck") + 1 :]
        return None

    @property
    def launched(self) -> bool:
        """Whether another program starts it, as `torchrun` does."""
        return self.words[0] in _LAUNCHERS


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
        words: list[str] = []
        for word in [*_words(line), ";"]:
            if word not in (";", "&&", "||", "&"):
                words.append(word)
            elif words:
                yield _command(words)
                words = []


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    return list(lexer)


def _command(words: list[str]) -> Command:
    while "=" in words[0] and words[0].split("=")[0].isidentifier():
        words = words[1:]
    output = None
    if ">" in words:
        place = words.index(">")
        output, words = words[place + 1], words[:place] + words[place + 2 :]
    return Command(tuple(words), output)


def targets(makefile: Path) -> set[str]:
    """What `make` can be asked for."""
    lines = makefile.read_text(encoding="utf-8").splitlines()
    return {
        line.split(":")[0] for line in lines if line[:1].isalpha() and ":" in line and "=" not in line.split(":")[0]
    }
