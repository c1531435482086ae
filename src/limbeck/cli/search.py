"""`limbeck search`: the commands that find a layer mapping, a student's shape or a teacher layer on a subset.

Most of their options are the fields of the searches' requests, which describe them; see `limbeck.search.requests`.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import options
from limbeck.cli.distill import recipe_data
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import complete, complete_list, training_option
from limbeck.search import requests

_COMPLETIONS: dict[str, options.Complete] = {
    "parents": complete(("generation", "best")),
    "tasks": complete_list(("none", *options.TASKS)),
    "preset": complete(options.PROTOCOLS),
    "sampler": complete(requests.SAMPLERS),
    "loss": complete(("normalised", "hidden_states")),
}
_OF_THE_RUN = ("teacher", "student", "corpus", "method", "batch_size", "learning_rate", "length", "seed")


def _in_order(
    output: None,
    recipe: Annotated[
        Path | None, typer.Argument(help="Recipe (YAML) of the run that the search is for.", show_default=False)
    ] = None,
    teacher: options.Teacher = None,
    student: options.Student = None,
    corpus: options.Corpus = None,
    method: options.Method = None,
    steps: None = None,
    batch_size: Annotated[int | None, training_option(help="Blocks per step and device, in every stage.")] = None,
    learning_rate: options.LearningRate = None,
    length: Annotated[int | None, training_option(help="Longest block in tokens.")] = None,
    seed: Annotated[int | None, training_option(help="Seed of the run and of the search.")] = None,
    share: None = None,
    storage: None = None,
    name: None = None,
    workers: None = None,
    overrides: options.Overrides = None,
    device: options.Device = "auto",
    *,
    messages: Messages,
) -> None:
    """The options of every search, as a help orders them; requests describe those without a type, and add others."""


@dataclass(frozen=True)
class _Kind:
    """A kind of search as a command.

    Args:
        help: Of the command.
        examples: Of the command.
        searches: The option of the run that it decides, and so has not.
    """

    help: str
    examples: tuple[str, ...]
    searches: str = ""


KINDS = {
    "mapping": _Kind(
        "Search for the layer mapping whose student does best on a proxy, by ELM's genetic algorithm; candidates "
        "share the teacher's forward pass.",
        (
            "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
            "limbeck search mapping --teacher google-bert/bert-base-uncased --student 4x312 --corpus texts/ --method "
            "elm --steps 2000 --data data/ --output runs/mapping",
            "limbeck distill runs/mapping/recipe.yaml",
        ),
    ),
    "architecture": _Kind(
        "Search for student shapes with low loss at low latency, within limits; candidates share the teacher's "
        "forward pass.",
        (
            "limbeck search architecture recipe.yaml --layers 3,4,6 --hidden 192,312,384 --heads 6,12 --steps 2000 "
            "--max-latency-share 0.5 --output runs/shape",
            "limbeck search architecture --teacher google-bert/bert-base-uncased --corpus texts/ --method "
            "hidden_states --layers 3,4,6 --hidden 312,384 --heads 12 --max-parameters 20M --steps 2000 --output "
            "runs/shape",
            "limbeck distill runs/shape/recipe.yaml",
        ),
        searches="student",
    ),
    "teacher-layer": _Kind(
        "Search for the teacher layer to learn from: all candidates train at once, and the worst are dropped along "
        "the way.",
        (
            "limbeck search teacher-layer recipe.yaml --steps 2000 --output runs/layer",
            "limbeck search teacher-layer --teacher google-bert/bert-large-uncased --student 6x384 --corpus texts/ "
            "--method minilmv2 --layers 12-24 --steps-total 20000 --output runs/layer",
            "limbeck distill runs/layer/recipe.yaml",
        ),
    ),
}


def _command(name: str, kind: _Kind) -> Callable[..., None]:
    """Return the command of a kind of search: a function with a parameter for each option."""

    def command(**values: Any) -> None:
        _search(name, described, values)

    described = requests.options_of(requests.REQUESTS[name])
    shared = inspect.signature(_in_order, eval_str=True).parameters
    parameters = {
        name: parameter
        for name, parameter in shared.items()
        if name != kind.searches and (name in described or parameter.annotation is not None)
    }
    order, before = list(parameters), "share"
    for key, option in described.items():
        if key not in order:
            order.insert(order.index(option.after or before) + 1, key)
            before = key
        if key not in parameters or parameters[key].annotation is None:
            parameters[key] = _parameter(key, option)
    command.__name__, command.__doc__ = name, kind.help
    return options.with_parameters(command, (parameters[key] for key in order))


def _parameter(name: str, option: requests.Option) -> inspect.Parameter:
    least, most = option.bounds
    described = typer.Option(
        *([option.flag] if option.flag else []), help=option.help, metavar=option.metavar, min=least, max=most,
        rich_help_panel=option.panel, autocompletion=_COMPLETIONS.get(name),
    )  # fmt: skip
    kind = option.kind if option.given is not None else option.kind | None
    default = inspect.Parameter.empty if option.given is MISSING else option.given
    annotation: Any = Annotated[kind, described]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _search(name: str, described: dict[str, requests.Option], values: dict[str, Any]) -> None:
    """Make the request of the options, run the search, and print the result."""
    from limbeck.core.devices import check_device

    messages: Messages = values["messages"]
    console, recipe = messages.console(), values["recipe"]
    read = {
        key: requests.read_option(f"--{key.replace('_', '-')}", option, values[key])
        for key, option in described.items()
    }
    run: dict[str, Any] = {key: values.get(key) for key in _OF_THE_RUN}
    run |= requests.options_of_run(read) if recipe is None else {}
    data = recipe_data(recipe, chooses=False, **run)
    request = requests.search_request(name, data, values["overrides"] or (), read)
    check_device(values["device"])
    from limbeck.api.searching import run_search

    found = run_search(name, request, console)
    if found is None:
        return  # The main process of several reports.
    from limbeck.report.search import search_table

    content = {**found.record, "files": found.files}
    print_result(messages.as_json, content, search_table(found.record), f"Recipe: {found.files[1]}")


search = options.command_group(
    "search",
    "Find a layer mapping, a student's shape or a teacher layer on a cheap proxy of the run.",
    "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
)
for _name, _kind in KINDS.items():
    options.command(*_kind.examples, group=search)(_command(_name, _kind))
