"""Identity of a run: the part of a recipe that decides its result, and that a resumed run must share.

A recipe may hold *objects* that a program gave it, such as a model in memory or rows. They are saved as inputs in the
run's folder, and the recipe's document has their paths.
"""

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
from limbeck.training.changed_steps import steps_changes, with_changed_steps
from limbeck.training.measured_steps import with_measured_steps

_SIZES_OF_STEP = ("per_device_train_batch_size", "gradient_accumulation_steps")
"""Arguments that, multiplied with each other and with the number of processes, give the rows of a step.

Only the rows of a step decide the result, so these arguments may change as long as their product does not.
"""
_MAY_DIFFER = (
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "eval_steps",
    "eval_strategy",
    "logging_steps",
    "logging_strategy",
    "eval_delay",
    "eval_on_start",
    "per_device_eval_batch_size",
    "logging_first_step",
    "log_level",
    "log_level_replica",
    "run_name",
    "report_to",
)
"""Arguments that may change in a resumed run: when to save, measure and log, and where to."""
_DECIDE_MEASURED_STEPS = {"eval_steps", "eval_strategy", "eval_delay", "eval_on_start"}
"""Those of them that decide which step is measured."""
_MAY_CHANGE = (
    "A resumed run may change evaluation, guard, when it saves, measures and logs, how the rows of a step are divided, "
    "and max_steps of a stage that is not finished"
)
_MOST_EXAMPLES = 2
"""Most names of tensors in a message."""


def check_same_recipe(folder: Path, saved_recipe: dict[str, Any], new_recipe: Mapping[str, Any]) -> None:
    """Refuse to resume a run with a recipe whose result would be another one.

    Args:
        folder: The run's folder.
        saved_recipe: The document of the recipe that the run began with.
        new_recipe: The document of the recipe to go on with.

    Raises:
        OutputError: with the first key that differs.
    """
    _check_same_objects(folder, saved_recipe, new_recipe)
    run = records.load(records.Run, folder)
    # Numbers of steps that may differ are made equal: those that were measured in place of a limit of minutes, and
    # those of stages that are not finished.
    compared_recipe = with_measured_steps(folder, new_recipe)
    allowed_changes = steps_changes(folder, saved_recipe, compared_recipe)
    # Records of earlier versions have no number of processes; those runs had one.
    saved_identity = _identity(with_changed_steps(saved_recipe, allowed_changes), run.processes or 1)
    new_identity = _identity(compared_recipe, ranks.process_count())
    # Where the record has hashes of teachers and texts, these are compared elsewhere, so that the files may have moved.
    if knows_content(run):
        saved_identity = _without_places(saved_identity)
        new_identity = _without_places(new_identity)
    difference = first_difference(saved_identity, new_identity)
    if difference is None:
        return
    settings = _describe_difference(*difference)
    if run.is_finished:
        state_and_next_step = run.way_on(folder / paths.STUDENT)
        # A run that was ended early is never trained on, whatever the recipe.
        if run.ended_early is not None:
            raise OutputError(f"{state_and_next_step}.")
        # With its own recipe a finished run would only return its result.
        raise OutputError(
            f"The run in '{folder}' {settings}. {state_and_next_step}. To train a new student instead, start again "
            "with --overwrite or in another folder."
        )
    raise OutputError(
        f"The run in '{folder}' {settings}; resume with the run's own recipe ('{folder / RECIPE}'), or start again "
        f"with --overwrite or in another folder. {_MAY_CHANGE}."
    )


def _check_same_objects(folder: Path, saved_recipe: Mapping[str, Any], new_recipe: Mapping[str, Any]) -> None:
    """Refuse objects (models, texts, rows) other than those that the run began with.

    Objects were saved under names that follow from their content, so other names are other objects. A refused object is
    removed from the run's folder again.
    """
    difference = first_difference(_objects_of(saved_recipe), _objects_of(new_recipe))
    if difference is None:
        return
    place, old_name, new_name = difference
    # Where one recipe has an object and the other a path or name, the comparison of the recipes refuses it.
    if not isinstance(old_name, str) or not isinstance(new_name, str):
        return
    inputs = folder / paths.INPUTS
    weights = _different_weights(inputs / old_name, inputs / new_name)
    # The refused object is removed, unless the run uses the same one in another part of its recipe.
    if new_name not in str(saved_recipe):
        files.remove(inputs / new_name)
    raise OutputError(
        f"{place} is not the object that the run in '{folder}' began with{weights}. Continue with the kept copy by "
        f"limbeck.distill(output='{folder}', resume=True), or start again with overwrite=True or in another folder."
    )


