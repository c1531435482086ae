"""The run's folder: never written over by accident, continued only with the same recipe."""

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import safe_open

from limbeck.core import files, paths, ranks, records, yaml
from limbeck.core.files import atomic_text
from limbeck.core.folders import FolderKind, claim, first_difference, folder_lock, writing
from limbeck.core.paths import HEARTBEAT, LOCK, RECIPE, RUN_RECORD
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.load import dump_recipe, without_places
from limbeck.recipe.schema import NOT_COMPUTED, Recipe
from limbeck.recipe.training_fields import DEFAULTS

# Arguments that may change in a resumed run: when to save, measure and log, and where to.
_FREE = (
    "save_steps", "save_strategy", "save_total_limit", "eval_steps", "eval_strategy", "logging_steps",
    "logging_strategy", "report_to",
)  # fmt: skip
_MOST_FILES = 10_000
# What may lie in a folder that no run has trained anything in yet.
_NOTHING_YET = frozenset(
    (RECIPE, RUN_RECORD, HEARTBEAT, LOCK, paths.INPUTS, f"{RUN_RECORD}.partial", f"{HEARTBEAT}.partial")
)


@contextmanager
def claimed_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have the run's folder for the processes of this run alone, new or continued, with the resolved recipe in it.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Returns:
        The folder.

    Raises:
        OutputError: if the folder holds something and neither was asked for, if it is to be removed but is no run, if
            the run there was made by another recipe, if another process has it, or if it is on a disk of one machine
            that processes on others cannot see.
    """
    with ExitStack() as stack:
        folder = ranks.on_main_rank(lambda: _claim(recipe, stack, resume=resume, overwrite=overwrite))

        def see() -> None:
            if not (folder / RECIPE).is_file():
                raise OutputError(
                    f"Output folder '{folder}' is not visible on {socket.gethostname()}; a run on several machines "
                    "needs a folder that all of them share."
                )

        ranks.on_all_ranks(see)
        yield folder


def _claim(recipe: Recipe, stack: ExitStack, *, resume: bool, overwrite: bool) -> Path:
    """Claim the folder in the main process; its lock is held until the stack is left."""
    folder = _check_folder(recipe.output, resume=resume, overwrite=overwrite)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stack.enter_context(folder_lock(folder))
    if _RUN.is_occupied(folder) and not resume and not overwrite:
        raise _not_empty(folder)
    with writing(folder):
        if overwrite:
            _remove_run(folder, recipe)
        if not claim(folder, _RUN, yaml.parse_yaml(dump_recipe(recipe), RECIPE)):
            for name in (RUN_RECORD, HEARTBEAT):
                (folder / name).unlink(missing_ok=True)
            keep_recipe(folder, recipe)
    return folder


def check_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse a run's folder that cannot be claimed, before torch is imported; nothing is made or removed.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Raises:
        OutputError: as `claimed_output`.
    """
    folder = _check_folder(recipe.output, resume=resume, overwrite=overwrite)
    if not _RUN.is_occupied(folder) or overwrite:
        return
    if resume:
        _check_same_recipe(folder, _read_recipe(folder), yaml.parse_yaml(dump_recipe(recipe), RECIPE))
        return
    with folder_lock(folder):  # A run that goes on there is said first.
        raise _not_empty(folder)


