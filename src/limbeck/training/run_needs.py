"""Teachers and texts that a run needs to go on elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.core import records
from limbeck.training.kept_recipe import read_kept_recipe
from limbeck.training.run_identity import knows_content

_MOST_FILES = 10_000
"""Files whose sizes are added up; of more the size is not told."""
# The keys of a recipe, and of a stage, that say where a teacher or text lies.
_KEYS_OF_PLACES = (("teacher", "model"), ("corpus", "sources"), ("corpus", "mix", "by"))


@dataclass(frozen=True)
class Need:
    """A teacher or text that a run needs to go on elsewhere.

    Args:
        what: Its name.
        places: Where it was when the run last began.
        option: The key of the recipe that says where it is.
        bytes: Its size; None where it is not on this machine, or has more files than are looked at.
    """

    what: str
    places: list[str]
    option: str
    bytes: int | None


def needs_of(folder: Path) -> tuple[list[Need], bool]:
    """List the teachers and texts of a run, and whether it knows them by what they hold; see `knows_content`.

    Raises:
        OutputError: if its recipe is missing or damaged.
    """
    recipe = read_kept_recipe(folder)
    needs: list[Need] = []
    for prefix, part in _parts_of(recipe):
        for keys in _KEYS_OF_PLACES:
            places = _places_in(_value(part, *keys))
            if places:
                what = "teacher" if keys[0] == "teacher" else "text"
                needs.append(Need(what, places, prefix + ".".join(keys), _size_of(places)))
    return needs, knows_content(records.load(records.Run, folder))


def _parts_of(recipe: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of a recipe that may name places, each with the prefix of its keys."""
    yield "", recipe
    stages = recipe.get("stages")
    if isinstance(stages, list):
        for index, stage in enumerate(stages):
            yield f"stages.{index}.", stage


def _places_in(value: Any) -> list[str]:
    """Return the places that a key names: one, or a list of names and of sources with their place."""
    values = value if isinstance(value, list) else [value]
    places = [_value(item, "source") or item for item in values]
    return [str(place) for place in places if place]


def _value(part: Any, *keys: str) -> Any:
    """Return what stands under nested keys; None where one of them is missing."""
    for key in keys:
        if not isinstance(part, dict):
            return None
        part = part.get(key)
    return part


def _size_of(places: list[str]) -> int | None:
    """Add up the bytes of files and folders; None where one is missing or there are too many files."""
    files: list[Path] = []
    try:
        for place in map(Path, places):
            if not place.exists():
                return None
            candidates = place.rglob("*") if place.is_dir() else [place]
            files += islice((path for path in candidates if path.is_file()), _MOST_FILES)
        if len(files) >= _MOST_FILES:
            return None
        return sum(path.stat().st_size for path in files)
    except (OSError, ValueError):
        return None
