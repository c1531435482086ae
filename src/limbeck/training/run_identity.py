"""What of a recipe decides the result of its run: the same in a run that is resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from limbeck.core import files, paths, ranks, records
from limbeck.core.folders import first_difference
from limbeck.core.paths import RECIPE
from limbeck.errors import OutputError
from limbeck.recipe.load import without_places
from limbeck.recipe.schema import NOT_COMPUTED
from limbeck.recipe.training_fields import DEFAULTS

# Arguments that may change in a resumed run: when to save, measure and log, and where to.
_FREE = (
    "save_steps", "save_strategy", "save_total_limit", "eval_steps", "eval_strategy", "logging_steps",
    "logging_strategy", "report_to",
)  # fmt: skip


def check_same_recipe(folder: Path, saved: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to resume a run with a recipe whose result would be another one.

    Args:
        folder: The run's folder.
        saved: The document of the recipe that the run began with.
        asked: The document of the recipe to go on with.

    Raises:
        OutputError: with the first key that differs.
    """
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
