"""Names of options in messages: `--read-pickled` on the command line is `read_pickled=True` in Python."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OPTION = re.compile(
    # The arguments of a command end at a mark of the sentence, but a word in quotes, a list or a folder may have one.
    r"\blimbeck (?P<command>[a-z]+)(?P<arguments>(?:(?<=[\s=])'[^']*'|(?<==)\[[^]]*]|[^;,`]|,(?=\S))*)"
    r"|(?<![^\s(`])--(?P<option>[a-z][a-z-]*)"
    r"(?: (?P<value>\d+(?:\.\d+)?(?![.,]?\w)|[\w.]+=(?:\[[^]]*]|[^\s;,)`]*[^\s;,)`.])))?"
)
"""A whole command, such as `limbeck distill --resume`; or an option, with a value that is a number or `KEY=VALUE`."""
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
_OF_A_COMMAND = re.compile(r" --(?P<option>[a-z][a-z-]*)(?: (?P<value>(?!--)\S.*?))?(?= --|$)")
"""An option of a command, with its value."""

_is_called_from_python = ContextVar("_is_called_from_python", default=False)


@contextmanager
def called_from_python() -> Iterator[None]:
    """Let `for_caller` name Python's arguments inside the block."""
    before = _is_called_from_python.set(True)
    try:
        yield
    finally:
        _is_called_from_python.reset(before)


def for_caller(line: str) -> str:
    """Return a line to print, in the names of who called: those of the command line, or of Python."""
    if _is_called_from_python.get():
        return with_arguments(line)
    return line


def with_arguments(message: str) -> str:
    """Return a message that names Python's arguments in place of options: `resume=True` for `--resume`."""
    return OPTION.sub(_in_python, message)


def _in_python(match: re.Match[str]) -> str:
    """Return the call of a command, or the argument of an option."""
    if match["command"] is not None:
        return _call_of(match["command"], match["arguments"]) or match[0]
    if match["option"] in _OF_THE_PROGRAM:
        return match[0]
    argument = _argument_of(match["option"], match["value"])
    # On a command line a space parts two options, in a call a comma.
    is_followed_by_option = match.string.startswith(" --", match.end())
    return f"{argument}," if is_followed_by_option else argument


def _argument_of(option: str, value: str | None) -> str:
    """Return the argument of an option, with its value if the message has one."""
    argument = _ARGUMENTS.get(option, option.replace("-", "_"))
    if argument in SWITCHES:
        argument += "=True"
    if value is None:
        return argument
    if argument == "overrides":
        return f'{argument}="{value}"'
    # Of other options `KEY=VALUE` may be a part alone.
    separator = " " if "=" in value or "=" in argument else "="
    return f"{argument}{separator}{value}"


def _call_of(command: str, arguments: str) -> str:
    """Return the call of Python for a command that continues, ends or begins a run; empty for any other command.

    Args:
        command: Its name, such as `distill`.
        arguments: The text behind the name.
    """
    if command == "finish" and arguments.startswith(" "):
        folder = _as_text(arguments.strip())
        return f"limbeck.finish({folder})" if folder else ""
    if command == "distill":
        return _call_of_distill(arguments)
    return ""


def _call_of_distill(arguments: str) -> str:
    """Return the call of Python for `limbeck distill`; empty for arguments that are not options alone."""
    options = list(_OF_A_COMMAND.finditer(arguments))
    are_all_options = "".join(option[0] for option in options) == arguments
    if not options or not are_all_options:
        return ""
    parts = []
    for option in options:
        name = option["option"]
        value = option["value"]
        # The argument of some options has another name or form in Python, which a message would have to explain.
        has_other_name = name in _ARGUMENTS
        lacks_value = value is None and name not in SWITCHES
        if has_other_name or lacks_value:
            return ""
        if value is None:
            value = "True"
        elif name != "steps":
            value = _as_text(value)
            if not value:
                return ""
        parts.append(f"{name.replace('-', '_')}={value}")
    return f"limbeck.distill({', '.join(parts)})"


def _as_text(value: str) -> str:
    """Return a value of a command as Python writes it, such as `"runs/small"`; empty where that cannot be told."""
    # The shell needs quotes around a folder with spaces. Some messages name such a folder without them.
    if "'" in value or '"' in value:
        try:
            words = shlex.split(value)
        except ValueError:
            return ""
        if len(words) != 1:
            return ""
        [value] = words
    # Python would write these characters in another way.
    if '"' in value or "\\" in value:
        return ""
    return f'"{value}"'
