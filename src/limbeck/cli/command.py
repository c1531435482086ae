"""Commands: typer makes them of a function, or of the options that a request declares.

Typer reads a command from a function: its name, its docstring (the help) and its parameters (the options). A *request*
is a class with a field for each option (`limbeck.api.requests`), from which `request_command` makes such a function.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from limbeck.api.calls import make_request
from limbeck.api.requests.fields import Option, options_of, type_of
from limbeck.api.requests.values import with_commas
from limbeck.cli.examples import CommandWithExamples, GroupWithExamples, examples_of_help
from limbeck.cli.messages import Messages
from limbeck.cli.options import Device, Json, LogFile, Quiet, Verbose, typer_option
from limbeck.errors import LimbeckError

Command = Callable[..., None]
EXAMPLES: dict[Command, str] = {}
"""The examples at the end of each command's help, by its function; `limbeck.cli.main` adds both."""

MESSAGES = ("quiet", "verbose", "log_file", "as_json")
"""Options that a command of a request gets as one `Messages`."""
_STANDARD: dict[str, tuple[Any, Any]] = {
    "device": (Device, "auto"),
    "quiet": (Quiet, False),
    "verbose": (Verbose, False),
    "log_file": (LogFile, None),
    "as_json": (Json, False),
}
"""Options that commands have beside those of their request: name to type and default."""


def command(*examples: str, group: typer.Typer | None = None) -> Callable[[Command], Command]:
    """Return a decorator that makes a command of a function whose parameters are its options.

    Args:
        examples: Example calls for the end of its help.
        group: The group that it is added to, such as `limbeck search`; None for a command of its own, which
            `limbeck.cli.main` adds.
    """

    def add(function: Command) -> Command:
        """Keep the examples for `limbeck.cli.main`, or add the function with them to its group."""
        EXAMPLES[function] = examples_of_help(*examples)
        if group is None:
            return function
        return group.command(cls=CommandWithExamples, epilog=EXAMPLES[function])(function)

    return add


def request_command(
    request: Any, *examples: str, options: str, is_long: bool = True, group: typer.Typer | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that makes a command of a function which takes a request and `Messages`.

    Args:
        request: The class of the request.
        examples: Example calls for the end of the help.
        options: Names of the command's options in the order of the help, separated by blanks. A name is that of an
            option of the request, of a further parameter of the function, or `device`.
        is_long: Whether the command takes a while, and so has `--quiet` and `--verbose`.
        group: The group that it is added to; None for a command of its own, which `limbeck.cli.main` adds.
    """
    # Of these a short command has `--json` alone.
    names_of_messages = MESSAGES if is_long else ("as_json",)
    option_names = (*options.split(), *names_of_messages)

    def add(function: Command) -> Command:
        """Make the function a command of typer that has all of these options."""
        adapter = _RequestFunction(function, request, names_of_messages)

        def call(**values: Any) -> None:
            adapter.call(values)

        # What typer reads from a function: its name, its help and its parameters.
        call.__name__ = function.__name__
        call.__doc__ = function.__doc__
        parameters = [adapter.parameter(name) for name in option_names]
        call_with_options = _with_parameters(call, parameters)
        make_command = command(*examples, group=group)
        return make_command(call_with_options)

    return add


class _RequestFunction:
    """A function that takes a request and `Messages`, seen as one that takes options.

    An option is a field of the request or of the messages, or a further parameter of the function, such as `dry_run`.
    `device` is none of these: its callback carries it out (`limbeck.cli.options`).

    Args:
        function: The function.
        request: The class of its request.
        names_of_messages: Names of the options that become its `Messages`.
    """

    def __init__(self, function: Command, request: Any, names_of_messages: tuple[str, ...]) -> None:
        self._function = function
        self._request = request
        self._names_of_messages = names_of_messages
        self._request_options = options_of(request)
        self._function_parameters = inspect.signature(function, eval_str=True).parameters

    def parameter(self, name: str) -> inspect.Parameter:
        """Return an option as a parameter with a type and a default, which typer reads."""
        if name in self._function_parameters:
            return self._function_parameters[name]
        if name in _STANDARD:
            annotation, default = _STANDARD[name]
            return _parameter(name, annotation, default)
        return _declared_parameter(name, self._request_options[name], type_of(self._request, name))

    def call(self, values: Mapping[str, Any]) -> None:
        """Call the function.

        Args:
            values: The value of every option. That of an option of the request is None if the user did not give it:
                then the request has its default.
        """
        messages = Messages(**{name: values[name] for name in self._names_of_messages})
        request_values = {}
        further_values = {}
        for name, value in values.items():
            if name in self._request_options and value is not None:
                request_values[name] = value
            if name in self._function_parameters:
                further_values[name] = value
        request = make_request(self._request, (), request_values)
        messages.check_log_file(getattr(request, "output", None))
        try:
            self._function(request, messages, **further_values)
        except LimbeckError as error:
            messages.log_error(error)
            raise


def _declared_parameter(name: str, option: Option, value_type: Any) -> inspect.Parameter:
    """Make the parameter of an option that a request declares."""
    default = option.default
    if option.is_required:
        default = inspect.Parameter.empty
    elif isinstance(default, tuple) and value_type is str:
        # A list in one option, as in `--lengths 128,512`.
        default = with_commas(default)
    elif isinstance(default, tuple):
        # A list by a repeated option, as in `--set a=1 --set b=2`: typer gives None if it does not occur.
        default = None
    if default is None:
        value_type = value_type | None
    annotation: Any = Annotated[value_type, typer_option(option, name)]
    return _parameter(name, annotation, default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Make a parameter that is given by its name only."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_parameters(function: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Give a function the signature that typer reads, in place, and return it; all parameters are keyword-only."""
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    function.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
    return function


def command_group(name: str, description: str, *examples: str) -> typer.Typer:
    """Return an app for commands below one name."""
    return typer.Typer(
        name=name,
        cls=GroupWithExamples,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help=description,
        epilog=examples_of_help(*examples),
    )
