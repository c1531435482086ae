"""The exceptions of limbeck: one kind per kind of user mistake, each one clear line.

A message names the value, the rule it breaks and the way out. The command line prints it without a traceback
and exits with `exit_code`: 2 for a mistake in what was asked, 1 for a run that failed or that the user stopped, 75 for
a run that the machine stopped and that can go on.
"""

import difflib
import re
from collections.abc import Iterable, Sequence

LONGEST_LINE = 6000
"""Characters of a message; what is longer loses its middle."""
_LONGEST_NAME, _LONGEST_REASON = 200, 200
_NEAR = 0.65
"""Similarity from which a name is taken for a misspelling; tensorrt and safetensors, which are not, have 0.63."""
MOST_MISTAKES = 6
"""Mistakes that are told together; further ones are counted."""
_AFTER_NEAR = re.compile(r"(?<=\?) Known: [^.]*(?:\.(?= )|\.?$)")
_OPTION = re.compile(r"(?P<command>\blimbeck [a-z][^;,`]*)|(?<![^\s(`])--(?P<option>[a-z][a-z-]*)")
"""An option in a message. A whole command, such as `limbeck distill --resume`, stays as it is."""
_ARGUMENTS = {"set": "overrides"}
"""Python's arguments that have another name than their option."""
_OF_THE_PROGRAM = ("plugin", "debug")
"""Options of `limbeck` itself, which no call of Python has."""
_SWITCHES = ("resume", "overwrite", "as_is", "read_pickled", "speed", "dry_run", "no_halving")
_NEWLINES = re.compile(r"\s*[\r\n]\s*")


class LimbeckError(Exception):
    """Base of every error that limbeck raises on purpose: one line, whatever stands in the values that it names.

    A message names an option by its name behind two hyphens: `--read-pickled`. The command line prints it so; the calls
    of `limbeck.api` let `name_arguments` turn it into Python's argument.

    Args:
        message: Newlines become spaces; control characters and what else a terminal would not show, escapes.
    """

    exit_code = 2
    on_all_ranks = False
    """True when every rank raises it; no broadcast is needed."""
    printed_by_other_rank = False
    """True when another rank prints it."""
    mistakes: tuple[str, ...] = ()
    """Each of several mistakes that were found together, in one line; the command line gives each its own."""

    def __init__(self, message: str) -> None:
        super().__init__(_as_one_line(message))

    def name_arguments(self) -> None:
        """Name the options in the message as Python's arguments: `resume=True` for `--resume`."""
        self.args = (_with_arguments(str(self)),)
        self.mistakes = tuple(map(_with_arguments, self.mistakes))


class RecipeError(LimbeckError):
    """A recipe, override or argument that cannot be meant as written."""


class CorpusError(LimbeckError):
    """Text that is missing, empty or unreadable."""


class ModelError(LimbeckError):
    """A model that cannot be loaded, built or used as asked."""


class OutputError(LimbeckError):
    """An output folder that must not be written, or cannot be continued."""


class KernelError(LimbeckError):
    """An explicitly chosen backend, or an argument of an objective, that cannot be met."""


class PluginError(LimbeckError):
    """Code from outside the package that cannot be loaded, or adds what cannot be used."""


class TrainingError(LimbeckError):
    """A run that started and failed; finished work is kept."""

    exit_code = 1


class Interrupted(TrainingError):  # noqa: N818 - the name says what happened
    """A run stopped by the user; its state is saved and it can be resumed."""

    exit_code = 1


class Preempted(Interrupted):
    """A run stopped by SIGTERM, as machines that are taken back send it; its state is saved and it can be resumed.

    The exit code is that of sysexits.h for what may succeed when it is tried again (EX_TEMPFAIL).
    """

    exit_code = 75


def together(errors: Sequence[LimbeckError]) -> LimbeckError:
    """Return errors that were found together as one: of their kind if they share it, else a `RecipeError`.

    Args:
        errors: At least one; alone it stays as it is.
    """
    lines = list(dict.fromkeys(line for error in errors for line in error.mistakes or (str(error),)))
    if len(lines) == 1:
        return errors[0]
    kinds = {type(error) for error in errors}
    joined = (kinds.pop() if len(kinds) == 1 else RecipeError)(join_mistakes(lines))
    joined.mistakes = tuple(_AFTER_NEAR.sub("", line) for line in lines)
    return joined


def join_mistakes(lines: Iterable[str]) -> str:
    """Return mistakes, each a sentence with or without its period, in one line."""
    distinct = [line.removesuffix(".") for line in dict.fromkeys(lines)]
    if len(distinct) == 1:
        return f"{distinct[0]}."
    more = f" (and {len(distinct) - MOST_MISTAKES} more)" if len(distinct) > MOST_MISTAKES else ""
    # Of several a name that is near says enough.
    return f"{'; '.join(_AFTER_NEAR.sub('', line) for line in distinct[:MOST_MISTAKES])}{more}."


def describe_error(error: BaseException) -> str:
    """Return an error in one line: the message of one of limbeck's own, the type before it for any other."""
    text = str(error) if isinstance(error, LimbeckError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def shorten_error(error: BaseException) -> str:
    """Return the text of another library's error in one line of at most 200 characters, or its type if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _with_arguments(text: str) -> str:
    return _OPTION.sub(_argument_of, text)


def _argument_of(match: re.Match[str]) -> str:
    """Return the argument of an option, or a whole command as it is."""
    option = match["option"]
    if match["command"] or option in _OF_THE_PROGRAM:
        return match[0]
    name = _ARGUMENTS.get(option, option.replace("-", "_"))
    return f"{name}=True" if name in _SWITCHES else name


def _as_one_line(text: str) -> str:
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 3]}…{text[-LONGEST_LINE // 3 :]}"
    text = _NEWLINES.sub(" ", text)
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return plain if len(plain) <= LONGEST_LINE else f"{plain[: LONGEST_LINE // 3]}…{plain[-LONGEST_LINE // 3 :]}"


def suggestion(value: str, choices: Iterable[str]) -> str:
    """Return the end of an error line: the nearest choice if one is near, then all choices.

    Args:
        value: What the user wrote.
        choices: What could have been written.

    Returns:
        For example `" Did you mean 'minilmv2'? Known: minilm, minilmv2."`; empty without choices.
    """
    known = sorted(choices)
    hint = nearest(value, known)
    return f"{hint} Known: {', '.join(known)}." if known else hint


def nearest(value: str, choices: Iterable[str]) -> str:
    """Return the part of an error line that asks for the nearest choice; empty where none is near.

    That is a name spelt alike, else the only one of which the value is a word, as `int8` of `onnx-int8`.
    """
    known = list(choices)
    # The comparison takes quadratic time, and no name is longer.
    near = difflib.get_close_matches(value[:_LONGEST_NAME], known, n=1, cutoff=_NEAR)
    words = [name for name in known if value.lower() in re.split("[-_]", name)]
    matches = near or (words if len(words) == 1 else [])
    return f" Did you mean '{matches[0]}'?" if matches else ""
