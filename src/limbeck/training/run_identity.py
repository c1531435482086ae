"""What of a recipe decides the result of its run: the same in a run that is resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from limbeck.core import files, paths, ranks, records
from limbeck.core.folders import first_difference
from limbeck.core.paths import RECIPE
from limbeck.errors import OutputError
from limbeck.recipe.known_by_content import without_places
from limbeck.recipe.schema import NOT_COMPUTED
from limbeck.recipe.training_fields import DEFAULTS

_SIZES = ("per_device_train_batch_size", "gradient_accumulation_steps")
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
    saved_identity = _identity(saved, run.processes or 1)
    new_identity = _identity(asked, ranks.process_count())
    if knows_content(run):
        saved_identity = _without_places(saved_identity)
        new_identity = _without_places(new_identity)
    difference = first_difference(saved_identity, new_identity)
    if difference is not None:
        key, old, new = difference
        raise OutputError(
            f"The run in '{folder}' has {key} = {old!r}, this recipe {new!r}; resume with the same recipe "
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
    """Return the end of a sentence that names the weights in which two models differ.

    It is empty for texts, and for models that have other weights or none in common.
    """
    different: list[str] = []
    count = 0
    for path in old.rglob("*.safetensors"):
        new_path = new / path.relative_to(old)
        if not new_path.is_file():
            return ""
        with safe_open(str(path), framework="pt") as weights, safe_open(str(new_path), framework="pt") as new_weights:
            names = list(weights.keys())
            if set(names) != set(new_weights.keys()):
                return ""
            count += len(names)
            different += [name for name in names if not weights.get_tensor(name).equal(new_weights.get_tensor(name))]
    if not different or len(different) == count:
        return ""
    examples = ", ".join(different[:2])
    if len(different) > 2:
        examples += " …"
    return (
        f": {len(different)} of its {count} tensors differ ({examples}). Loading draws weights that a checkpoint lacks "
        "anew each time"
    )


def _identity(recipe: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Return what of a recipe's document decides the result of its run."""
    identity = {key: value for key, value in recipe.items() if key not in NOT_COMPUTED}
    identity["stages"] = []
    for stage in recipe.get("stages") or []:
        deciding = dict(stage)
        # A run that its guard stopped may need another guard to go on.
        deciding.pop("guard", None)
        deciding["training"] = _deciding(stage.get("training") or {}, processes)
        identity["stages"].append(deciding)
    return identity


def knows_content(run: records.Run) -> bool:
    """Whether a run knows its teacher and text by what they hold, so that they may lie elsewhere."""
    views = run.corpus.views if run.corpus is not None else []
    return run.teacher.weights is not None and all(view.content for view in views)


def _without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out where teachers and text lie, of stages too: they are compared once they are read."""
    return {**without_places(recipe), "stages": list(map(without_places, recipe["stages"]))}


def _deciding(training: dict[str, Any], processes: int) -> dict[str, Any]:
    """Return what of a stage's training arguments decides its result, however many processes share its steps."""
    rows_a_step = processes
    for name in _SIZES:
        rows_a_step *= training.get(name, DEFAULTS.get(name, 1))
    deciding = {name: value for name, value in training.items() if name not in (*_SIZES, *_FREE)}
    deciding["rows a step (per_device_train_batch_size x gradient_accumulation_steps x processes)"] = rows_a_step
    return deciding
