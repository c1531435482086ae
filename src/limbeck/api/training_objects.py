"""Training arguments, methods and callbacks that are given as objects, in the form that a recipe has them."""

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from limbeck.api.classes import class_name, is_of
from limbeck.api.requests.values import as_list
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from transformers import TrainingArguments

_OF_THE_OBJECT = ("output_dir", "logging_dir", "run_name", "disable_tqdm")
"""Training arguments that differ between objects by themselves, such as a folder with the time in its name.

They are not taken over, since limbeck decides them.
"""


def training_of(training: "Mapping[str, Any] | TrainingArguments | None") -> dict[str, Any]:
    """Return training arguments as a recipe has them; for an object, only those that differ from the defaults.

    Raises:
        RecipeError: for anything else.
    """
    if training is None:
        return {}
    if isinstance(training, Mapping):
        return dict(training)
    if not is_of(training, "transformers", "TrainingArguments"):
        raise RecipeError(
            f"training: {class_name(training)} cannot hold training arguments; give a dict or "
            "transformers.TrainingArguments."
        )
    from transformers import TrainingArguments

    defaults = TrainingArguments(output_dir=training.output_dir)
    arguments = {}
    for field in dataclasses.fields(TrainingArguments):
        value = getattr(training, field.name)
        if field.init and field.name not in _OF_THE_OBJECT and value != getattr(defaults, field.name):
            # Members of enumerations are written by their values.
            arguments[field.name] = getattr(value, "value", value)
    return arguments


def method_of(method: Any) -> Any:
    """Return a method as a recipe names it: a function under `register_as_method`, or a `Method`, by its name.

    Raises:
        RecipeError: for one that is not registered.
    """
    if method is None or isinstance(method, str | Mapping):
        return method
    if isinstance(method, Sequence):
        return [method_of(member) for member in method]
    from limbeck.methods.registry import METHODS

    for name, registered in METHODS.items():
        if method in (registered, registered.compose):
            return name
    shown = getattr(method, "__name__", class_name(method))
    raise RecipeError(f"method: '{shown}' is not a registered method; put @register_as_method above its function.")


def callbacks_of(callbacks: Any) -> list[Any]:
    """Return callbacks, each an object or a class.

    Raises:
        RecipeError: for one that is no `transformers.TrainerCallback`.
    """
    members = as_list(callbacks)
    for callback in members:
        if not is_of(callback, "transformers", "TrainerCallback"):
            shown = callback.__name__ if isinstance(callback, type) else class_name(callback)
            raise RecipeError(f"callbacks: {shown} is not a callback; derive it from transformers.TrainerCallback.")
    return members


def note_of_callbacks(callbacks: Sequence[Any]) -> dict[str, str]:
    """Return a note on the callbacks of a run, with the hash of their source: no recipe can hold them."""
    if not callbacks:
        return {}
    shown = []
    for callback in callbacks:
        cls = callback if isinstance(callback, type) else type(callback)
        shown.append(f"{cls.__name__} (hash of its source {_source_hash(cls)})")
    return {"callbacks": f"{', '.join(shown)}; they act during training and are not part of this recipe"}


def _source_hash(cls: type) -> str:
    """Return the hash of the source of a class, or words where the source cannot be read."""
    try:
        source = _source_of(cls)
    except (OSError, TypeError):
        return "not known"
    return hashlib.blake2b(source.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _source_of(cls: type) -> str:
    """Return the source of a class; of one that was defined in a notebook, that of its functions."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        functions = [member for member in vars(cls).values() if inspect.isfunction(member)]
        return "".join(inspect.getsource(function) for function in functions)
