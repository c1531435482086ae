"""Names of options in messages: `--read-pickled` on the command line is `read_pickled=True` in Python."""

import re

OPTION = re.compile(r"(?P<command>\blimbeck [a-z][^;,`]*)|(?<![^\s(`])--(?P<option>[a-z][a-z-]*)")
"""An option in a message; or a whole command, such as `limbeck distill --resume`, which stays as it is."""
SWITCHES = ("resume", "overwrite", "as_is", "read_pickled", "speed", "dry_run", "no_halving", "check", "private")
"""Python's arguments that are true or false."""

_ARGUMENTS = {
    "set": "overrides",
    "set-task": "settings",
    "prompt": "prompts",
    "no-prune": "prune=False",
    "quiet": "console=Console(quiet=True)",
}
"""Options whose argument in Python has another name or form."""
_OF_THE_PROGRAM = ("plugin", "debug", "log-file")
"""Options that no call of Python has: those of `limbeck` itself, and one of commands alone."""


def with_arguments(message: str) -> str:
    """Return a message that names Python's arguments in place of options: `resume=True` for `--resume`."""
    return OPTION.sub(_argument_of, message)


def _argument_of(match: re.Match[str]) -> str:
    """Return the argument of an option, or a whole command as it is."""
    option = match["option"]
    if option is None or option in _OF_THE_PROGRAM:
        return match[0]
    argument = _ARGUMENTS.get(option, option.replace("-", "_"))
    if argument in SWITCHES:
        return f"{argument}=True"
    return argument
