"""Python functions of requests: their signatures and docstrings are made of the options that a request declares.

A *request* is a class with a field for each option of a call (`limbeck.api.requests`). Wrong arguments are refused in
one line, which names Python's arguments.
"""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError
from rich.console import Console

from limbeck.api.progress import announcing_libraries
from limbeck.api.requests.fields import options_of, python_fields
from limbeck.core.mistakes import show_value, wanted_of
from limbeck.errors import LimbeckError, RecipeError, suggestion
from limbeck.option_names import called_from_python

P = ParamSpec("P")
R = TypeVar("R")
Q = TypeVar("Q")
_WIDTH = 116
"""Columns of a docstring's text behind its indent."""
_SECTION = re.compile(r"^(Returns|Raises|Example):$", re.MULTILINE)


def python_call(name: str, request: Callable[P, Q], carry_out: Callable[[Q], R]) -> Callable[P, R]:
    """Return the Python function of a request.

    Args:
        name: Name of the function.
        request: The class of the request, whose options are the function's arguments.
        carry_out: Called with the request. Its docstring is the function's, with a section of the arguments added.
    """

    def call(*args: P.args, **options: P.kwargs) -> R:
        return carry_out(make_request(request, args, options))

    call.__name__ = name
    call.__qualname__ = name
    call.__module__ = carry_out.__module__
    call.__doc__ = _docstring_of(carry_out, request)
    returned = carry_out.__annotations__.get("return", inspect.Signature.empty)
    call.__signature__ = signature_of(request, returned)  # type: ignore[attr-defined]
    return checked_call(call)


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call: it refuses wrong arguments, and its messages name Python's arguments.

    Raises:
        RecipeError: for an argument that the function does not have, or that is missing.
    """
    signature = inspect.signature(function)
    name = f"limbeck.{function.__name__}"
    # A function with `**options` checks their names itself.
    takes_any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        """Call the function, with errors of its arguments as `RecipeError` of one line."""
        if not takes_any_name:
            refuse_unknown(f"{name} has no argument", options, signature.parameters)
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise RecipeError(f"{name}: {error}; see help({name}).") from None
        # The functions that show progress take its console by name.
        console = options.get("console")
        with named_for_python(), announcing_libraries(console if isinstance(console, Console) else None):
            return function(*args, **options)

    return checked


@contextmanager
def named_for_python() -> Iterator[None]:
    """Let errors and printed lines name options as Python's arguments in the block: `resume=True` for `--resume`."""
    try:
        with called_from_python():
            yield
    except LimbeckError as error:
        error.name_arguments()
        raise


def refuse_unknown(refusal: str, names: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse names that are not known.

    Args:
        refusal: The beginning of the message.
        names: The names that were given.
        known: The names that exist.

    Raises:
        RecipeError: for the first unknown name, with the nearest known one.
    """
    for name in names:
        if name not in known:
            raise RecipeError(f"{refusal} '{name}'.{suggestion(name, known)}")


def make_request(request: Callable[..., Q], args: Sequence[Any], options: Mapping[str, Any]) -> Q:
    """Make a request from the arguments of a call.

    Raises:
        RecipeError: for the first value that has the wrong type, is out of bounds, or cannot be read.
    """
    bound = signature_of(request).bind(*args, **options)
    # Some options have a reader, since users may write them in several ways: a mapping, or texts such as `KEY=VALUE`.
    for name, option in options_of(request).items():
        if option.reads is not None and name in bound.arguments:
            name_in_messages = _written(name, option.flag)
            bound.arguments[name] = option.reads(name_in_messages, bound.arguments[name])
    try:
        return request(**bound.arguments)
    except ValidationError as error:
        raise RecipeError(_refusal(request, error)) from None


def signature_of(request: Callable[..., Any], returned: Any = inspect.Signature.empty) -> inspect.Signature:
    """Return the signature of a request's Python function."""
    declared = options_of(request)
    parameters = []
    for field in python_fields(request):
        option = declared[field.name]
        kind = inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = inspect.Parameter.empty if option.is_required else option.default
        parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=field.type))
    return inspect.Signature(parameters, return_annotation=returned)


def _written(name: str, flag: str) -> str:
    """Return an option as messages name it: its flag, which `named_for_python` later turns into the argument."""
    # A flag may have a short form behind a comma, such as `--output,-o`.
    return flag.split(",")[0] or f"--{name.replace('_', '-')}"


def _refusal(request: Callable[..., Any], error: ValidationError) -> str:
    """Return the message of the first value that a request refuses."""
    mistake = error.errors()[0]
    # The place of a mistake begins with the name of the field.
    name = str(mistake["loc"][0])
    option = _written(name, options_of(request)[name].flag)
    wanted = wanted_of(mistake)
    if not wanted:
        return f"{option}: {mistake['msg']}."
    return f"{option} is {show_value(mistake['input'])}; give {wanted}."


def _docstring_of(carry_out: Callable[..., Any], request: Callable[..., Any]) -> str:
    """Return the docstring of a function with a section of the arguments, before Returns, Raises and Example."""
    text = inspect.getdoc(carry_out) or ""
    # The first section of the function's own docstring, before which that of the arguments is put.
    section = _SECTION.search(text)
    start = len(text) if section is None else section.start()
    declared = options_of(request)
    lines = []
    for field in python_fields(request):
        option = declared[field.name]
        line = f"{field.name}: {option.python or option.description}"
        lines.append(textwrap.fill(line, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8))
    arguments = "\n".join(["Args:", *lines])
    summary = text[:start].rstrip()
    other_sections = text[start:]
    return "\n\n".join(part for part in (summary, arguments, other_sections) if part)
