"""Teachers and texts that a run needs besides its folder, to be continued on another machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core.fields import NONE
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.registry import is_own_task, read_own_task
from limbeck.targets.target_file import ARRAY
from limbeck.training.kept_recipe import read_kept_recipe

_MOST_FILES = 10_000
"""Files whose sizes are added up; the size of more files is left out."""
_TEACHER = "teacher"
_TEXT = "text"
_TASK = "task"
_START = "start"
_KEYS_OF_PLACES = (
    (_TEXT, ("corpus", "development")),
    (_TEXT, ("corpus", "data")),
    (_TEXT, ("corpus", "mix", "by")),
    (_TEXT, ("corpus", "augment", "masked_lm")),
    (_TEXT, ("corpus", "augment", "word_vectors")),
    (_TEXT, ("corpus", "augment", "stop_words")),
    (_TEXT, ("evaluation", "data")),
)
"""What is needed, with the nested keys, of a recipe and of a stage, whose value is its places."""
_KEYS_OF_START = (
    ("student", "initialise", "from"),
    ("student", "initialise", "checkpoint"),
    ("student", "vocabulary", "count"),
    ("student", "vocabulary", "always"),
)
"""Keys of files that a student is made of. A run knows them by their places, so that no option can change these."""
_NO_PLACES = (NONE, "english")
"""Values of keys of `augment` that name no file."""


@dataclass(frozen=True)
class Need:
    """A teacher, text or other file that has to be on another machine before the run can be continued there.

    Args:
        what: `"teacher"`, `"text"`, `"task"` (the file that describes one), or `"start"`, files of which the student is
            made.
        places: Its places when the run last began.
        option: The key of the recipe for these places; None where no key gives another place.
        bytes: Its size; None where it is not on this machine, or has too many files to look at.
        where: Where it has to be if `option` is None.
    """

    what: str
    places: list[str]
    option: str | None
    bytes: int | None
    where: str | None = None


def needs_of(folder: Path) -> list[Need]:
    """List the teachers, texts and other files of a run.

    Raises:
        OutputError: if its recipe is missing or damaged.
    """
    return needs_of_recipe(read_kept_recipe(folder))


def needs_of_recipe(recipe: dict[str, Any]) -> list[Need]:
    """List the teachers, texts and other files that a recipe names."""
    needs: list[Need] = []
    for prefix, part in _recipe_and_stages(recipe):
        needs += _needs_of_teachers(prefix, part)
        needs += _needs_of_sources(prefix, part)
        for what, keys in _KEYS_OF_PLACES:
            places = _places_in(_nested_value(part, *keys))
            if places:
                # The key as an override names it, such as `stages.0.corpus.development`.
                needs.append(_need(what, places, prefix + ".".join(keys)))
        needs += _needs_of_tasks(prefix, part)
        for keys in _KEYS_OF_START:
            places = _places_in(_nested_value(part, *keys))
            # Models of the Hub and of packages have no place.
            local_places = [place for place in places if Path(place).expanduser().exists()]
            if local_places:
                needs.append(Need(_START, local_places, None, _total_bytes(local_places), where="the same place"))
    return needs


def _need(what: str, places: list[str], option: str) -> Need:
    """Return what is needed at an option, with its size."""
    return Need(what, places, option, _total_bytes(places))


def _needs_of_teachers(prefix: str, part: Any) -> Iterator[Need]:
    """Iterate over the models, stored outputs and files of targets of a recipe's or a stage's teachers."""
    teachers = {"teacher": _nested_value(part, "teacher")}
    several = _nested_value(part, "teachers")
    if isinstance(several, dict):
        teachers |= {f"teachers.{name}": teacher for name, teacher in several.items()}
    for name, teacher in teachers.items():
        keys = ["model", "stored"]
        targets = _nested_value(teacher, "targets")
        if targets:
            # The model of such a teacher is the file of targets.
            keys = ["targets"]
            if Path(str(targets)).suffix == ARRAY:
                keys.append("text")
        for key in keys:
            places = _places_in(_nested_value(teacher, key))
            if places:
                yield _need(_TEACHER, places, f"{prefix}{name}.{key}")


def _needs_of_sources(prefix: str, part: Any) -> Iterator[Need]:
    """Iterate over the sources of a text: together where each is a place alone, one by one where they have keys."""
    option = f"{prefix}corpus.sources"
    sources = _nested_value(part, "corpus", "sources")
    if not isinstance(sources, list) or not any(isinstance(source, dict) for source in sources):
        places = _places_in(sources)
        if places:
            yield _need(_TEXT, places, option)
        return
    # An option for the whole list would remove the keys beside the places, such as a role.
    for index, source in enumerate(sources):
        if not isinstance(source, dict):
            yield _need(_TEXT, [str(source)], f"{option}.{index}")
            continue
        files = _nested_value(source, "parallel", "files")
        if isinstance(files, dict):
            for language, file in files.items():
                yield _need(_TEXT, [str(file)], f"{option}.{index}.parallel.files.{language}")
        for keys in (("parallel", "file"), ("source",)):
            place = _nested_value(source, *keys)
            if place:
                yield _need(_TEXT, [str(place)], f"{option}.{index}.{'.'.join(keys)}")


def _needs_of_tasks(prefix: str, part: Any) -> Iterator[Need]:
    """Iterate over the user's own task files, and the files of rows beside each."""
    for keys in (("corpus", "task", "name"), ("evaluation", "tasks")):
        names = _places_in(_nested_value(part, *keys))
        task_files = [name for name in names if is_own_task(name)]
        if not task_files:
            continue
        # An option for a list of tasks has to name the built-in tasks too.
        yield Need(_TASK, names, prefix + ".".join(keys), _total_bytes(task_files))
        for task_file in task_files:
            rows = _files_beside(task_file)
            if rows:
                yield Need(_TEXT, rows, None, _total_bytes(rows), where=f"beside {Path(task_file).name}")


def _files_beside(task_file: str) -> list[str]:
    """Return the files of rows that a task file names and that lie beside it; none where it cannot be read."""
    path = Path(task_file).expanduser()
    try:
        definition = read_own_task(path)
    except LimbeckError:
        return []
    files: list[str] = []
    for split in definition.split_names:
        for file in definition.paths(split):
            place = path.parent / file.name
            if place.exists():
                files.append(str(place))
    return list(dict.fromkeys(files))


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
        value: A place, or a list of places; None where the key is missing.
    """
    items = value if isinstance(value, list) else [value]
    return [str(item) for item in items if item and item not in _NO_PLACES]


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
            path = Path(place).expanduser()
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
