"""Options in the form that typer takes: those that a request declares, and those that commands share."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.api.requests.completions import complete
from limbeck.api.requests.distil import DistilRequest
from limbeck.api.requests.fields import RESULT, Option, options_of
from limbeck.errors import RecipeError

result_option = partial(typer.Option, rich_help_panel=RESULT)


def typer_option(option: Option, name: str) -> Any:
    """Return typer's form of an option.

    Args:
        option: The option, as a request declares it.
        name: The name of its field.
    """
    shared: dict[str, Any] = {
        "help": option.description,
        "metavar": option.metavar,
        "min": option.least,
        "max": option.most,
        "rich_help_panel": option.panel,
        "autocompletion": option.complete,
        "show_default": option.show_default,
    }
    if option.is_argument:
        return typer.Argument(**shared)
    if option.flag:
        return typer.Option(*option.flag.split(","), **shared)
    # A switch that is off by default has one flag. For a switch that is on, typer itself makes two, such as --prune and
    # --no-prune.
    if option.default is False:
        return typer.Option(f"--{name.replace('_', '-')}", **shared)
    return typer.Option(**shared)


def _of_a_run(name: str) -> Any:
    """Return an option of `limbeck distill`, for another command that has it too."""
    return typer_option(options_of(DistilRequest)[name], name)


Teacher = Annotated[str | None, _of_a_run("teacher")]
Student = Annotated[str | None, _of_a_run("student")]
Corpus = Annotated[list[str] | None, _of_a_run("corpus")]
TextColumn = Annotated[str | None, _of_a_run("text_column")]
LabelColumn = Annotated[str | None, _of_a_run("label_column")]
Method = Annotated[str | None, _of_a_run("method")]
Steps = Annotated[int | None, _of_a_run("steps")]
Overrides = Annotated[list[str] | None, _of_a_run("overrides")]
Overwrite = Annotated[bool, _of_a_run("overwrite")]


def _send_to_device(context: typer.Context, name: str) -> str:
    """Send all work of a command to a device, before torch looks for devices; the callback of `--device`."""
    # With `resilient_parsing` nothing is run: typer reads the options for a help or for completion.
    if context.resilient_parsing or name == "auto":
        return name
    from limbeck.core.devices import computing_on
    from limbeck.core.ranks import process_count

    if ":" in name and process_count() > 1:
        raise RecipeError(
            f"--device {name} would put all processes of the launcher on one device; leave --device out, and each "
            "process takes its own."
        )
    # The device stays chosen until the context of the command ends.
    return context.with_resource(computing_on(name))


Device = Annotated[
    str,
    typer.Option(
        help="Device to compute on: cpu, cuda, cuda:1 …; auto takes the accelerator if there is one.",
        callback=_send_to_device,
        autocompletion=complete(("auto", "cpu", "cuda")),
    ),
]
Quiet = Annotated[bool, result_option("--quiet", "-q", help="Print nothing but the result and errors.")]
Verbose = Annotated[
    bool, result_option("--verbose", "-v", help="Also print versions, device and choices such as kernels.")
]
LogFile = Annotated[
    Path | None,
    result_option(
        "--log-file",
        help="Also append progress, warnings and errors to this file, each line with its time.",
        metavar="PATH",
    ),
]
Json = Annotated[bool, result_option("--json", help="Print only the result, as JSON.")]
