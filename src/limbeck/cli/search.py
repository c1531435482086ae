"""`limbeck search`: the commands that find a layer mapping, a student's shape or a teacher layer on a subset.

Most of their options are the fields of the searches' requests, which describe them; see `limbeck.search.requests`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import options
from limbeck.cli.distill import recipe_data
from limbeck.cli.given import check_name
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import complete, complete_list, training_option
from limbeck.core.lists import parse_layers, parse_multiples, parse_numbers
from limbeck.search import requests

_COMPLETIONS: dict[str, options.Complete] = {
    "parents": complete(("generation", "best")),
    "tasks": complete_list(("none", *options.TASKS)),
    "preset": complete(options.PROTOCOLS),
    "sampler": complete(options.SAMPLERS),
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
        request: Describes its options.
        help: Of the command.
        examples: Of the command.
        searches: The option of the run that it decides, and so has not.
    """

    request: type
    help: str
    examples: tuple[str, ...]
    searches: str = ""


KINDS = {
    "mapping": _Kind(
        requests.MappingRequest,
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
        requests.ArchitectureRequest,
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
        requests.TeacherLayerRequest,
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
        _search(name, kind, described, values)

    described = requests.options_of(kind.request)
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


def _search(name: str, kind: _Kind, described: dict[str, requests.Option], values: dict[str, Any]) -> None:
    """Make the request of the options, run the search, write and print the result."""
    from limbeck.recipe.load import load_recipe

    messages: Messages = values["messages"]
    read = {key: _read(key, described[key], value) for key, value in values.items() if key in described}
    console = messages.console()
    run = {key: values.get(key) for key in _OF_THE_RUN}
    if kind.searches == "student" and values["recipe"] is None:
        # The recipe's own shape is never trained, so that one of the search does where none is given.
        run["student"] = f"{read['layers'][0]}x{read['hidden'][0]}h{read['heads'][0]}"
    if values["recipe"] is None:
        # A file's run has steps of its own; without one, the run that is found is as long as its candidates.
        run["steps"] = read["steps"]
    recipe = load_recipe(base_recipe(values["recipe"], values["overrides"], output=read["output"], **run))
    request = requests.make_request(kind.request, {**read, "recipe": recipe})
    _check(request, values)
    from limbeck.report.search import search_table, write_search

    record = _runner(name)(request, console)
    if not record:
        return  # The main process of several writes and reports.
    files = write_search(read["output"].expanduser(), record)
    print_result(messages.as_json, {**record, "files": files}, search_table(record), f"Recipe: {files[1]}")


def _check(request: requests.SearchRequest, values: Mapping[str, Any]) -> None:
    """Refuse what the request alone shows to be wrong; torch is imported behind it."""
    from limbeck.comparison.folder import request_evaluation
    from limbeck.core import studies
    from limbeck.core.folders import FolderKind
    from limbeck.core.machine import check_device
    from limbeck.recipe.places import check_places

    request.check()
    if "device" in values:
        check_device(values["device"])
    if "sampler" in values:
        check_name("sampler", values["sampler"], options.SAMPLERS)
    measures = getattr(request, "measures", None)
    if measures is not None and measures.tasks:
        request_evaluation(measures, Path(), teacher=None, students=[]).check_tasks()
    check_places(request.proxy.recipe)
    kind = FolderKind("search", studies.Search.FILE, beside=frozenset({requests.JOURNAL}))
    kind.look(request.proxy.output.expanduser())


def _read(name: str, option: requests.Option, value: Any) -> Any:
    readers: Mapping[str, Callable[[str, str], Any]] = {
        "numbers": parse_numbers, "multiples": parse_multiples, "layers": parse_layers,
        "count": requests.parse_count,
    }  # fmt: skip
    if value is None or not option.reads:
        return value
    found = readers[option.reads](f"--{name.replace('_', '-')}", value)
    return tuple(found) if isinstance(found, list) else found


def base_recipe(recipe: Path | None, overrides: list[str] | None, *, output: Path, **options: Any) -> dict[str, Any]:
    """Return the recipe of the run that is searched for; its own output is the file's, or a folder in the search's.

    Args:
        recipe: The file, if any.
        overrides: `path.to.key=value` each; they win.
        output: The search's folder.
        **options: The options that describe the run; None where not given.

    Raises:
        RecipeError: if neither a file nor enough options are given, or for an override that cannot be read.
    """
    from limbeck.recipe.load import apply_overrides

    own_place = str(output / "run")
    data = recipe_data(recipe, output=own_place if recipe is None else None, chooses=False, **options)
    data = apply_overrides(data, overrides or [])
    return {**data, "output": data.get("output") or own_place}


def _runner(name: str) -> Callable[..., dict[str, Any]]:
    from limbeck.search.architecture import search_architecture
    from limbeck.search.mapping import search_mapping
    from limbeck.search.teacher_layer import search_teacher_layer

    runners: dict[str, Callable[..., dict[str, Any]]] = {
        "mapping": search_mapping, "architecture": search_architecture, "teacher-layer": search_teacher_layer,
    }  # fmt: skip
    return runners[name]


search = options.command_group(
    "search",
    "Find a layer mapping, a student's shape or a teacher layer on a cheap proxy of the run.",
    "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
)
for _name, _kind in KINDS.items():
    options.command(*_kind.examples, group=search)(_command(_name, _kind))
