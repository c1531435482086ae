"""`limbeck search`: the commands that find a layer mapping, a student's shape or a teacher layer on a subset.

Most of their options are the fields of the searches' requests, which describe them; see `limbeck.search.requests`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import (
    PROTOCOLS,
    SAMPLERS,
    TASKS,
    BatchSize,
    Complete,
    Corpus,
    Json,
    LearningRate,
    Length,
    Method,
    Overrides,
    Quiet,
    RecipeFile,
    Seed,
    Student,
    Teacher,
    Verbose,
    base_recipe,
    complete,
    complete_list,
    examples,
    parse_layers,
    parse_multiples,
    parse_numbers,
)
from limbeck.search.requests import (
    ArchitectureRequest,
    MappingRequest,
    Option,
    TeacherLayerRequest,
    make_request,
    options_of,
)

_GROUP_HELP = "Find a layer mapping, a student's shape or a teacher layer on a cheap proxy of the run."

_COMPLETIONS: dict[str, Complete] = {
    "parents": complete(("generation", "best")),
    "tasks": complete_list(("none", *TASKS)),
    "preset": complete(PROTOCOLS),
    "device": complete(("auto", "cpu", "cuda")),
    "sampler": complete(SAMPLERS),
}
_DESCRIBED_BY_REQUESTS = ("output", "steps", "share", "storage", "name", "workers")
_OF_THE_RUN = ("teacher", "student", "corpus", "method", "batch_size", "learning_rate", "length", "seed")


def _in_order(
    output: None,
    recipe: RecipeFile = None,
    teacher: Teacher = None,
    student: Student = None,
    corpus: Corpus = None,
    method: Method = None,
    steps: None = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    length: Length = None,
    seed: Seed = None,
    share: None = None,
    storage: None = None,
    name: None = None,
    workers: None = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """The options of every search in the order of a help; a request's own stand behind `share`."""


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
    options: dict[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", options_of(self.request))


KINDS = {
    "mapping": _Kind(
        MappingRequest,
        "Search for the layer mapping whose student does best on a proxy: ELM's genetic algorithm, one teacher for "
        "all.",
        (
            "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
            "limbeck search mapping --teacher google-bert/bert-base-uncased --student 4x312 --corpus texts/ --method "
            "elm --steps 2000 --data data/ --output runs/mapping",
            "limbeck distill runs/mapping/recipe.yaml",
        ),
    ),
    "architecture": _Kind(
        ArchitectureRequest,
        "Search for the student's shape of low loss at low latency, within limits, one teacher for all.",
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
        TeacherLayerRequest,
        "Search for the teacher layer to learn from: all candidates at once, the lower ones dropped on the way.",
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
        _search(name, kind, values)

    shared = inspect.signature(_in_order, eval_str=True).parameters
    parameters = {
        name: parameter
        for name, parameter in shared.items()
        if name != kind.searches and (name in kind.options or name not in _DESCRIBED_BY_REQUESTS)
    }
    order, before = list(parameters), "share"
    for name_, option in kind.options.items():
        if name_ not in order:
            order.insert(order.index(option.after or before) + 1, name_)
            before = name_
        parameters[name_] = _parameter(name_, option)
    keywords = [parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in order]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    command.__doc__ = kind.help
    return command


def _parameter(name: str, option: Option) -> inspect.Parameter:
    least, most = option.bounds
    described = typer.Option(
        *([option.flag] if option.flag else []), help=option.help, metavar=option.metavar, min=least, max=most,
        rich_help_panel=option.panel, autocompletion=_COMPLETIONS.get(name),
    )  # fmt: skip
    kind = option.kind if option.given is not None else option.kind | None
    default = inspect.Parameter.empty if option.given is MISSING else option.given
    annotation: Any = Annotated[kind, described]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _search(name: str, kind: _Kind, values: dict[str, Any]) -> None:
    """Make the request of the options, run the search, write and print the result."""
    from limbeck.recipe.load import load_recipe
    from limbeck.report.search import write_search
    from limbeck.report.search_figures import search_pictures
    from limbeck.report.search_tables import search_table

    read = {key: _read(key, kind.options[key], value) for key, value in values.items() if key in kind.options}
    console = progress_console(values["quiet"], values["verbose"])
    run = {key: values.get(key) for key in _OF_THE_RUN}
    if kind.searches == "student" and values["recipe"] is None:
        # The recipe's own shape is never trained, so that one of the search does where none is given.
        run["student"] = f"{read['layers'][0]}x{read['hidden'][0]}h{read['heads'][0]}"
    recipe = load_recipe(base_recipe(values["recipe"], values["overrides"], output=read["output"], **run))
    record = _runner(name)(make_request(kind.request, {**read, "recipe": recipe}), console)
    if not record:
        return  # The main process of several writes and reports.
    files = write_search(read["output"].expanduser(), record, search_pictures(record))
    if values["as_json"]:
        print_json({**record, "files": files})
        return
    result_console().print(search_table(record))
    print_line(f"Recipe: {files[1]}")


def _read(name: str, option: Option, value: Any) -> Any:
    from limbeck.search.shape_space import parse_count

    readers: Mapping[str, Callable[[str, str], Any]] = {
        "numbers": parse_numbers, "multiples": parse_multiples, "layers": parse_layers, "count": parse_count,
    }  # fmt: skip
    if value is None or not option.reads:
        return value
    found = readers[option.reads](f"--{name.replace('_', '-')}", value)
    return tuple(found) if isinstance(found, list) else found


def _runner(name: str) -> Callable[..., dict[str, Any]]:
    from limbeck.search.architecture import search_architecture
    from limbeck.search.mapping import search_mapping
    from limbeck.search.teacher_layer import search_teacher_layer

    runners: dict[str, Callable[..., dict[str, Any]]] = {
        "mapping": search_mapping, "architecture": search_architecture, "teacher-layer": search_teacher_layer,
    }  # fmt: skip
    return runners[name]


search = typer.Typer(
    name="search",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=_GROUP_HELP,
    epilog=examples("limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping"),
)
for _name, _kind in KINDS.items():
    search.command(_name, epilog=examples(*_kind.examples))(_command(_name, _kind))
