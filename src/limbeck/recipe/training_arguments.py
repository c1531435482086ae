"""From a stage's `training:` to `transformers.TrainingArguments`: names, types and ranges are checked."""

from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

from limbeck.core.devices import bf16_is_fast, has_accelerator
from limbeck.errors import RecipeError, nearest, together
from limbeck.recipe.optimizers import check_optimizer
from limbeck.recipe.training_choices import CHECKS, SHARDING_WORDS
from limbeck.recipe.training_fields import DEFAULTS, MANAGED, OWN_TYPES, REFUSED, USUAL_NAMES
from limbeck.recipe.training_values import argument_defaults, argument_types, convert_argument


def check_training(training: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check a stage's training arguments.

    Args:
        training: The arguments, as the recipe has them.
        place: Where they stand in the recipe, for messages.

    Returns:
        The arguments, converted to their types.

    Raises:
        RecipeError: for a name that `TrainingArguments` does not have, that limbeck manages or that has no meaning in
            a distillation; for a wrong type, a number out of its range, or arguments that do not go together.
            Several errors are raised as one, whose `mistakes` has each.
    """
    arguments: dict[str, Any] = {}
    errors: list[RecipeError] = []
    for name, value in training.items():
        try:
            arguments[name] = _check_argument(name, value, place)
        except RecipeError as error:
            errors.append(error)
    for check in CHECKS:
        try:
            check(arguments, place)
        except RecipeError as error:
            errors.append(error)
    if errors:
        raise together(errors)

    if isinstance(arguments.get("fsdp"), str):
        arguments["fsdp"] = SHARDING_WORDS[arguments["fsdp"].lower()]
    return arguments


def _check_argument(name: str, value: Any, place: str) -> Any:
    """Return the value of an argument, converted to its type.

    Raises:
        RecipeError: for a name or a value that a stage may not have.
    """
    if name in MANAGED:
        # The key of the recipe or the option to use instead; None where there is none.
        option = MANAGED[name]
        state = "managed by limbeck"
        # Arguments such as `deepspeed` divide a model over processes in a way that limbeck lacks; fsdp is another way.
        if option == "fsdp":
            state = "not supported"
        way_out = "leave it out" if option is None else f"use {option}"
        raise RecipeError(f"{place}.{name} is {state}; {way_out}.")
    if name not in argument_types():
        raise RecipeError(f"{place}: transformers.TrainingArguments has no '{name}'.{_nearest_name(name)}")
    if isinstance(value, str) and not value.strip():
        raise RecipeError(f"{place}.{name} is empty: give a value, or leave the key out.")

    converted = convert_argument(name, value, f"{place}.{name}")
    if name in REFUSED and converted != argument_defaults()[name]:
        raise RecipeError(f"{place}.{name} cannot be used in a recipe: {REFUSED[name]}; leave it out.")
    return converted


def _nearest_name(name: str) -> str:
    """Return the end of a message that asks for the nearest name of an argument; empty where none is near."""
    if name in USUAL_NAMES:
        return f" Did you mean '{USUAL_NAMES[name]}'?"
    return nearest(name, sorted(argument_types().keys() - MANAGED.keys()))


def build_arguments(training: Mapping[str, Any], *, output: str, seed: int, evaluates: bool) -> TrainingArguments:
    """Make the arguments of one stage.

    Args:
        training: The arguments as the recipe has them, unchecked.
        output: Folder of the stage's checkpoints.
        seed: Seed of the stage.
        evaluates: Whether there is held-out text.

    Returns:
        The arguments, in bfloat16 where the machine is fast in it and the recipe says nothing else.

    Raises:
        RecipeError: see `check_training`, and for values that TrainingArguments refuses.
    """
    checked = check_training(training, "training")

    # Four groups, of which each takes precedence over those before it: limbeck's defaults, arguments that suit the
    # machine, those of the recipe, and those that limbeck decides itself (`managed`).
    has_gpu = has_accelerator()
    machine_arguments = {
        "dataloader_pin_memory": has_gpu,  # Without an accelerator torch only warns of pinned memory.
        "use_cpu": not has_gpu,
    }
    merged = DEFAULTS | machine_arguments | checked
    # `TrainingArguments` does not know limbeck's own arguments.
    for name in OWN_TYPES:
        merged.pop(name, None)
    if checked.get("fp16") and merged["use_cpu"]:
        raise RecipeError("training.fp16 needs a GPU, and this run trains on a CPU: use bf16, or leave fp16 out.")
    if not {"bf16", "fp16"} & checked.keys():
        merged["bf16"] = bf16_is_fast()
    if not evaluates:
        # Without measurements there is no best step.
        merged |= {"eval_strategy": "no", "load_best_model_at_end": False, "metric_for_best_model": None}
    managed = {
        "output_dir": output,
        "seed": seed,
        "data_seed": seed,
        "remove_unused_columns": False,
        "label_names": [],
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,
        "average_tokens_across_devices": False,
    }
    try:
        arguments = TrainingArguments(**(merged | managed))
        # With several GPUs in one process the trainer would copy the student (DataParallel), but not the hooks that
        # read its streams. Several GPUs need a process each.
        if arguments.n_gpu > 1:
            arguments._n_gpu = 1
        check_optimizer(arguments, checked)
        return arguments
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise RecipeError(f"training: {str(error).splitlines()[0]}") from None
