"""Recipes of calls: changed by options, or chosen by them, with names in the place of objects.

An *option* here is an argument of a call beside its recipe, such as `teacher` or `learning_rate`. An *object* is a
value that a recipe cannot hold, such as a model or a list of texts: it is saved to a file that the recipe names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from limbeck.api.objects import Objects
from limbeck.api.requests.distil import ValidateRequest
from limbeck.api.training_objects import method_of, training_of
from limbeck.core.progress_bars import print_plain
from limbeck.errors import LimbeckError
from limbeck.recipe.asked import check_chosen_by, choose_by_options, given_document, merge_options
from limbeck.recipe.overrides import apply_overrides
from limbeck.recipe.schema import Recipe

_OVER_A_RECIPE = (
    "teacher", "student", "corpus", "text_column", "label_column", "development", "method", "training", "evaluation",
    "seed", "steps", "minutes", "batch_size", "learning_rate", "length", "output",
)  # fmt: skip
"""Options that change a recipe, or by which one is chosen."""


def options_over(request: ValidateRequest) -> dict[str, Any]:
    """Return the options that a request has beside its recipe, without those that were left out."""
    options = {}
    for name in _OVER_A_RECIPE:
        # A request to validate a recipe does not have all of them, such as an output.
        value = getattr(request, name, None)
        if value is not None:
            options[name] = value
    if "method" in options:
        options["method"] = method_of(request.method)
    if "training" in options:
        options["training"] = training_of(request.training)
        # A `TrainingArguments` of defaults alone changes nothing.
        if not options["training"]:
            del options["training"]
    return options


def named_recipe(
    recipe: object,
    options: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    kept_in: Path | None = None,
    overrides: str | Sequence[str] = (),
    resume: bool = False,
    before: Callable[[str | Path], object] = lambda _: None,
) -> dict[str, Any]:
    """Return the recipe of a call as a document, with files in the place of its objects.

    Args:
        recipe: A `Recipe`, a dict, or the path of a YAML file, which the options change. None chooses a recipe by the
            options.
        options: The options; see `limbeck.recipe.asked`.
        tokenizer: The tokenizer of a teacher that is a model object.
        kept_in: The folder in which objects are saved; None is the run's folder, or limbeck's cache without a run.
        overrides: Values that are set in the recipe later (`--set`). Those of the corpus name columns that a chosen
            recipe reads.
        resume: Whether a run is continued.
        before: Called with the folder, if there is one, at the beginning, since choosing a recipe takes seconds, and
            before each object is saved there. It raises an error for a folder that cannot be used. The first call is
            left out where an override names another folder.

    Raises:
        LimbeckError: for objects that are neither models nor texts, and for models or text that no recipe can be chosen
            for.
    """
    document = given_document(recipe, options, resume=resume)

    # The folder for objects.
    folder = kept_in or options.get("output")
    if folder is None and document is not None:
        folder = document.get("output")
    _check_folder(folder, overrides, before)
    objects = _objects_in(folder, before)

    # The recipe, with names of saved files in the places of objects.
    if document is None:
        check_chosen_by(options)
        merged = choose_by_options(_with_names(options, objects, tokenizer), overrides=overrides, resume=resume)
    else:
        # Objects in the document are saved before those in the options, so that notes are in the order of the document.
        document = objects.document(document)
        merged = merge_options(document, _with_names(options, objects, tokenizer), overrides=overrides)

    # A data set with a validation split became `sources` and `development` (see `Objects.corpus`). Text without labels
    # has no development rows, so that the split is not used. Whether rows have labels is known only now.
    corpus = merged.get("corpus")
    if "development" not in options and isinstance(corpus, dict) and not corpus.get("task"):
        corpus.pop("development", None)
    add_reasons(merged, objects.notes)
    return merged


def add_reasons(document: dict[str, Any], reasons: Mapping[str, str]) -> None:
    """Add reasons to a recipe's document, in place; they replace those that it has for the same keys."""
    if reasons:
        document["reasons"] = {**(document.get("reasons") or {}), **reasons}


def print_reasons(recipe: Recipe, console: Console) -> None:
    """Print the reasons in a recipe, a line each."""
    for key, reason in (recipe.reasons or {}).items():
        print_plain(console, f"{key}: {reason}.")


def _check_folder(
    folder: str | Path | None, overrides: str | Sequence[str], check: Callable[[str | Path], object]
) -> None:
    """Check the folder of a call, unless an override names another one, which is checked with the recipe.

    Args:
        folder: The folder; None where the call names none. Another value is refused with the recipe.
        overrides: Values that are set in the recipe later.
        check: Raises an error for a folder that cannot be used.
    """
    is_overridden = "output" in apply_overrides({}, overrides)
    if isinstance(folder, str | Path) and not is_overridden:
        check(folder)


def _objects_in(folder: str | Path | None, before: Callable[[str | Path], object]) -> Objects:
    """Return the keeper of objects in a folder; of limbeck's cache without one.

    Args:
        folder: The folder.
        before: Called with the folder before anything is kept there.
    """
    if folder is None:
        return Objects()
    return Objects(folder, partial(before, folder))


def _with_own_tokens(student: Mapping[str, Any], teacher: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let a student that is a model keep its own tokenizer, if its teacher has another one.

    Args:
        student: The keys of a recipe's student: the shape of the model, and the model as `initialise.checkpoint`, which
            reads the teacher's tokens.
        teacher: The keys of a recipe's teacher.

    Returns:
        The same keys; or with another tokenizer `initialise.from` alone, by which a student also takes the tokenizer.
    """
    from limbeck.recipe.models import TeacherSpec
    from limbeck.recipe.tokenizer_plans import TokenizerPlan, read_alike

    model = student["initialise"]["checkpoint"]
    try:
        spec = TeacherSpec.model_validate(teacher)
        reads_as_teacher = spec.has_files and read_alike(TokenizerPlan(model), TokenizerPlan(spec.model, spec.revision))
    except (LimbeckError, ValidationError):
        # The check of the recipe tells what is wrong.
        return student
    if reads_as_teacher:
        return student
    return {"initialise": {"from": model}}


def _with_names(options: Mapping[str, Any], objects: Objects, tokenizer: Any) -> dict[str, Any]:
    """Return options with names in the places of objects."""
    names = dict(options)
    if "teacher" in names:
        names["teacher"] = objects.teacher(names["teacher"], tokenizer, names.get("corpus"))
    if "student" in names:
        student = objects.student(names["student"], tokenizer=tokenizer)
        # A model, or the path of one, has become a mapping. A recipe's student is one already, and a shape is none.
        was_model = isinstance(student, Mapping) and not isinstance(names["student"], Mapping)
        if was_model and "teacher" in names:
            student = _with_own_tokens(student, names["teacher"])
        names["student"] = student
    if "corpus" in names:
        names["corpus"] = objects.corpus(names["corpus"])
        # The validation split of a data set is used for development, unless the call gives development rows.
        if "development" not in names and names["corpus"].get("development") is not None:
            names["development"] = names["corpus"].pop("development")
    if "development" in names:
        names["development"] = objects.sources(names["development"], "corpus.development")
    if "output" in names:
        names["output"] = str(names["output"])
    return names
