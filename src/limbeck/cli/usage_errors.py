"""Mistakes in how a command is called, in one line each."""

from __future__ import annotations

import difflib
from typing import Any

import typer

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for every mistake in a call. It has its own copy of click, or click's, and exports only a child."""


def is_help(error: Exception) -> bool:
    """Whether it stands for the help of a group of commands, which is printed already, and no mistake."""
    return type(error).__name__ == "NoArgsIsHelpError"


def usage_message(error: Any) -> str:
    """Return what is wrong, and where to look; for an unknown option or command, the one that is meant."""
    message = " ".join(error.format_message().split())
    near = getattr(error, "possibilities", None)
    if near is not None or type(error).__name__ == "NoSuchOption":
        nearest = difflib.get_close_matches(error.option_name, near or (), n=1, cutoff=0)
        meant = f" Did you mean {nearest[0]}?" if nearest else ""
        message = f"No such option: {error.option_name}.{meant}"
    if not message.endswith((".", "?")):
        message += "."
    return f"{message} See `{error.ctx.command_path} --help`." if error.ctx is not None else message
