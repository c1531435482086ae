"""Teachers and texts that a run needs to go on elsewhere."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.core import records
from limbeck.training.output_folder import read_kept_recipe
from limbeck.training.run_identity import knows_content

_MOST_FILES = 10_000


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
    """List the teachers and texts of a run, and say whether it knows them by what they hold; see `knows_content`.

    Raises:
        OutputError: if its recipe is missing or damaged.
    """
    recipe, needs = read_kept_recipe(folder), []
    stages = recipe.get("stages")
    parts = [
        ("", recipe),
        *((f"stages.{i}.", stage) for i, stage in enumerate(stages if isinstance(stages, list) else ())),
    ]
    for place, part in parts:
        given = {f"{one}.{key}": _value(part, one, key) for one, key in (("teacher", "model"), ("corpus", "sources"))}
        given["corpus.mix.by"] = _value(part, "corpus", "mix", "by")
        for option, value in given.items():
            named = [_value(one, "source") or one for one in (value if isinstance(value, list) else [value])]
            places = [str(one) for one in named if one]
            if places:
                what = "teacher" if option == "teacher.model" else "text"
                needs.append(Need(what, places, place + option, _size_of(places)))
    return needs, knows_content(records.load(records.Run, folder))


def _value(part: Any, *keys: str) -> Any:
    for key in keys:
        part = part.get(key) if isinstance(part, dict) else None
    return part


def _size_of(places: Iterable[str]) -> int | None:
    files: list[Path] = []
    try:
        for place in map(Path, places):
            if not place.exists():
                return None
            below = place.rglob("*") if place.is_dir() else [place]
            files += islice((path for path in below if path.is_file()), _MOST_FILES)
        return sum(path.stat().st_size for path in files) if len(files) < _MOST_FILES else None
    except (OSError, ValueError):
        return None
