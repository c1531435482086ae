"""Teachers and texts that a run needs besides its folder, to be continued on another machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.training.kept_recipe import read_kept_recipe

_MOST_FILES = 10_000
"""Files whose sizes are added up; the size of more files is left out."""
_TEACHER = "teacher"
_TEXT = "text"
_KEYS_OF_PLACES = (
    (_TEACHER, ("teacher", "model")),
    (_TEXT, ("corpus", "sources")),
    (_TEXT, ("corpus", "development")),
    (_TEXT, ("corpus", "mix", "by")),
)
"""What is needed, with the nested keys, of a recipe and of a stage, whose value is its places."""


@dataclass(frozen=True)
class Need:
    """A teacher or text that has to be on another machine before the run can be continued there.

    Args:
        what: `"teacher"` or `"text"`.
        places: Its places when the run last began.
        option: The key of the recipe for these places.
        bytes: Its size; None where it is not on this machine, or has too many files to look at.
    """

    what: str
    places: list[str]
    option: str
    bytes: int | None


def needs_of(folder: Path) -> list[Need]:
    """List the teachers and texts of a run.

    Raises:
        OutputError: if its recipe is missing or damaged.
    """
    recipe = read_kept_recipe(folder)
    needs: list[Need] = []
    for prefix, part in _recipe_and_stages(recipe):
        for what, keys in _KEYS_OF_PLACES:
            places = _places_in(_nested_value(part, *keys))
            if not places:
                continue
            # The key as an override names it, such as `stages.0.teacher.model`.
            option = prefix + ".".join(keys)
            needs.append(Need(what, places, option, bytes=_total_bytes(places)))
    return needs


def _recipe_and_stages(recipe: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over the recipe itself and its stages, each with the prefix of its keys, such as `stages.0.`."""
    yield "", recipe
    stages = recipe.get("stages")
    if isinstance(stages, list):
        for index, stage in enumerate(stages):
            yield f"stages.{index}.", stage


def _places_in(value: Any) -> list[str]:
    """Return the places that the value of a key names.

    Args:
        value: A place, or a list of places and of mappings with a place under `source`; None where the key is missing.
    """
    items = value if isinstance(value, list) else [value]
    places: list[str] = []
    for item in items:
        if isinstance(item, dict) and item.get("parallel"):
            places += _files_of_parallel_text(item["parallel"])
            continue
        place = _nested_value(item, "source") if isinstance(item, dict) else item
        if place:
            places.append(str(place))
    return places


def _files_of_parallel_text(parallel: Any) -> list[str]:
    """Return the files of parallel text in a kept recipe."""
    files = _nested_value(parallel, "files")
    if isinstance(files, dict):
        return [str(file) for file in files.values()]
    file = _nested_value(parallel, "file")
    return [str(file)] if file else []


def _nested_value(part: Any, *keys: str) -> Any:
    """Return the value under nested keys; None where one of them is missing."""
    for key in keys:
        if not isinstance(part, dict):
            return None
        part = part.get(key)
    return part


def _total_bytes(places: list[str]) -> int | None:
    """Add up the bytes of files and folders; None where one is missing or there are too many files."""
    files: list[Path] = []
    try:
        for place in places:
            path = Path(place)
            if not path.exists():
                return None
            candidates = path.rglob("*") if path.is_dir() else [path]
            for candidate in candidates:
                if candidate.is_file():
                    files.append(candidate)
                if len(files) >= _MOST_FILES:
                    return None
        return sum(path.stat().st_size for path in files)
    except (OSError, ValueError):
        return None