def _objects_of(part: Any) -> Any:
    """Return a copy of a part of a document in which objects are their names, and all other values are None."""
    if isinstance(part, Mapping):
        return {key: _objects_of(value) for key, value in part.items() if key not in NOT_COMPUTED}
    if isinstance(part, list):
        return [_objects_of(value) for value in part]
    if not isinstance(part, str):
        return None
    # Objects stand in a recipe as paths below the run's folder of inputs.
    path = Path(part)
    return path.name if path.parent.name == paths.INPUTS else None


def _different_weights(old: Path, new: Path) -> str:
    """Return the end of a sentence that names the weights in which two saved models differ.

    Args:
        old: The folder or file of the object that the run began with.
        new: The same of the object to go on with.

    Returns:
        The end of the sentence; empty for texts, for models with other names of weights, and for models of which all
        weights differ.
    """
    # Names of tensors that differ, and the number of all tensors, over the files of both models.
    different: list[str] = []
    count = 0
    for old_path in old.rglob("*.safetensors"):
        new_path = new / old_path.relative_to(old)
        if not new_path.is_file():
            return ""
        with (
            safe_open(str(old_path), framework="pt") as old_weights,
            safe_open(str(new_path), framework="pt") as new_weights,
        ):
            names = list(old_weights.keys())
            if set(names) != set(new_weights.keys()):
                return ""
            count += len(names)
            different += [
                name for name in names if not old_weights.get_tensor(name).equal(new_weights.get_tensor(name))
            ]
    # Where every tensor differs, these are simply two models, and a list of tensors says nothing.
    if not different or len(different) == count:
        return ""
    examples = ", ".join(different[:_MOST_EXAMPLES])
    if len(different) > _MOST_EXAMPLES:
        examples += " …"
    return (
        f": {len(different)} of its {count} tensors differ ({examples}). Loading draws weights that a checkpoint lacks "
        "anew each time"
    )


def _identity(recipe: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Return the part of a recipe's document that decides the result of its run.

    Args:
        recipe: The document.
        processes: Processes that share each step.
    """
    identity = {key: value for key, value in recipe.items() if key not in NOT_COMPUTED}
    identity["stages"] = []
    for stage in recipe.get("stages") or []:
        deciding = dict(stage)
        # A run that was stopped at a bad loss may need another guard to go on.
        deciding.pop("guard", None)
        deciding["training"] = _deciding_arguments(stage.get("training") or {}, processes)
        identity["stages"].append(deciding)
    return identity


def knows_content(run: records.Run) -> bool:
    """Return whether a run knows its teacher and text by hashes of their content, so that they may lie elsewhere."""
    views = run.corpus.views if run.corpus is not None else []
    return run.teacher.weights is not None and all(view.content for view in views)


def _without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the places of teachers and texts, in stages too.

    Their content is compared later, once it is read.
    """
    identity = without_places(recipe)
    return {**identity, "stages": [without_places(stage) for stage in recipe["stages"]]}


def _deciding_arguments(training: dict[str, Any], processes: int) -> dict[str, Any]:
    """Return the training arguments of a stage that decide its result, however many processes share its steps."""
    # The rows of a step decide the result, however they are divided. They stand in place of the arguments that make
    # them (`_SIZES_OF_STEP`), of which one that is left out has its default.
    rows_a_step = processes
    for name in _SIZES_OF_STEP:
        rows_a_step *= training.get(name, DEFAULTS.get(name, 1))
    # `_MAY_DIFFER` are the arguments that say when to save, measure and log.
    may_change = {*_MAY_DIFFER, *_SIZES_OF_STEP}
    if training.get("load_best_model_at_end"):
        # The steps that are measured decide which student is chosen.
        may_change -= _DECIDE_MEASURED_STEPS
    deciding = {name: value for name, value in training.items() if name not in may_change}
    deciding["rows a step (per_device_train_batch_size x gradient_accumulation_steps x processes)"] = rows_a_step
    return deciding


def _describe_difference(place: str, old: Any, new: Any) -> str:
    """Return the difference between two recipes as the words behind "The run in FOLDER".

    Args:
        place: The key.
        old: Its value in the recipe of the run; None if that recipe does not set the key.
        new: Its value in the recipe to go on with; None likewise.
    """
    if old is None:
        return f"does not set {place}, but this recipe sets {new!r}"
    if new is None:
        return f"has {place} = {old!r}, but this recipe does not set it"
    return f"has {place} = {old!r}, but this recipe has {new!r}"
