"""The exceptions of limbeck: one kind per kind of user mistake, each one clear line.

A message names the value, the rule it breaks and the way out. The command line and notebooks show it without a
traceback. The command line exits with `exit_code`: 2 for a mistake in what was asked, 1 for a run that failed or that
the user stopped, 75 for a run that the machine stopped and that can go on.

Below them stand the parts that messages share: several mistakes in one line, the reason that another library gives, and
the nearest of the names that are known.
"""

import difflib
import re
from collections.abc import Iterable, Sequence

from limbeck.option_names import with_arguments

LONGEST_LINE = 6000
"""Characters of a message; what is longer loses its middle."""
MOST_MISTAKES = 6
"""Mistakes that are told together; further ones are counted."""

_LONGEST_NAME = 200
"""Characters of a name that are compared with the names that are known."""
_LONGEST_REASON = 200
"""Characters of another library's message."""
_NEAR = 0.65
"""Similarity from which a name is taken for a misspelling; tensorrt and safetensors, which are not, have 0.63."""
_NEAR_WORD = 0.8
"""The same for a word of a name, since more of a short word is alike by chance."""
_LIST_AFTER_SUGGESTION = re.compile(r"(?<=\?) Known: [^.]*(?:\.(?= )|\.?$)")
"""The list of all names behind the nearest one, see `suggestion`."""
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
        self.args = (with_arguments(str(self)),)
        self.mistakes = tuple(with_arguments(line) for line in self.mistakes)

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows in place of a traceback: in a notebook the message stands alone, too."""
        return [f"{type(self).__name__}: {self}"]


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
    """Return errors that were found together as one: of their class if they share it, else a `RecipeError`.

    Args:
        errors: At least one; alone it stays as it is.
    """
    lines: list[str] = []
    for error in errors:
        lines += error.mistakes or (str(error),)
    distinct = list(dict.fromkeys(lines))
    if len(distinct) == 1:
        return errors[0]

    joined_class: type[LimbeckError] = RecipeError
    classes = {type(error) for error in errors}
    if len(classes) == 1:
        [joined_class] = classes
    joined = joined_class(join_mistakes(distinct))
    joined.mistakes = tuple(_without_list(line) for line in distinct)
    return joined


def join_mistakes(lines: Iterable[str]) -> str:
    """Return mistakes, each a sentence with or without its period, in one line."""
    distinct = [line.removesuffix(".") for line in dict.fromkeys(lines)]
    if len(distinct) == 1:
        return f"{distinct[0]}."
    shown = "; ".join(_without_list(line) for line in distinct[:MOST_MISTAKES])
    hidden = len(distinct) - MOST_MISTAKES
    if hidden > 0:
        shown += f" (and {hidden} more)"
    return f"{shown}."


def _without_list(line: str) -> str:
    """Return a mistake without the list of all names where it has a suggestion: of several mistakes that is enough."""
    return _LIST_AFTER_SUGGESTION.sub("", line)


def describe_error(error: BaseException) -> str:
    """Return an error in one line: the message of one of limbeck's own, the type before it for any other."""
    text = str(error)
    if not isinstance(error, LimbeckError):
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split())


def shorten_error(error: BaseException) -> str:
    """Return the text of another library's error in one line of at most 200 characters, or its type if it has none."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    if len(text) > _LONGEST_REASON:
        return f"{text[:_LONGEST_REASON]}…"
    return text


def _as_one_line(text: str) -> str:
    """Return a message as it is shown: in one line, without characters that a terminal would not show, not too long."""
    # Shortened twice: escapes make a text up to ten times as long, and all of a long text need not be escaped.
    line = _NEWLINES.sub(" ", _without_middle(text))
    printable = "".join(_printable(character) for character in line)
    return _without_middle(printable)


def _without_middle(text: str) -> str:
    """Return a text of at most `LONGEST_LINE` characters: the first and the last third of them if it is longer."""
    if len(text) <= LONGEST_LINE:
        return text
    third = LONGEST_LINE // 3
    return f"{text[:third]}…{text[-third:]}"


def _printable(character: str) -> str:
    """Return a character, or the escape of one that a terminal would not show."""
    if character.isprintable():
        return character
    return ascii(character).strip("'")


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
    if not known:
        return hint
    return f"{hint} Known: {', '.join(known)}."


def nearest(value: str, choices: Iterable[str]) -> str:
    """Return the part of an error line that asks for the nearest choice; empty where none is near.

    The nearest choice is the one that is spelt most alike. If none is, it is the only one that has the value as a word
    (`int8` is a word of `onnx-int8`), or else a word that is spelt alike (`sickk` and a word of `sick_cosine`).
    """
    known = list(choices)
    # The comparison takes quadratic time, and no name is longer.
    matches = difflib.get_close_matches(value[:_LONGEST_NAME], known, n=1, cutoff=_NEAR)
    if not matches:
        words_of_names = {name: re.split("[-_]", name) for name in known}
        names_with_word = [name for name, words in words_of_names.items() if value.lower() in words]
        if not names_with_word:
            every_word = {word for words in words_of_names.values() for word in words}
            near_words = difflib.get_close_matches(value[:_LONGEST_NAME].lower(), every_word, n=1, cutoff=_NEAR_WORD)
            names_with_word = [name for name, words in words_of_names.items() if set(near_words) & set(words)]
        if len(names_with_word) == 1:
            matches = names_with_word
    if not matches:
        return ""
    return f" Did you mean '{matches[0]}'?"
