"""Mistakes in how a command is called, in one line each."""

import difflib
from typing import Any

import typer
from pydantic import ValidationError

from limbeck.core.mistakes import show_value, wanted_of

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for every mistake in a call. It has its own copy of click, or click's, and exports only a child."""


def is_help(error: Exception) -> bool:
    """Whether an error stands for the help of a group of commands, which is printed already, and no mistake."""
    return type(error).__name__ == "NoArgsIsHelpError"


def usage_message(error: Any) -> str:
    """Return the message of a usage error: the mistake, the nearest option or command, and the help to look at."""
    message = _refused_value(error)
    if message is not None:
        return message
    message = _unknown_option(error)
    if message is None:
        message = " ".join(error.format_message().split())
    if not message.endswith((".", "?")):
        message += "."
    if error.ctx is None:
        return message
    return f"{message} See `{error.ctx.command_path} --help`."


def _refused_value(error: Any) -> str | None:
    """Return the message on a value that pydantic refused, by the rule of the option; None for any other error."""
    if not isinstance(error.__cause__, ValidationError):
        return None
    refused = error.__cause__.errors()[0]
    wanted = wanted_of(refused)
    if not wanted:
        return None
    # A number out of range, of the type "greater_than" for example, is shown as it is.
    is_out_of_range = "than" in refused["type"]
    value = refused["input"] if is_out_of_range else show_value(refused["input"])
    return f"{_name_of(error.param)} is {value}; give {wanted}."


def _unknown_option(error: Any) -> str | None:
    """Return the message on an option that there is not, with the nearest one; None for any other error."""
    # Typer exports no class for this error. It is told by its `possibilities`, which some versions lack, or its name.
    possibilities = getattr(error, "possibilities", None)
    is_unknown_option = possibilities is not None or type(error).__name__ == "NoSuchOption"
    if not is_unknown_option:
        return None
    message = f"No such option: {error.option_name}."
    nearest = difflib.get_close_matches(error.option_name, possibilities or (), n=1, cutoff=0)
    if nearest:
        message += f" Did you mean {nearest[0]}?"
    return message


def _name_of(parameter: Any) -> str:
    """Return an option in its long form, or the name of an argument."""
    if parameter.param_type_name == "option":
        return max(parameter.opts, key=len)
    return parameter.human_readable_name