def check_free(output: str | Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that a run may not have, before anything is kept there for its recipe; see `check_output`."""
    folder = _check_folder(output, resume=resume, overwrite=overwrite)
    if _RUN.is_occupied(folder) and not resume and not overwrite:
        raise _not_empty(folder)


def _not_empty(folder: Path) -> OutputError:
    return OutputError(
        f"Output folder '{folder}' is not empty; continue that run with --resume, replace it with --overwrite, or "
        "choose another folder."
    )


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe into a run's folder: of a resumed one once teacher and text are found the same."""
    atomic_text(folder / RECIPE, dump_recipe(recipe))


def _check_folder(output: str | Path | None, *, resume: bool, overwrite: bool) -> Path:
    """Refuse what can be refused without touching the folder."""
    if output is None:
        raise OutputError("The run has no output folder; set output in the recipe, or give --output DIR.")
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if resume and overwrite:
        raise OutputError("--resume and --overwrite cannot be combined: continue the run, or replace it.")
    if _RUN.is_occupied(folder) and not any((folder / name).is_file() for name in (RECIPE, RUN_RECORD)):
        if overwrite:
            raise OutputError(
                f"Output folder '{folder}' was not made by limbeck, so --overwrite does not remove it; "
                "empty it yourself or choose another folder."
            )
        if resume:
            raise OutputError(f"Output folder '{folder}' holds no run to resume; choose an empty or new folder.")
        raise OutputError(f"Output folder '{folder}' is not empty; choose another folder.")
    return folder


def _remove_run(folder: Path, recipe: Recipe) -> None:
    """Remove a run; what tells it from other folders goes last, so that a kill half-way leaves a run to remove.

    Objects that the new recipe names are kept there already, and stay.
    """
    named, inputs = dump_recipe(recipe), folder / paths.INPUTS
    for path in (*folder.iterdir(), *(inputs.iterdir() if inputs.is_dir() else ())):
        is_named = path.parent == inputs and path.name in named
        if path.name in (RECIPE, RUN_RECORD, LOCK) or path == inputs or is_named:
            continue
        files.remove(path)


def _read_recipe(folder: Path) -> dict[str, Any]:
    saved = None
    with suppress(RecipeError):
        saved = yaml.read_document(folder / RECIPE, RECIPE, "replace the run.")
    if not isinstance(saved, dict):
        raise OutputError(
            f"The run in '{folder}' cannot be resumed, since its '{RECIPE}' is missing or damaged; replace the run "
            "with --overwrite, or choose another folder."
        )
    return saved


def _check_same_recipe(folder: Path, saved: dict[str, Any], asked: Mapping[str, Any]) -> None:
    _check_same_objects(folder, saved, asked)
    run = records.load(records.Run, folder)
    old, new = _identity(saved, run.processes or 1), _identity(asked, ranks.process_count())
    if knows_content(run):
        old, new = _without_places(old), _without_places(new)
    difference = first_difference(old, new)
    if difference is not None:
        place, old, new = difference
        raise OutputError(
            f"The run in '{folder}' has {place} = {old!r}, this recipe {new!r}; resume with the same recipe "
            f"('{folder / RECIPE}'), or start anew elsewhere or with --overwrite."
        )


def _check_same_objects(folder: Path, saved: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse models, texts and rows, given as objects, other than those that the run began with, and drop them."""
    difference = first_difference(_objects_of(saved), _objects_of(asked))
    if difference is None:
        return
    place, old, new = difference
    if not isinstance(old, str) or not isinstance(new, str):  # A name in place of an object is judged as names are.
        return
    inputs = folder / paths.INPUTS
    weights = _different_weights(inputs / old, inputs / new)
    if new not in str(saved):
        files.remove(inputs / new)
    raise OutputError(
        f"{place} is not the object that the run in '{folder}' began with{weights}. Continue with what was kept by "
        f"limbeck.distill(output='{folder}', resume=True), or start anew elsewhere or with overwrite=True."
    )


def _objects_of(part: Any) -> Any:
    """Return a document with the names, which follow from their content, of the objects that were kept for it alone."""
    if isinstance(part, Mapping):
        return {key: _objects_of(value) for key, value in part.items() if key not in NOT_COMPUTED}
    if isinstance(part, list):
        return [_objects_of(value) for value in part]
    path = Path(part) if isinstance(part, str) else Path()
    return path.name if path.parent.name == paths.INPUTS else None


def _different_weights(old: Path, new: Path) -> str:
    """Say which weights of two models differ, where others are the same; nothing of texts and different models."""
    names = [path.relative_to(old) for path in old.rglob("*.safetensors")]
    different, count = [], 0
    for name in names:
        if not (new / name).is_file():
            return ""
        with safe_open(str(old / name), framework="pt") as one, safe_open(str(new / name), framework="pt") as other:
            keys = list(one.keys())
            if set(keys) != set(other.keys()):
                return ""
            count += len(keys)
            different += [key for key in keys if not one.get_tensor(key).equal(other.get_tensor(key))]
    if not different or len(different) == count:
        return ""
    some = ", ".join(different[:2]) + (" …" if len(different) > 2 else "")
    return (
        f": {len(different)} of its {count} tensors differ ({some}). Loading draws weights that a checkpoint lacks "
        "anew each time"
    )


def _identity(recipe: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Return what of a recipe's document decides the result of its run."""
    # These change nothing that was computed.
    kept = {key: value for key, value in recipe.items() if key not in NOT_COMPUTED}
    # The guard: what a run that it stopped may need to go on.
    kept["stages"] = [
        {key: value for key, value in stage.items() if key != "guard"}
        | {"training": _deciding(stage.get("training") or {}, processes)}
        for stage in recipe.get("stages") or []
    ]
    return kept


def knows_content(run: records.Run) -> bool:
    """Whether a run knows its teacher and text by what they hold, so that they may lie elsewhere."""
    views = run.corpus.views if run.corpus is not None else []
    return run.teacher.weights is not None and all(view.content for view in views)


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
    recipe, needs = _read_recipe(folder), []
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


def _without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out where teachers and text lie, of stages too: they are compared once they are read."""
    return {**without_places(recipe), "stages": list(map(without_places, recipe["stages"]))}


def _deciding(training: dict[str, Any], processes: int) -> dict[str, Any]:
    """Return what of a stage's training arguments decides its result, however many processes share its steps."""
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps")
    batch, accumulation = (training.get(name, DEFAULTS.get(name, 1)) for name in sizes)
    kept = {name: value for name, value in training.items() if name not in (*sizes, *_FREE)}
    return kept | {
        "rows a step (per_device_train_batch_size x gradient_accumulation_steps x processes)": (
            batch * accumulation * processes
        )
    }


_RUN = FolderKind("run", RECIPE, _check_same_recipe, beside=_NOTHING_YET, read=_read_recipe)
