"""Loading recipes: YAML, overrides, and errors in one line."""

import copy
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core.assignments import parse_assignment
from limbeck.core.beside import find_beside
from limbeck.core.fields import NONE
from limbeck.core.mistakes import mistakes_of
from limbeck.core.yaml import DEEPEST, MOST_DIGITS, dump_yaml, read_document
from limbeck.errors import RecipeError, suggestion, together
from limbeck.evaluation.tasks import is_own_task
from limbeck.recipe.corpus import sources_alone
from limbeck.recipe.models import model_alone
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stages import method_alone

# What holds for every value of a recipe, whichever key it has: bounded, and text without control characters.


LONGEST_TEXT = 4096
"""Characters; no path of a file is longer."""

_NOT_WRITTEN = ("Cc", "Cs", "Zl", "Zp")
# They turn the direction of what follows, so that a name shows as another.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_plain(data: Any, place: str = "", depth: int = 0) -> None:
    """Refuse what no key may hold: text that a terminal or a file name cannot show, and data without end.

    Args:
        data: A recipe, or a part of it.
        place: Where the part is, for the message.
        depth: Levels above it.

    Raises:
        RecipeError: for a control character, a lone surrogate, text longer than a path may be, a number that is not
            finite or longer than any, or too many levels.
    """
    if depth > DEEPEST:
        raise RecipeError(f"{place[:80]}: more than {DEEPEST} levels of lists and mappings; no key is that deep.")
    if isinstance(data, str):
        _check_text(data, place)
    elif isinstance(data, int) and abs(data) >= 10**MOST_DIGITS:
        raise RecipeError(f"{place}: a number of more than {MOST_DIGITS} digits; no key has such a value.")
    elif isinstance(data, float) and not math.isfinite(data):
        raise RecipeError(f"{place} is {data}; give a finite number.")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, str):
                _check_text(key, f"a key of {place or 'the recipe'}")
            check_plain(value, f"{place}.{key}" if place else str(key), depth + 1)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            check_plain(value, f"{place}.{index}", depth + 1)


def _check_text(text: str, place: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise RecipeError(f"{place}: {text[:60]!r}… has {len(text):,} characters; give {LONGEST_TEXT:,} or less.")
    strange = next((c for c in text if unicodedata.category(c) in _NOT_WRITTEN or c in _TURNS), None)
    if strange is not None:
        raise RecipeError(
            f"{place}: {text[:80]!a} has the character {strange!a}, which no name may have; leave it out."
        )


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read a recipe file into a dict, unchecked.

    Raises:
        RecipeError: if the file is missing, unreadable or not a mapping.
    """
    origin = f"Recipe '{path}'"
    data = read_document(Path(path), origin, "`limbeck recipe --example` prints one to start from.")
    if not isinstance(data, dict):
        raise RecipeError(f"{origin} must be a mapping with teacher, student, corpus and stages.")
    return {
        key: with_paths_beside(value, Path(path).expanduser().parent, key) for key, value in written_out(data).items()
    }


def written_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe as its document would have it: paths as text, and parts that stand for one of their keys whole.

    So overrides and relative paths reach into parts such as `teacher: NAME` and `corpus: [FILE]`.

    Args:
        data: The recipe; left as it is.
    """
    whole = {key: _plain(value) for key, value in data.items()}
    stages = whole.get("stages")
    if isinstance(stages, list):
        whole["stages"] = stages = [method_alone(stage) for stage in stages]
    for part in (whole, *(one for one in (stages if isinstance(stages, list) else ()) if isinstance(one, dict))):
        for key, spell_out in (("teacher", model_alone), ("corpus", sources_alone)):
            if key in part:
                part[key] = spell_out(part[key])
    return whole


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


_PATHS = frozenset(
    {"model", "sources", "source", "data", "development", "by", "masked_lm", "word_vectors", "checkpoint"}
)
_TASKS = frozenset({"task", "tasks", "name"})


def with_paths_beside(part: Any, folder: Path, key: str) -> Any:
    """Return a part of a document with its relative paths; those that lead nowhere lead beside the document, if there.

    Args:
        part: The part.
        folder: Where the document lies.
        key: The key of the part.
    """
    if isinstance(part, dict):
        return {name: with_paths_beside(value, folder, name) for name, value in part.items()}
    if isinstance(part, list):
        return [with_paths_beside(value, folder, key) for value in part]
    is_path = isinstance(part, str) and (key in _PATHS or (key in _TASKS and is_own_task(part)))
    return find_beside(part, folder) if is_path else part


def apply_overrides(data: Mapping[str, Any], overrides: str | Sequence[str]) -> dict[str, Any]:
    """Set values by dotted path: `stages.0.training.learning_rate=1e-4`; values are YAML.

    Args:
        data: The recipe; left as it is.
        overrides: `path=value` each, or one alone; a number in a path is an index into a list.

    Returns:
        A changed copy. Whether the keys exist is decided when the recipe is checked.

    Raises:
        RecipeError: for an override without `=`, or a path that leads nowhere.
    """
    result: dict[str, Any] = copy.deepcopy(dict(data))
    overrides = [overrides] if isinstance(overrides, str) else overrides
    for override in overrides:
        path, value = parse_assignment(override, f"Override '{override}'", "it as path.to.key=value")
        keys = path.split(".")
        if not all(keys):
            raise RecipeError(f"Override '{override}' names no key; write it as path.to.key=value.")
        if len(keys) > DEEPEST:
            raise RecipeError(f"Override '{override[:80]}' has {len(keys)} levels, but no key is that deep.")
        set_value(result, keys, value, override)
    return without_reasons(result, [override.partition("=")[0] for override in overrides])


def without_reasons(data: dict[str, Any], changed: Iterable[str]) -> dict[str, Any]:
    """Return a recipe without the reasons for values that were changed, or hold or lie in such.

    Args:
        data: The recipe.
        changed: Paths of the values.
    """
    reasons = data.get("reasons")
    if not isinstance(reasons, dict):
        return data
    paths = [f"{path}." for path in changed]
    kept = {
        key: reason
        for key, reason in reasons.items()
        if not any(f"{key}.".startswith(path) or path.startswith(f"{key}.") for path in paths)
    }
    return data | {"reasons": kept}


_ALONE = {"method": "name", "task": "name", "student": "shape"}
"""Parts of a recipe for which one of their keys may stand."""


def set_value(node: Any, keys: Sequence[str], value: Any, override: str) -> None:
    """Set a value of a recipe; mappings that are not there are made on the way to it.

    Args:
        node: The recipe, which is changed.
        keys: The path to the value.
        value: The value.
        override: What sets it, for messages.

    Raises:
        RecipeError: for a path that leads nowhere.
    """
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        slot: Any = key
        if isinstance(node, list):
            if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(node)):
                raise RecipeError(f"Override '{override}': {_no_item(keys[:position], key, len(node))}")
            slot = int(key)
        elif not isinstance(node, dict):
            raise RecipeError(f"Override '{override}': there is nothing below '{'.'.join(keys[:position])}'.")
        if last:
            node[slot] = value
        else:
            if isinstance(node, dict) and not isinstance(node.get(slot), dict | list):
                # A bare value such as `method: minilmv2` becomes {name: ...}, so that its options can be set.
                given = node.get(slot)
                named = key in _ALONE and isinstance(given, str | int)
                node[slot] = {_ALONE[key]: given} if named else {}
            node = node[slot]


