"""From a stage's `training:` to `transformers.TrainingArguments`: names, types and ranges are checked."""

import multiprocessing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames, trainer_log_levels

from limbeck.core.devices import bf16_is_fast, has_accelerator
from limbeck.core.mistakes import show_value, wanted_of
from limbeck.errors import RecipeError, nearest, suggestion, together
from limbeck.recipe.optimizers import check_optimizer
from limbeck.recipe.training_fields import DEFAULTS, MANAGED, RANGES, REFUSED, USUAL_NAMES, Range

_ANY_NUMBER = Range(-1e15, 1e15)
_NEED_WORKERS = (
    "dataloader_prefetch_factor",
    "dataloader_persistent_workers",
    "dataloader_multiprocessing_context",
)
_COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_SHARDING_WORDS = {"": False, "full_shard": True, "true": True, "false": False}
_FSDP_SETTINGS = {"reshard_after_forward"}
"""A student is sharded as one piece: terms read inside of its layers, past what a wrapper of each would see."""


def check_training(training: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check a stage's training arguments.

    Args:
        training: What the recipe says.
        place: Where it says so, for the message.

    Returns:
        The arguments, converted to their types.

    Raises:
        RecipeError: for a name that `TrainingArguments` does not have, that limbeck manages or that has no meaning in
            a distillation; for a wrong type, a number out of its range, or arguments that do not go together. One
            with the `mistakes`, where they are several.
    """
    arguments: dict[str, Any] = {}
    errors: list[RecipeError] = []
    for name, value in training.items():
        try:
            arguments[name] = _check_argument(name, value, place)
        except RecipeError as error:
            errors.append(error)
    for check in (_check_loggers, _check_choices, _check_workers, _check_compiler, _check_sharding):
        try:
            check(arguments, place)
        except RecipeError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    if isinstance(arguments.get("fsdp"), str):
        arguments["fsdp"] = _SHARDING_WORDS[arguments["fsdp"].lower()]
    return arguments


def _check_argument(name: str, value: Any, place: str) -> Any:
    """Return the value of an argument, converted to its type."""
    if name in MANAGED:
        instead = MANAGED[name]
        state = "not supported" if instead == "fsdp" else "managed by limbeck"
        way_out = "leave it out" if instead is None else f"use {instead}"
        raise RecipeError(f"{place}.{name} is {state}; {way_out}.")
    types = _types()
    if name not in types:
        known = sorted(types.keys() - MANAGED.keys())
        meant = f" Did you mean '{USUAL_NAMES[name]}'?" if name in USUAL_NAMES else nearest(name, known)
        raise RecipeError(f"{place}: transformers.TrainingArguments has no '{name}'.{meant}")
    if isinstance(value, str) and not value.strip():
        raise RecipeError(f"{place}.{name} is empty: give a value, or leave the key out.")
    if value is False and name.endswith("_strategy"):
        value = "no"  # YAML reads a bare `no` as false.

    converted = _convert(types[name], value, f"{place}.{name}")
    _check_range(name, converted, f"{place}.{name}")
    if name in REFUSED and converted != _defaults()[name]:
        raise RecipeError(f"{place}.{name} has no meaning here: {REFUSED[name]}; leave it out.")
    return converted


@cache
def _types() -> dict[str, Any]:
    hints = get_type_hints(TrainingArguments)
    types = {field.name: hints[field.name] for field in fields(TrainingArguments) if field.init}
    types["fsdp"] = bool | str | None  # A switch by now, annotated as the text that it was.
    return types


@cache
def _defaults() -> dict[str, Any]:
    defaults = {}
    for field in fields(TrainingArguments):
        defaults[field.name] = field.default if field.default_factory is MISSING else field.default_factory()
    return defaults


def _convert(annotation: Any, value: Any, place: str) -> Any:
    """Convert the value of an argument to its type, as pydantic does: "5" is a number where one is wanted.

    Raises:
        RecipeError: for a value of another type.
    """
    # Pydantic would take true and false for the numbers 1 and 0.
    takes_bool = annotation is bool or bool in get_args(annotation)
    if isinstance(value, bool) and not takes_bool:
        raise RecipeError(f"{place} is {str(value).lower()}, which has no meaning here: give a value.")
    adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        # A union has an error for each of its types; the first says enough.
        first_error = error.errors()[0]
        wanted = wanted_of(first_error)
        if wanted:
            raise RecipeError(f"{place} is {show_value(value)}; give {wanted}, or leave it out.") from None
        raise RecipeError(f"{place}: {first_error['msg']} (got {str(value)[:80]!r}).") from None


def _check_range(name: str, value: Any, place: str) -> None:
    """Refuse numbers that no run can use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "max_steps" and value == -1:
        return  # Epochs are counted in its place.
    least, most, least_allowed = RANGES.get(name, _ANY_NUMBER)
    is_inside = least <= value <= most  # No comparison holds for NaN.
    if is_inside and (value != least or least_allowed):
        return
    if name == "max_steps":
        raise RecipeError(f"{place} is {value}; give 1 or more, up to {most:,.0f}, or -1 to count in epochs.")
    bound = "at least" if least_allowed else "more than"
    raise RecipeError(f"{place} is {value}; give {bound} {least:g}, up to {most:g}.")


def _check_loggers(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse a logger whose package is missing before any time is spent."""
    report_to = arguments.get("report_to") or []
    names = [report_to] if isinstance(report_to, str) else list(report_to)
    words = {"none", "all"} & set(names)
    if words and len(names) > 1:
        raise RecipeError(
            f"{place}.report_to has '{min(words)}' beside others: give it alone, or give the names of loggers."
        )
    loggers = [name for name in names if name not in words]
    if not loggers:
        return
    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in loggers:
        if name not in available:
            package = "'limbeck[tensorboard]'" if name == "tensorboard" else f"the package of '{name}'"
            raise RecipeError(
                f"{place}.report_to: '{name}' is not installed; pip install {package}, or leave report_to out."
            )


def _check_choices(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse words that the libraries would stumble over as the stage begins."""
    strategies = ("no", "steps", "epoch")
    choices: dict[str, Iterable[str]] = {
        "optim": [optimizer.value for optimizer in OptimizerNames],
        "lr_scheduler_type": [schedule.value for schedule in SchedulerType],
        "save_strategy": strategies,
        "eval_strategy": strategies,
        "logging_strategy": strategies,
        "log_level": trainer_log_levels,
        "log_level_replica": trainer_log_levels,
        "dataloader_multiprocessing_context": multiprocessing.get_all_start_methods(),
        "ddp_backend": torch.distributed.Backend.backend_list if torch.distributed.is_available() else (),
    }
    for name, known in choices.items():
        value = arguments.get(name)
        word = str(getattr(value, "value", value))  # Some are members of an enumeration.
        if value is not None and word not in known:
            raise RecipeError(f"{place}.{name} is '{word}'.{suggestion(word, known)}")


def _check_workers(arguments: Mapping[str, Any], place: str) -> None:
    for name in _NEED_WORKERS:
        if arguments.get(name) and not arguments.get("dataloader_num_workers"):
            raise RecipeError(f"{place}.{name} is for workers; give dataloader_num_workers too, or leave it out.")


def _check_compiler(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse options of a compiler that is not asked for, and those that it does not have."""
    for name in ("torch_compile_backend", "torch_compile_mode"):
        value = arguments.get(name)
        if value is None:
            continue
        if not arguments.get("torch_compile"):
            raise RecipeError(f"{place}.{name} is for torch_compile; set torch_compile: true, or leave it out.")
        known: Iterable[str] = _COMPILE_MODES
        if name == "torch_compile_backend":
            from accelerate.utils import DynamoBackend

            known = [backend.value.lower() for backend in DynamoBackend]
        if value not in known:
            raise RecipeError(f"{place}.{name} is '{value}'.{suggestion(value, known)}")


def _check_sharding(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse words that are no switch, and settings that a student cannot be sharded with."""
    fsdp = arguments.get("fsdp")
    if isinstance(fsdp, str) and fsdp.lower() not in _SHARDING_WORDS:
        raise RecipeError(f"{place}.fsdp is '{fsdp}'; give true or false.")
    settings = arguments.get("fsdp_config") or {}
    unknown = sorted(set(settings) - _FSDP_SETTINGS) if isinstance(settings, dict) else ["a file"]
    if unknown:
        raise RecipeError(
            f"{place}.fsdp_config has '{unknown[0]}', but takes only {', '.join(sorted(_FSDP_SETTINGS))}: the "
            "student is sharded as one piece, by FSDP2."
        )


def build_arguments(training: Mapping[str, Any], *, output: str, seed: int, evaluates: bool) -> TrainingArguments:
    """Make the arguments of one stage.

    Args:
        training: What the recipe says, unchecked.
        output: Folder of the stage's checkpoints.
        seed: Seed of the stage.
        evaluates: Whether there is held-out text.

    Returns:
        The arguments, in bfloat16 where the machine is fast in it and the recipe says nothing else.

    Raises:
        RecipeError: see `check_training`, and for values that TrainingArguments refuses.
    """
    checked = check_training(training, "training")
    has_gpu = has_accelerator()
    # Pinned memory speeds up the way to an accelerator; without one torch only warns of it.
    merged = {**DEFAULTS, "dataloader_pin_memory": has_gpu, "use_cpu": not has_gpu, **checked}
    if checked.get("fp16") and merged["use_cpu"]:
        raise RecipeError("training.fp16 needs a GPU, and this run trains on a CPU: use bf16, or leave fp16 out.")
    if not {"bf16", "fp16"} & checked.keys():
        merged["bf16"] = bf16_is_fast()
    if not evaluates:
        merged["eval_strategy"] = "no"
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
        arguments = TrainingArguments(**{**merged, **managed})
        if arguments.n_gpu > 1:
            # Threads over several GPUs would copy the student without its taps; processes are for that.
            arguments._n_gpu = 1
        check_optimizer(arguments, checked)
        return arguments
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise RecipeError(f"training: {str(error).splitlines()[0]}") from None
