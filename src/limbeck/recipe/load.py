"""Loading recipes: YAML, shorthands, overrides, and errors in one line.

A *document* is a recipe as plain mappings and lists, before it is checked. A *shorthand* is a plain value in the place
of a part, such as `teacher: NAME` for `teacher: {model: NAME}`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core.beside import find_beside
from limbeck.core.mistakes import mistakes_of
from limbeck.core.yaml import dump_yaml, read_document
from limbeck.errors import RecipeError, together
from limbeck.evaluation.tasks.registry import is_own_task
from limbeck.recipe.corpus import sources_alone
from limbeck.recipe.models import model_alone
from limbeck.recipe.overrides import apply_overrides
from limbeck.recipe.plain_values import check_plain
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stages import method_alone

_KEYS_OF_PATHS = frozenset(
    {
        "model",
        "stored",
        "from",
        "sources",
        "source",
        "data",
        "development",
        "by",
        "masked_lm",
        "word_vectors",
        "stop_words",
        "checkpoint",
    }
)
"""Keys whose values are paths."""
_KEYS_OF_FILES = frozenset({"parallel", "files"})
"""Keys of mappings whose values are paths, by names that users choose, such as languages."""
_KEYS_OF_TASKS = frozenset({"task", "tasks", "name"})
"""Keys whose values may be the path of a task's file."""
_KEYS_OF_ONE_VALUE = frozenset({"name", "output", "seed"})
"""Keys of a recipe that hold no part of it, so that each can be checked alone."""
_PARTS = frozenset({"teacher", "teachers", "student", "corpus", "stages"})
"""Keys of which every recipe has some, and a task file has none."""


def load_recipe(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: str | Sequence[str] = ()) -> Recipe:
    """Make a checked `Recipe` of a path, a dict or a `Recipe`, with overrides.

    Args:
        recipe: The recipe.
        overrides: `path=value` each, or one alone, applied before checking.

    Returns:
        The recipe.

    Raises:
        RecipeError: one line that names each mistake with its place in the recipe.
    """
    if isinstance(recipe, Recipe) and not overrides:
        return recipe
    return check_document(document_of(recipe, overrides))


def document_of(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: str | Sequence[str] = ()) -> dict[str, Any]:
    """Return a recipe as a document with its overrides applied, whose keys are not checked; see `load_recipe`.

    Raises:
        RecipeError: for a file that cannot be read, an override whose path does not exist, and a value that no key may
            have (`check_plain`).
    """
    data: Mapping[str, Any]
    if isinstance(recipe, str | Path):
        data = read_recipe(recipe)
    elif isinstance(recipe, Recipe):
        data = recipe.model_dump(exclude_unset=True)
    else:
        data = recipe
    # The values are checked twice: before overrides are applied to them, and after, with the values of the overrides.
    check_plain(data)
    changed = apply_overrides(expand_shorthands(data), overrides)
    check_plain(changed)
    return changed


def check_document(data: Mapping[str, Any]) -> Recipe:
    """Make a `Recipe` of a document.

    Raises:
        RecipeError: naming each mistake with its place.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise together([RecipeError(line) for line in mistakes_of(error)]) from None


def check_overrides(overrides: str | Sequence[str]) -> None:
    """Refuse overrides that no recipe can have, before one is chosen: unknown keys, and a wrong name, output or seed.

    The other parts of a recipe can only be checked as a whole.

    Args:
        overrides: `path=value` each, or one alone.

    Raises:
        RecipeError: naming each mistake with its place.
    """
    # Any recipe without mistakes, in place of the one that is not chosen yet.
    document: dict[str, Any] = {
        "teacher": {"model": "any"},
        "student": {"shape": 1},
        "corpus": {"sources": ["any"]},
        "stages": [],
    }
    values = apply_overrides({}, overrides)
    unchecked = Recipe.model_fields.keys() - _KEYS_OF_ONE_VALUE
    document |= {key: value for key, value in values.items() if key not in unchecked}
    check_document(document)


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every default filled in."""
    return dump_yaml(recipe.model_dump())


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read a recipe file into a dict, unchecked.

    Raises:
        RecipeError: if the file is missing, unreadable or not a mapping.
    """
    origin = f"Recipe '{path}'"
    data = read_document(Path(path), origin, "`limbeck recipe --example` prints one to start from.")
    if not isinstance(data, dict):
        raise RecipeError(f"{origin} must be a mapping with the keys teacher, student, corpus and stages.")
    # A task file says the type of its task, and a recipe has no such key.
    if "type" in data and not _PARTS.intersection(data):
        raise RecipeError(
            f"'{path}' is a task file, not a recipe. To train a student on its rows, give it as the corpus: "
            f"`limbeck distill --corpus {path}`. To score models on them: `limbeck evaluate MODEL --tasks {path}`."
        )
    folder = Path(path).expanduser().parent
    document = expand_shorthands(data)
    return {key: with_paths_beside(part, folder, key) for key, part in document.items()}


def expand_shorthands(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe with its shorthands as full mappings (`teacher: NAME`, `corpus: [FILE]`), and paths as text.

    Overrides such as `teacher.model=NAME`, and relative paths, can then be set in these parts.

    Args:
        data: The recipe, which is not changed.
    """
    document = {key: _as_plain_values(value) for key, value in data.items()}
    # The recipe itself, and its stages, which may have a teacher and a corpus too.
    parts = [document]
    if isinstance(document.get("stages"), list):
        document["stages"] = [method_alone(stage) for stage in document["stages"]]
        parts += [stage for stage in document["stages"] if isinstance(stage, dict)]
    for part in parts:
        if "teacher" in part:
            part["teacher"] = model_alone(part["teacher"])
        if isinstance(part.get("teachers"), dict):
            part["teachers"] = {name: model_alone(teacher) for name, teacher in part["teachers"].items()}
        if "corpus" in part:
            part["corpus"] = sources_alone(part["corpus"])
    return document


def _as_plain_values(value: Any) -> Any:
    """Return a copy of a value as YAML has it: paths are text, tuples are lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _as_plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain_values(inner) for inner in value]
    return value


def with_paths_beside(part: Any, folder: Path, key: str) -> Any:
    """Return a part of a document, with paths that lead from the current folder to files beside the document.

    A relative path that exists in the current folder, or nowhere, stays as it is.

    Args:
        part: The part.
        folder: The folder of the document.
        key: The key of the part, which decides whether its values are paths.
    """
    if isinstance(part, dict):
        changed = {}
        for name, value in part.items():
            # In `parallel: {en: a.txt, de: b.txt}` the files stand by their languages, which do not tell that the
            # values are paths. They count as sources.
            key_of_value = name
            if key in _KEYS_OF_FILES and isinstance(value, str):
                key_of_value = "source"
            changed[name] = with_paths_beside(value, folder, key_of_value)
        return changed
    if isinstance(part, list):
        return [with_paths_beside(value, folder, key) for value in part]
    if not isinstance(part, str):
        return part
    names_task_file = key in _KEYS_OF_TASKS and is_own_task(part)
    if key in _KEYS_OF_PATHS or names_task_file:
        return find_beside(part, folder)
    return part
