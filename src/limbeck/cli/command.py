"""Commands: typer makes them of a function, or of the options that a request declares.

Typer reads a command from a function: its name, its docstring (the help) and its parameters (the options). A *request*
is a class with a field for each option (`limbeck.api.requests`), from which `request_command` makes such a function.
"""

import inspect
from collections.abc import Callable, Iterable
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
        """Make the function a command of typer, which has all options of the request."""
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
    declared = options_of(request)
    messages = MESSAGES if is_long else ("as_json",)
    names = (*options.split(), *messages)

    def add(function: Command) -> Command:
        # The function's parameters beside the request and the messages, such as `dry_run`, are options too.
        function_parameters = inspect.signature(function, eval_str=True).parameters

        def parameter_of(name: str) -> inspect.Parameter:
            if name in function_parameters:
                return function_parameters[name]
            if name in _STANDARD:
                annotation, default = _STANDARD[name]
                return _parameter(name, annotation, default)
            return _declared_parameter(name, declared[name], type_of(request, name))

        # The function that typer calls with all options. It sorts them into those of the request, of the messages, and
        # of the function's own parameters. An option that was not given is None, and gets the request's default.
        def call(**values: Any) -> None:
            function_values = {name: value for name, value in values.items() if name in function_parameters}
            set_options = {name: value for name, value in values.items() if name in declared and value is not None}
            message_options = {name: values[name] for name in messages}
            messages_of_call = Messages(**message_options)
            request_of_call = make_request(request, (), set_options)
            messages_of_call.check_log_file(getattr(request_of_call, "output", None))
            try:
                function(request_of_call, messages_of_call, **function_values)
            except LimbeckError as error:
                messages_of_call.log_error(error)
                raise

        # What typer reads from a function: its name, its help and its parameters.
        call.__name__ = function.__name__
        call.__doc__ = function.__doc__
        parameters = [parameter_of(name) for name in names]
        return command(*examples, group=group)(_with_parameters(call, parameters))

    return add


def _declared_parameter(name: str, option: Option, value_type: Any) -> inspect.Parameter:
    """Make the parameter of an option that a request declares."""
    default = option.default
    if option.is_required:
        default = inspect.Parameter.empty
    elif isinstance(default, tuple) and value_type is str:
        default = with_commas(default)  # A list in one option: --lengths 128,512.
    elif isinstance(default, tuple):
        default = None  # A list by a repeated option (--set a=1 --set b=2), whose default is no value.
    if default is None:
        value_type = value_type | None
    annotation: Any = Annotated[value_type, typer_option(option, name)]
    return _parameter(name, annotation, default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
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
