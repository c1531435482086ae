"""All commands of the command line, and the examples of their helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from limbeck.cli.main import build_app


@cache
def root() -> Any:
    """The whole command line, as typer hands it to its parser."""
    return build_app()


def walk(command: Any = None, name: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command and group below a group, by name: `"search mapping"`."""
    group = root() if command is None else command
    for part, child in getattr(group, "commands", {}).items():
        yield " ".join((*name, part)), child
        yield from walk(child, (*name, part))


def find(words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command or group that words begin with, and the words behind it."""
    command, rest = root(), list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def leaves() -> list[tuple[str, Any]]:
    """Return the commands that do something."""
    return [(name, command) for name, command in walk() if not hasattr(command, "commands")]


def examples_of(command: Any) -> list[str]:
    """The examples below a command's help, each in one line."""
    paragraphs = (command.epilog or "").split("\n\n")
    examples = [paragraph for paragraph in paragraphs if paragraph.startswith("limbeck ")]
    return [re.sub(r" \\\n +", " ", example) for example in examples]


def arguments_of(example: str) -> list[str]:
    """What a shell would give to limbeck."""
    return shlex.split(example.partition(" > ")[0])[1:]


def parse(arguments: list[str]) -> dict[str, Any]:
    """Parse a call as typer does, without running anything.

    Raises:
        UsageError: for what the command line does not take.
    """
    command = root()
    context = command.make_context("limbeck", list(arguments))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return dict(context.params)
