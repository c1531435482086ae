"""`search` for a layer mapping, a student's shape or a teacher layer.

Every search trains *candidates*: versions of one run that differ in what is searched for. The recipe of that run is
given, or described by options. Candidates are trained on a share of its text and steps, as a cheap *proxy* of the run.
A call is first an `options_of_searches` request (its options as they were given), then one of `limbeck.search.requests`
(the same search with the recipe that it is for), which the search itself takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from limbeck.api.calls import checked_call, make_request, refuse_unknown
from limbeck.api.named_recipes import named_recipe, print_reasons
from limbeck.api.progress import progress_console
from limbeck.api.requests import search as options_of_searches
from limbeck.api.requests.fields import options_of
from limbeck.api.requests.search import SEARCHES, SearchRequest
from limbeck.api.results import Result
from limbeck.core import studies
from limbeck.core.blocks import Block
from limbeck.errors import RecipeError, suggestion
from limbeck.recipe.facts import check_facts
from limbeck.recipe.load import load_recipe
from limbeck.recipe.schema import Recipe
from limbeck.search import requests
from limbeck.search.folder import SEARCH

_OVER_A_RECIPE = (
    "teacher",
    "student",
    "corpus",
    "text_column",
    "label_column",
    "method",
    "batch_size",
    "learning_rate",
    "length",
    "seed",
)
"""Options that change the recipe of the run, or describe the run where there is no recipe."""


@dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """The result of a search.

    Args:
        search: The record, as in `search.json`: candidates, their scores, and the recipe of the result.
        files: Record, recipe, tables and figures.
    """

    search: studies.Search
    files: tuple[Path, ...]

    @property
    def record(self) -> dict[str, Any]:
        """The record as plain values, as in `search.json`."""
        return self.search.to_dict()

    @property
    def folder(self) -> Path:
        """The search's folder."""
        return self.files[0].parent

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The recipe that was found, for `limbeck.distill`; None where nothing was."""
        return self.record.get("recipe")

    def blocks(self) -> Iterator[Block]:
        """Yield the tables of the search, and its notes."""
        from limbeck.report.search import search_blocks

        yield from search_blocks(self.search)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.search import search_files

        # The last table is that of the candidates.
        tables = [text for name, text in search_files(self.search).items() if name.endswith(".csv")]
        return tables[-1]


@checked_call
def search(
    kind: str,
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    overrides: str | Sequence[str] = (),
    *,
    output: str | Path,
    teacher: Any = None,
    student: Any = None,
    corpus: Any = None,
    method: Any = None,
    seed: int | None = None,
    console: Console | None = None,
    **options: Any,
) -> SearchResult | None:
    """Find a layer mapping, a student's shape or a teacher layer on a cheap proxy of a run.

    Args:
        kind: `"mapping"`, `"architecture"` or `"teacher-layer"`.
        recipe: The recipe of the run to search for, as `distill` takes it.
        overrides: One or several `path.to.key=value`; they take precedence over the recipe.
        output: The search's folder; the same call continues it.
        teacher: As in `distill`. The teacher and the four below change the recipe, or take its place.
        student: As in `distill`; not for an architecture, which is the shape of the student.
        corpus: As in `distill`.
        method: As in `distill`; needed without a recipe.
        seed: Seed of the run and the search.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck search KIND --help`, with `_` for `-`: `steps=2000`, `generations=5`,
            `layers=[3, 4, 6]`. Lists may be written as there, too.

    Returns:
        The result; None in all but the main process of several.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.search(
        ...     "teacher-layer", teacher="intfloat/e5-small-v2", student=3, corpus="texts", method="minilmv2",
        ...     steps=2000, output="runs/layer",
        ... )
        >>> result.recipe["stages"][0]["method"]["name"]
        'minilmv2'
    """
    if kind not in SEARCHES:
        raise RecipeError(f"No search '{kind}'.{suggestion(str(kind), SEARCHES)}")
    request = SEARCHES[kind]
    declared = options_of(request)
    call = f"limbeck.search('{kind}')"
    refuse_unknown(f"{call} has no option", options, declared)
    options |= {"output": output, "teacher": teacher, "student": student, "corpus": corpus, "method": method}
    options |= {"seed": seed, "console": console}
    for name, option in declared.items():
        if option.is_required and name not in options:
            raise RecipeError(f"{call} needs {name}=…: {option.description}")
    if recipe is None and method is None:
        raise RecipeError("A search needs a method: give --method, or a recipe, which names one.")
    return carry_out_search(kind, make_request(request, (recipe, overrides), options))


def carry_out_search(kind: str, request: SearchRequest) -> SearchResult | None:
    """Run a search, and write its files.

    Mistakes that the request alone shows are refused before torch is imported.

    Args:
        kind: `"mapping"`, `"architecture"` or `"teacher-layer"`.
        request: The options of the search.

    Returns:
        The result; None in every process but the main one, where a launcher started several.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    console = progress_console(request.console)
    folder = Path(request.output).expanduser()
    planned = planned_search(request)
    recipe = planned.proxy.recipe
    planned.check()
    # Candidates for a layer mapping may be scored on tasks, which are checked as `limbeck evaluate` checks them. The
    # folder and the models do not matter for that.
    if isinstance(planned, requests.MappingRequest) and planned.measures.tasks:
        from limbeck.comparison.places import request_evaluation

        request_evaluation(planned.measures, Path(), teacher=None, students=[]).check_tasks()
    check_facts(recipe)
    # A folder with other files than those of a search is refused.
    SEARCH.look(folder)

    # Torch is imported from here on, which takes seconds.
    from limbeck.report.search import write_search
    from limbeck.search.architecture import search_architecture
    from limbeck.search.mapping import search_mapping
    from limbeck.search.teacher_layer import search_teacher_layer

    searches: dict[str, Any] = {
        "mapping": search_mapping,
        "architecture": search_architecture,
        "teacher-layer": search_teacher_layer,
    }
    print_reasons(recipe, console)
    record = searches[kind](planned, console)
    # The record is empty in every process but the main one.
    if not record:
        return None
    return SearchResult(studies.Search.read(record), tuple(write_search(folder, record)))


def planned_search(request: SearchRequest) -> requests.SearchRequest:
    """Return the search that a request describes, with the recipe of the run that it is for.

    Raises:
        RecipeError: one line for what is wrong with the recipe or an option.
    """
    proxy = requests.ProxyRequest(
        recipe=_recipe_of(request),
        output=Path(request.output).expanduser(),
        name=request.name,
        steps=request.steps,
        share=request.share,
        storage=request.storage,
    )
    if isinstance(request, options_of_searches.MappingRequest):
        return _mapping_search(request, proxy)
    if isinstance(request, options_of_searches.ArchitectureRequest):
        return _architecture_search(request, proxy)
    assert isinstance(request, options_of_searches.TeacherLayerRequest)
    return _teacher_layer_search(request, proxy)


def _recipe_of(request: SearchRequest) -> Recipe:
    """Return the recipe of the run that a search is for: the given one, or one that the options describe.

    Options take precedence over a given recipe. A recipe without an output folder gets one in the search's folder.

    Raises:
        RecipeError: for a recipe with mistakes, and for options that are missing where no recipe is given.
    """
    folder = Path(request.output).expanduser()
    options = {name: getattr(request, name) for name in _OVER_A_RECIPE}
    if request.recipe is None:
        # A given recipe keeps its own steps, of which --steps then only trains the candidates.
        options["steps"] = request.steps
        # A search for the student's shape has no option for a student, but every recipe needs one.
        if isinstance(request, options_of_searches.ArchitectureRequest):
            options["student"] = _placeholder_student(request)
    options = {name: value for name, value in options.items() if value is not None}
    if request.recipe is None:
        missing = [f"--{name}" for name in ("teacher", "student", "corpus", "method") if name not in options]
        if missing:
            raise RecipeError(
                f"Without a recipe, these options are needed too: {', '.join(missing)}; or give a recipe, see "
                "`limbeck recipe --example`."
            )
    document = named_recipe(request.recipe, options, kept_in=folder, before=_check_folder)
    recipe = load_recipe(document, request.overrides)
    if recipe.output is not None:
        return recipe
    return load_recipe(recipe.model_dump(exclude_unset=True) | {"output": str(folder / "run")})


def _check_folder(folder: str | Path) -> None:
    """Refuse to keep objects in a folder that is not that of a search."""
    SEARCH.look(Path(folder).expanduser())


def _placeholder_student(request: options_of_searches.ArchitectureRequest) -> dict[str, Any]:
    """Return a student for the recipe of a run whose student's shape is searched for.

    The search replaces its shape. Until then it has the first of the shapes to choose from, and random weights, which
    fit every shape.
    """
    shape = f"{request.layers[0]}x{request.hidden[0]}h{request.heads[0]}"
    return {"shape": shape, "initialise": {"layers": "random"}}


def _mapping_search(
    request: options_of_searches.MappingRequest, proxy: requests.ProxyRequest
) -> requests.MappingRequest:
    """Return the search for a layer mapping, given the run that it is for."""
    # The options of the genetic algorithm. Without a population, its size depends on the student's depth.
    genetic: dict[str, Any] = {
        "parents": request.parents,
        "elite": request.elite,
        "crossover": request.crossover,
        "exchange": request.exchange,
        "mutation": request.mutation,
        "flip": request.flip,
    }
    if request.population is not None:
        genetic["population"] = request.population
    data = None if request.data is None else str(request.data)
    measures = requests.task_measures(
        request.tasks, data=data, preset=request.preset, seeds=request.seeds, settings=request.settings
    )
    return requests.MappingRequest(
        proxy,
        generations=request.generations,
        genetic=genetic,
        teacher_layers=request.teacher_layers,
        measures=measures,
        batch=request.batch,
        workers=request.workers,
    )


def _architecture_search(
    request: options_of_searches.ArchitectureRequest, proxy: requests.ProxyRequest
) -> requests.ArchitectureRequest:
    """Return the search for a student's shape, given the run that it is for."""
    return requests.ArchitectureRequest(
        proxy,
        requests.ShapeSizes(layers=request.layers, hidden=request.hidden, heads=request.heads, ffn=request.ffn),
        limits=requests.ShapeLimits(parameters=request.max_parameters, latency_share=request.max_latency_share),
        measuring=requests.MeasuringRequest(
            device=request.device,
            length=request.measure_length,
            batch=request.measure_batch,
            seconds=request.measure_seconds,
        ),
        loss=cast(requests.ShapeLoss, request.loss),
        trials=request.trials,
        sampler=request.sampler,
        episode=request.episode,
        batch=request.batch,
        prune=request.prune,
        workers=request.workers,
    )


def _teacher_layer_search(
    request: options_of_searches.TeacherLayerRequest, proxy: requests.ProxyRequest
) -> requests.TeacherLayerRequest:
    """Return the search for a teacher layer, given the run that it is for.

    Candidates are dropped by halving: after each round, one in `halving` goes on. None trains every one to its end.
    """
    if request.no_halving and request.halving is not None:
        raise RecipeError(f"--halving {request.halving} and --no-halving contradict each other; give one of them.")
    halving: int | None = 2 if request.halving is None else request.halving
    if request.no_halving:
        halving = None
    return requests.TeacherLayerRequest(proxy, layers=request.layers, steps_total=request.steps_total, halving=halving)
