"""The word for the value of an option in a help: `--steps NUMBER`, `--output PATH`, and none for a switch."""

from functools import partial
from pathlib import Path
from typing import Any, get_args

_WORDS: dict[type, str] = {bool: "", int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}
"""The words by Python's types; a switch takes no value."""


def name_values(command: Any, **settings: Any) -> None:
    """Let the helps of a command and of all below it name types by words, in place of Python's names.

    An option that declares a `metavar` keeps it.

    Args:
        command: The command or the group of commands, as typer hands it to its parser.
        settings: The settings with which typer opens the command, such as the names of the help's option.
    """
    # The parameters of a context include --help, which typer adds itself. With `resilient_parsing`, a context needs no
    # arguments and runs nothing.
    with command.make_context(command.name, [], resilient_parsing=True, **settings) as context:
        parameters = command.get_params(context)
    for parameter in parameters:
        word = _word_of(parameter.type_descriptor.annotation)
        if word is not None:
            # The help shows what this method of a parameter returns.
            parameter.display_type = partial(_same_word, word)
    # Only a group has commands below it.
    for child in getattr(command, "commands", {}).values():
        name_values(child, **settings)


def _word_of(cls: Any) -> str | None:
    """Return the word for a type, or for the items of a list; None for a type whose help shows its choices."""
    items = get_args(cls)
    if items:
        cls = items[0]
    return _WORDS.get(cls)


def _same_word(word: str, context: Any) -> str:
    """Return the word, whatever the context; typer calls this for the type in a help."""
    return word
