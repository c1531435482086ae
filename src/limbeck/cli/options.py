"""Shared by the commands: options, and the panels and examples of their helps."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from limbeck.errors import RecipeError

# What the shell completes: names that are written down here, since asking the registries would import torch.
#
# A test holds them to the registries.


RECIPE_CARDS = ("teacher_assistant", "truncated_teacher")
# A method has a card of its name.
_CARDS = sorted(path.stem for path in (Path(__file__).parents[1] / "methods" / "method_cards").glob("*.md"))
METHODS = tuple(name for name in _CARDS if name not in (*RECIPE_CARDS, "README"))
STUDENTS = (
    "minilm-6x384", "minilm-4x384", "minilm-3x384", "minilm-12x384", "minilm-6x768", "minilmv2-12x384-e128",
    "tinybert-4x312", "nas-4x576", "nas-3x384",
)  # fmt: skip
TASK_GROUPS = ("glue", "glue_leaderboard", "qa", "cross_lingual", "chinese", "few_chinese", "similarity", "tagging")
_EVALUATION = Path(__file__).parents[1] / "evaluation" / "data"
# Of these the files are what there is.
TASKS, PROTOCOLS = (
    sorted(path.stem for path in (_EVALUATION / kind).glob("*.yaml")) for kind in ("tasks", "protocols")
)
FORMATS = ("onnx", "onnx-int8", "sentence-transformers", "router", "safetensors")
OBJECTIVES = ("relation_kl", "attention_score_mse", "soft_label_kl")
DTYPES = ("float32", "bfloat16", "float16")

Complete = Callable[[str], list[str]]


def complete(names: Sequence[str]) -> Complete:
    """Return a function that completes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_list(names: Sequence[str]) -> Complete:
    """Return a function that completes the last of names separated by commas, leaving out those that are there."""

    def completions(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in given]

    return completions


run_option = partial(typer.Option, rich_help_panel="What is distilled")
training_option = partial(typer.Option, rich_help_panel="Training")
measuring_option = partial(typer.Option, rich_help_panel="Measuring")
result_option = partial(typer.Option, rich_help_panel="Result and messages")

LONGEST_SECONDS = 86_400
"""The most time for a measurement: a day."""
LAST_SEED = 2**32 - 1
"""The largest seed of NumPy."""


def check_overrides(given: list[str] | None) -> list[str] | None:
    """Refuse overrides without a value, before what else is missing is told."""
    for override in given or []:
        if "=" not in override:
            raise typer.BadParameter(f"'{override[:80]}' is not PATH=VALUE.")
    return given


Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value: --set stages.0.training.learning_rate=1e-4",
        callback=check_overrides,
    ),
]
Teacher = Annotated[str | None, run_option(help="Folder, Hub name or package:NAME of the teacher.")]
Corpus = Annotated[
    list[str] | None,
    run_option(help="File, folder, glob, hub:NAME, installed-docs or installed-text; may be repeated."),
]
Student = Annotated[
    str | None,
    run_option(
        help='Shape of the student: "6x384", a preset, or a number of the teacher\'s layers.',
        autocompletion=complete(STUDENTS),
    ),
]
Method = Annotated[
    str | None,
    run_option(help="Method, with all its stages; see `limbeck methods`.", autocompletion=complete(METHODS)),
]
Steps = Annotated[int | None, training_option(min=1, help="Training steps of every stage.")]
LearningRate = Annotated[float | None, training_option(help="Peak learning rate of every stage.")]


def _send_to_device(context: typer.Context, name: str) -> str:
    """Send all that a command computes to a device, before torch looks for any."""
    if context.resilient_parsing or name == "auto":
        return name
    from limbeck.core.devices import computing_on
    from limbeck.core.ranks import process_count

    if ":" in name and process_count() > 1:
        raise RecipeError(f"--device {name} is one device for all processes of a launcher; leave it out.")
    return context.with_resource(computing_on(name))


Device = Annotated[
    str,
    typer.Option(
        help="Where everything is computed: cpu, cuda, cuda:1 …; auto: the accelerator where there is one.",
        callback=_send_to_device,
        autocompletion=complete(("auto", "cpu", "cuda")),
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the output folder.")]
Json = Annotated[bool, result_option("--json", help="Print only the result, as JSON.")]


Command = Callable[..., None]
EPILOGS: dict[Command, str] = {}
"""The end of each command's help, by its function."""


def command(*examples: str, group: typer.Typer | None = None) -> Callable[[Command], Command]:
    """Return a decorator that makes a command of a function.

    A parameter or field whose type is a dataclass stands for its fields: these are options of the command, and the
    function gets an instance.

    Args:
        examples: Calls for the end of its help.
        group: The commands that it belongs to; without them it is added by `limbeck.cli.main`.
    """

    def add(function: Command) -> Command:
        made = _with_groups_of_options(function)
        EPILOGS[made] = epilog(*examples)
        return made if group is None else group.command(epilog=EPILOGS[made])(made)

    return add


def _with_groups_of_options(function: Command) -> Command:
    def call(**values: Any) -> None:
        function(**_grouped(function, values))

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return with_parameters(call, _flat(function))


def _flat(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function or class, those of its groups of options one by one."""
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        yield from _flat(parameter.annotation) if _is_group(parameter) else (parameter,)


def _grouped(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function or class, its groups of options made of the values."""
    return {
        name: parameter.annotation(**_grouped(parameter.annotation, values)) if _is_group(parameter) else values[name]
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
    }


def _is_group(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def with_parameters(function: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Give a function the parameters that typer reads."""
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    function.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in named}
    return function


def command_group(name: str, description: str, *examples: str) -> typer.Typer:
    """Return an app for commands below one name."""
    return typer.Typer(
        name=name, no_args_is_help=True, pretty_exceptions_enable=False, help=description, epilog=epilog(*examples)
    )


def epilog(*examples: str) -> str:
    """Return the end of a help: each example in a paragraph, to be copied as it is."""
    return "\n\n".join(["Example:" if len(examples) == 1 else "Examples:", *map(escape, examples)])
