"""Options over a recipe: what commands and Python calls say of a run beside a recipe, or in place of one."""

from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.errors import LimbeckError, RecipeError

_PLACES = {
    "teacher": ("teacher", "model"), "student": ("student", "shape"), "corpus": ("corpus", "sources"),
    "length": ("corpus", "length"), "development": ("corpus", "development"),
}  # fmt: skip
_TRAINING = {
    "steps": "max_steps", "batch_size": "per_device_train_batch_size", "learning_rate": "learning_rate",
}  # fmt: skip


def merge_options(data: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Lay options over a recipe; those of the training over every stage.

    Args:
        data: The recipe.
        given: By the names of the command's options. Teacher, student and corpus may be mappings, as in a recipe;
            `training` has further arguments of the training, `development` rows that are never trained on;
            `evaluation` is that part of a recipe, laid over its own.

    Raises:
        RecipeError: for a length where a stage has its own.
    """
    from limbeck.recipe.load import without_reasons

    if "length" in given and "method" not in given:
        _check_no_own_length(data.get("stages"), given["length"])
    merged = dict(data) | {name: given[name] for name in ("output", "seed") if name in given}
    changed: list[str] = [name for name in ("output", "seed") if name in given]
    for name, (part, key) in _PLACES.items():
        if name in given:
            value = given[name]
            said = dict(value) if isinstance(value, Mapping) else {key: value}
            merged[part] = {**_mapping(merged.get(part)), **said}
            changed += [f"{part}.{one}" for one in said]
    if "evaluation" in given:
        measured = given["evaluation"]
        is_part = isinstance(measured, Mapping)
        merged["evaluation"] = {**_mapping(merged.get("evaluation")), **measured} if is_part else measured
        changed += [f"evaluation.{one}" for one in measured] if is_part else []
    if "method" in given:
        merged["stages"] = _stages_of(given["method"])
        changed.append("stages.0.method")
    training = _training_of(given)
    stages = merged.get("stages")
    if training and isinstance(stages, list):
        merged["stages"] = [
            {**stage, "training": _trained(stage, training)} if isinstance(stage, dict) else stage for stage in stages
        ]
        changed += [f"stages.0.training.{key}" for key in training]
    return without_reasons(merged, changed)


def _training_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what options say of the training, by the names of its arguments."""
    said = {key: given[name] for name, key in _TRAINING.items() if name in given}
    return said | dict(given.get("training") or {})


CHOSEN_BY = ("teacher", "student", "corpus")
"""Options that a recipe is chosen by."""


def choose_by_options(given: Mapping[str, Any], *, resume: bool = False) -> dict[str, Any]:
    """Choose a recipe by teacher, student and corpus, and lay all other options over it.

    With a method only the student's start is chosen. What shows without torch to be wrong is refused before torch is
    imported.

    Args:
        given: As in `merge_options`, with these three.
        resume: Whether a run is continued, see `limbeck.recipe.choosing.choose_recipe`.

    Raises:
        LimbeckError: for all that a choice refuses.
    """
    from limbeck.recipe.places import check_choice
    from limbeck.recipe.training_fields import check_fields

    if "method" in given:
        return _started(merge_options({}, dict(given)))
    said = dict(given)
    teacher, student, corpus = (said.pop(name) for name in CHOSEN_BY)
    sources = corpus
    if isinstance(corpus, Mapping):
        sources = corpus.get("sources")
        said["corpus"] = {name: value for name, value in corpus.items() if name != "sources"}
    if sources is None:
        raise RecipeError("corpus has no sources, but a recipe is chosen by its files or texts; give some.")
    name = teacher["model"] if isinstance(teacher, Mapping) else teacher
    check_fields(_training_of(given), "stages.0.training")
    check_choice(name, student.get("shape", student) if isinstance(student, Mapping) else student, sources)
    from limbeck.recipe.choosing import choose_recipe

    chosen = choose_recipe(teacher, student, sources, output=said.get("output"), resume=resume)
    return merge_options(chosen, said)


def _started(recipe: dict[str, Any]) -> dict[str, Any]:
    """Choose the start of a student that names none; mistakes are left to be told with all others of the recipe."""
    from pydantic import ValidationError

    from limbeck.models.locating import check_not_pickled
    from limbeck.recipe.models import StudentSpec, TeacherSpec, names_start
    from limbeck.recipe.places import check_student
    from limbeck.recipe.stages import StageSpec

    if "teacher" not in recipe or "student" not in recipe or names_start(recipe["student"]):
        return recipe
    try:
        for stage in recipe["stages"]:
            StageSpec.model_validate(stage)
        check_not_pickled(teacher := TeacherSpec.model_validate(recipe["teacher"]).model)
        check_student(StudentSpec.model_validate(recipe["student"]), teacher)
        # Torch is imported from here on, which takes seconds.
        from limbeck.recipe.choosing import choose_start

        return choose_start(recipe)
    except (LimbeckError, ValidationError):
        return recipe


def _trained(stage: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training of a stage with other arguments; a number of epochs takes the place of one of steps."""
    own = _mapping(stage.get("training"))
    if "num_train_epochs" in training and "max_steps" not in training:
        own.pop("max_steps", None)
    return {**own, **training}


def _check_no_own_length(stages: Any, length: int) -> None:
    """Refuse a length that a stage would not follow, since it has its own."""
    for number, stage in enumerate(stages if isinstance(stages, list) else []):
        text = _mapping(_mapping(stage).get("text"))
        if own := next((key for key in ("lengths", "length") if text.get(key) is not None), None):
            key = f"stages.{number}.text.{own}"
            raise RecipeError(f"--length {length} does not change {key}, which is {text[own]}; give --set {key}=…")


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _stages_of(method: str | Mapping[str, Any] | Sequence[Any]) -> list[dict[str, Any]]:
    """The stages that make a method up, all of them with its defaults, or with the options that are given."""
    from limbeck.methods.registry import METHODS

    given = {"name": method} if isinstance(method, str) else method
    if not isinstance(given, Mapping):
        return [one for each in given for one in _stages_of(each)]
    name = given.get("name")
    stages = METHODS[name].stages if isinstance(name, str) and name in METHODS and "stage" not in given else ()
    if not stages:
        return [{"method": method if isinstance(method, str) else dict(given)}]
    return [{"name": f"stage-{number}", "method": {**stage, **given}} for number, stage in enumerate(stages, start=1)]