def _no_item(place: Sequence[str], key: str, count: int) -> str:
    what = f"stage {key}" if place[-1:] == ["stages"] else ".".join((*place, key))
    indices = f"indices are 0 to {count - 1}" if count > 1 else "the only index is 0" if count else "the list is empty"
    return f"There is no {what}; {indices}."


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
    """Return a recipe as a document with overrides, of which no key is checked; see `load_recipe`.

    Raises:
        RecipeError: for a file that cannot be read, an override that leads nowhere, and what no key may hold.
    """
    if isinstance(recipe, str | Path):
        data: Mapping[str, Any] = read_recipe(recipe)
    else:
        data = recipe.model_dump(exclude_unset=True) if isinstance(recipe, Recipe) else recipe
    check_plain(data)
    changed = apply_overrides(written_out(data), overrides)
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


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every default filled in."""
    return dump_yaml(recipe.model_dump())


# Recipes that come with the package.


EXAMPLES = ("text", "task")
"""Examples: distilled on text, and on text and then for a task."""


def read_example(name: str = "text") -> str:
    """Return the text of an example, by its name in `EXAMPLES`.

    Raises:
        RecipeError: for another name.
    """
    if name not in EXAMPLES:
        raise RecipeError(f"No example '{name}'.{suggestion(name, EXAMPLES)}")
    return read_shipped(f"example_{name}")


def read_shipped(name: str) -> str:
    """Return the text of a shipped recipe: `quickstart`, or `example_` with the name of an example."""
    return files("limbeck.recipe").joinpath("shipped_recipes", f"{name}.yaml").read_text(encoding="utf-8")


def without_places(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe, a stage or a plan without where its teacher and text lie: they are known by what they hold.

    Args:
        part: As documents have it, with every default.
    """
    kept = dict(part)
    teacher, corpus = kept.get("teacher"), kept.get("corpus")
    if isinstance(teacher, Mapping) and teacher.get("model"):
        kept["teacher"] = {**teacher, "model": "a model"}
    if isinstance(corpus, Mapping):
        kept["corpus"] = corpus = dict(corpus)
        if corpus.get("sources"):
            count = len(corpus["sources"])
            if any(isinstance(each, Mapping) for each in corpus["sources"]):  # Shares and units decide what is read.
                said = [each if isinstance(each, Mapping) else {} for each in corpus["sources"]]
                corpus["uses"] = [{key: value for key, value in each.items() if key != "source"} for each in said]
            corpus["sources"] = f"{count} source{'s' if count > 1 else ''}"
        if corpus.get("development"):
            corpus["development"] = f"{len(corpus['development'])} with development rows"
        if corpus.get("data"):
            corpus["data"] = "a folder"
        task = corpus.get("task")
        if isinstance(task, Mapping) and is_own_task(str(task.get("name"))):
            corpus["task"] = {**task, "name": "a task file"}
        mix = corpus.get("mix")
        if isinstance(mix, Mapping) and mix.get("by"):
            corpus["mix"] = {**mix, "by": "a pattern"}
        augment = corpus.get("augment")
        if isinstance(augment, Mapping):
            places = {key: "a place" for key in ("masked_lm", "word_vectors") if augment.get(key) not in (None, NONE)}
            corpus["augment"] = {**augment, **places}
    return kept
