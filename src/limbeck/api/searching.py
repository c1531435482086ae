"""`search` for a layer mapping, a student's shape or a teacher layer, with the options of the commands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.distilling import named_recipe, tell_reasons
from limbeck.api.given import refuse_unknown
from limbeck.api.showing import Result, chosen_console
from limbeck.core import studies
from limbeck.core.blocks import Block
from limbeck.core.folders import FolderKind
from limbeck.errors import RecipeError, suggestion
from limbeck.recipe.facts import check_places
from limbeck.recipe.schema import Recipe
from limbeck.search import requests


@dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """What a search leaves.

    Args:
        record: As in `search.json`: candidates, their scores, and the recipe of the result.
        files: Record, recipe, tables and figures.
    """

    record: dict[str, Any]
    files: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """The search's folder."""
        return self.files[0].parent

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The recipe that was found, for `limbeck.distill`; None where nothing was."""
        return self.record.get("recipe")

    def _blocks(self) -> Iterator[Block]:
        from limbeck.report.search import search_blocks

        yield from search_blocks(self.record)

    def _csv(self) -> str:
        from limbeck.report.search import search_files

        return [text for name, text in search_files(self.record).items() if name.endswith(".csv")][-1]


@refuse_unknown
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
        recipe: Of the run to search for, as `distill` takes it.
        overrides: `path.to.key=value` each, or one alone; they win.
        output: The search's folder; the same call continues it.
        teacher: Beside or in place of a recipe, with the four below: as of `distill`.
        student: As of `distill`; an architecture has none.
        corpus: As of `distill`.
        method: As of `distill`; needed without a recipe.
        seed: Of the run and the search.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck search KIND --help`, with `_` for `-`: `steps=2000`, `generations=5`,
            `layers=[3, 4, 6]`. Lists may be written as there, too.

    Returns:
        What was found; None in all but the main process of several.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    if kind not in requests.REQUESTS:
        raise RecipeError(f"No search '{kind}'.{suggestion(str(kind), requests.REQUESTS)}")
    console, folder = chosen_console(console), Path(output).expanduser()
    described = requests.options_of(requests.REQUESTS[kind])
    if unknown := next((name for name in options if name not in described or name == "output"), None):
        raise RecipeError(f"limbeck.search('{kind}') has no option '{unknown}'.{suggestion(unknown, described)}")
    values = {name: one.given for name, one in described.items()} | options | {"output": folder}
    if missing := next((name for name, value in values.items() if value is MISSING), None):
        raise RecipeError(f"limbeck.search('{kind}') needs {missing}=…: {described[missing].help}")
    read = {name: requests.read_option(name, one, values[name]) for name, one in described.items()}
    if recipe is None and method is None:
        raise RecipeError("A search needs a method: give method=…, or a recipe.")
    given = {"teacher": teacher, "student": student, "corpus": corpus, "method": method, "seed": seed}
    given |= requests.options_of_run(read) if recipe is None else {}
    asked = {name: value for name, value in given.items() if value is not None}
    data = named_recipe(recipe, asked, kept_in=folder)
    return run_search(kind, requests.search_request(kind, data, overrides, read), console)


def run_search(kind: str, request: requests.SearchRequest, console: Console) -> SearchResult | None:
    """Run a search, and write its files; what the request alone shows to be wrong is refused without torch.

    Returns:
        What was found; None in all but the main process of several.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    folder = request.proxy.output.expanduser()
    request.check()
    if isinstance(request, requests.MappingRequest) and request.measures.tasks:
        from limbeck.comparison.folder import request_evaluation

        request_evaluation(request.measures, Path(), teacher=None, students=[]).check_tasks()
    check_places(request.proxy.recipe)
    FolderKind("search", studies.Search.FILE, beside=frozenset({requests.JOURNAL})).look(folder)
    # Torch is imported from here on, which takes seconds.
    from limbeck.report.search import write_search
    from limbeck.search.architecture import search_architecture
    from limbeck.search.mapping import search_mapping
    from limbeck.search.teacher_layer import search_teacher_layer

    run: Any = {"mapping": search_mapping, "architecture": search_architecture, "teacher-layer": search_teacher_layer}
    tell_reasons(request.proxy.recipe, console)
    record = run[kind](request, console)
    return SearchResult(record, tuple(write_search(folder, record))) if record else None
