"""Arguments that are wrong by themselves, whatever the machine: told before torch is imported, which takes seconds."""

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, TypeVar

from limbeck.errors import RecipeError, suggestion

P = ParamSpec("P")
T = TypeVar("T")


def refuse_unknown(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that users call: arguments that it does not have, and the want of others, are told in a line.

    Raises:
        RecipeError: for such a call.
    """
    signature, call = inspect.signature(function), f"limbeck.{function.__name__}"
    takes_all = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        unknown = next((name for name in options if name not in signature.parameters), None)
        if unknown is not None and not takes_all:
            raise RecipeError(f"{call} has no argument '{unknown}'.{suggestion(unknown, signature.parameters)}")
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise RecipeError(f"{call}: {error}; see help({call}).") from None
        return function(*args, **options)

    return checked


def check_models(*names: str | None, shapes: bool = False) -> None:
    """Refuse models that are nowhere.

    Args:
        names: Folders, `package:NAME` or Hub names; None is no model.
        shapes: Whether a shape such as `12x768`, or the name of a preset, may stand for a model.

    Raises:
        ModelError: for the first.
    """
    from limbeck.models.blueprint import names_shape
    from limbeck.models.locating import check_there

    check_there(*(name for name in names if name is not None and not (shapes and names_shape(name))))


def check_text(given: object) -> None:
    """Refuse a file of texts that is not there; texts themselves, and None, are no file.

    Raises:
        CorpusError: for such a path.
    """
    if not isinstance(given, str | Path) or Path(given).is_file():
        return
    from limbeck.corpus.small_files import read_texts

    read_texts(Path(given), 1)


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is none of those there are.

    Raises:
        RecipeError: with the nearest.
    """
    names = sorted(known)
    if name not in names:
        raise RecipeError(f"Unknown {kind} '{name}'.{suggestion(name, names)}")
