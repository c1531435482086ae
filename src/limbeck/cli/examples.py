"""Example calls at the end of a help, in lines that can be copied into a shell."""

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_WIDTH = 76
"""Characters in a line, so that it fits into a terminal of 80 columns with its margin and a backslash."""


def examples_of_help(*examples: str) -> str:
    """Return the end of a help: a heading, then each example call in a paragraph of its own."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    return "\n\n".join([heading, *map(_in_short_lines, examples)])


def _in_short_lines(example: str) -> str:
    """Break a long example into lines before some of its options.

    Each line but the last ends in a backslash, so that the shell joins them.
    """
    first, *options = re.split(r" (?=--)", example)  # At each blank before an option.
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) < _WIDTH:
            lines[-1] += f" {option}"
        else:
            lines.append(f"  {option}")
    return " \\\n".join(lines)


class _WithExamples:
    """A command whose help ends in examples, printed as they are.

    Typer itself would fill each line with blanks up to the width of the terminal. A blank behind a backslash keeps the
    shell from joining two lines.
    """

    epilog: str | None

    def format_help(self, context: Any, formatter: Any) -> None:
        """Write the help, then the examples below it as they are; typer would wrap their lines."""
        # Typer writes the help with the epilog at its end, so the epilog is taken away while it does.
        examples = self.epilog
        self.epilog = None
        super().format_help(context, formatter)  # type: ignore[misc]
        self.epilog = examples
        if examples:
            typer.echo()
            for line in examples.splitlines():
                typer.echo(f" {line}".rstrip())


class CommandWithExamples(_WithExamples, TyperCommand):
    """A command whose help ends in examples."""


class GroupWithExamples(_WithExamples, TyperGroup):
    """A group of commands whose help ends in examples."""
