"""`search` for a layer mapping, a student's shape or a teacher layer, with the options of the commands."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.distilling import named_recipe
from limbeck.api.objects import listed
from limbeck.api.showing import Result, chosen_console
from limbeck.core import studies
from limbeck.core.blocks import Block, Notes
from limbeck.core.lists import parse_layers, parse_multiples, parse_numbers
from limbeck.errors import RecipeError, suggestion
from limbeck.recipe.load import load_recipe
from limbeck.recipe.schema import Recipe
from limbeck.report.search import search_files, write_search
from limbeck.report.search_kinds import KINDS
from limbeck.search import requests
from limbeck.search.architecture import search_architecture
from limbeck.search.mapping import search_mapping
from limbeck.search.teacher_layer import search_teacher_layer


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
        found, kind = studies.Search.read(self.record), KINDS[self.record["kind"]]
        yield from kind.shown(found)
        yield Notes(tuple(kind.notes(found)))

    def _csv(self) -> str:
        return [text for name, text in search_files(self.record).items() if name.endswith(".csv")][-1]


_SEARCHES: Mapping[str, tuple[Any, Callable[..., dict[str, Any]]]] = {
    "mapping": (requests.MappingRequest, search_mapping),
    "architecture": (requests.ArchitectureRequest, search_architecture),
    "teacher-layer": (requests.TeacherLayerRequest, search_teacher_layer),
}
_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "numbers": parse_numbers, "multiples": parse_multiples, "layers": parse_layers, "count": requests.parse_count,
}  # fmt: skip


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
    if kind not in _SEARCHES:
        raise RecipeError(f"No search '{kind}'.{suggestion(str(kind), _SEARCHES)}")
    request, run = _SEARCHES[kind]
    console, folder = chosen_console(console), Path(output).expanduser()
    described = requests.options_of(request)
    if unknown := next((name for name in options if name not in described or name == "output"), None):
        raise RecipeError(f"limbeck.search('{kind}') has no option '{unknown}'.{suggestion(unknown, described)}")
    values = {name: one.given for name, one in described.items()} | options | {"output": folder}
    if missing := next((name for name, value in values.items() if value is MISSING), None):
        raise RecipeError(f"limbeck.search('{kind}') needs {missing}=…: {described[missing].help}")
    read = {name: _read(name, described[name], value) for name, value in values.items()}
    if kind == "architecture" and recipe is None:
        # The recipe's own shape is never trained, so that one of the search does where none is given.
        student = f"{read['layers'][0]}x{read['hidden'][0]}h{read['heads'][0]}"
    if recipe is None and method is None:
        raise RecipeError("A search needs a method: give method=…, or a recipe.")
    given = {"teacher": teacher, "student": student, "corpus": corpus, "method": method, "seed": seed}
    if recipe is None:
        # A recipe's run has steps of its own; without one, the run that is found is as long as its candidates.
        given |= {"steps": read["steps"]}
    asked = {name: value for name, value in given.items() if value is not None}
    data = named_recipe(recipe, asked, kept_in=folder)
    checked = load_recipe({**data, "output": data.get("output") or str(folder / "run")}, overrides)
    record = run(requests.make_request(request, {**read, "recipe": checked}), console)
    return SearchResult(record, tuple(write_search(folder, record))) if record else None


def _read(name: str, option: requests.Option, value: Any) -> Any:
    """Return an option's value as a request has it: lists by their members, or as the command line writes them."""
    if value is None or not option.reads:
        return [str(each) for each in listed(value)] if value is not None and option.kind == list[str] else value
    text = ",".join(map(str, listed(value)))
    found = _READERS[option.reads](name, text)
    return tuple(found) if isinstance(found, list) else found
