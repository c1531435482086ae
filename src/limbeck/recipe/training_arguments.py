"""From a stage's `training:` to `transformers.TrainingArguments`: defaults, names and types checked."""

import copy
import dataclasses
import math
import multiprocessing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames, trainer_log_levels

from limbeck.core.devices import bf16_is_fast, has_accelerator
from limbeck.errors import RecipeError, shorten_error, suggestion
from limbeck.recipe.training_fields import DEFAULTS, REFUSED, check_fields, check_range, keeps_bfloat16_moments

_OF_OPTIMIZER = {"optim", "optim_args", "lr_scheduler_type", "lr_scheduler_kwargs"}
# Optimizers that step inside of the backward pass, or know their layers by name.
_HOOKED = ("galore", "apollo", "lomo", "adalomo", "layerwise")
_NEED_WORKERS = tuple(
    f"dataloader_{name}" for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context")
)
_SOME_STEPS = 1_000
_BY_LOSS = ("reduce_lr_on_plateau", "greedy")
"""Schedules that follow the held-out loss."""

# A student is sharded as one piece: terms read inside of its layers, past what a wrapper of each would see.
_FSDP_SETTINGS = {"reshard_after_forward"}


@cache
def _defaults() -> dict[str, Any]:
    fields = dataclasses.fields(TrainingArguments)
    made = {field.name: field.default_factory() for field in fields if field.default_factory is not dataclasses.MISSING}
    return {field.name: field.default for field in fields} | made


@cache
def _field_types() -> dict[str, Any]:
    hints = get_type_hints(TrainingArguments)
    found = {field.name: hints[field.name] for field in dataclasses.fields(TrainingArguments) if field.init}
    return found | {"fsdp": bool | str | None}  # A switch by now, annotated as the text that it was.


def check_training(training: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check names and types of a stage's training arguments.

    Args:
        training: What the recipe says.
        place: Where it says so, for the message.

    Returns:
        The arguments, converted to their types.

    Raises:
        RecipeError: for a name that TrainingArguments does not have, that limbeck manages or that has no meaning in
            a distillation; for a wrong type, or a value whose condition is not met.
    """
    types = _field_types()
    check_fields(training, place)
    checked: dict[str, Any] = {}
    for name, value in training.items():
        if name not in types:
            raise RecipeError(f"{place}.{name} is an argument of other versions of transformers: leave it out.")
        if isinstance(value, str) and not value.strip():
            raise RecipeError(f"{place}.{name} is empty: give a value, or leave the key out.")
        if value is False and name.endswith("_strategy"):
            value = "no"  # YAML reads a bare `no` as false.
        checked[name] = _convert(types[name], value, f"{place}.{name}")
        check_range(name, checked[name], f"{place}.{name}")
        if name in REFUSED and checked[name] != _defaults()[name]:
            raise RecipeError(f"{place}.{name} has no meaning here: {REFUSED[name]}; leave it out.")
    _check_loggers(checked.get("report_to"), f"{place}.report_to")
    _check_choices(checked, place)
    _check_compiler(checked, place)
    _check_sharding(checked, place)
    return checked


def _check_sharding(checked: dict[str, Any], place: str) -> None:
    """Take `fsdp` as a switch, and refuse settings that a student cannot be sharded with."""
    if isinstance(checked.get("fsdp"), str):
        words = {"": False, "full_shard": True, "true": True, "false": False}
        if checked["fsdp"].lower() not in words:
            raise RecipeError(f"{place}.fsdp is '{checked['fsdp']}'; give true or false.")
        checked["fsdp"] = words[checked["fsdp"].lower()]
    settings = checked.get("fsdp_config") or {}
    unknown = sorted(set(settings) - _FSDP_SETTINGS) if isinstance(settings, dict) else ["a file"]
    if unknown:
        raise RecipeError(
            f"{place}.fsdp_config has '{unknown[0]}', but takes only {', '.join(sorted(_FSDP_SETTINGS))}: the "
            "student is sharded as one piece, by FSDP2."
        )


def _check_choices(checked: dict[str, Any], place: str) -> None:
    """Refuse words that the libraries would stumble over as the stage begins."""
    choices: dict[str, Iterable[str]] = {
        "optim": [kind.value for kind in OptimizerNames],
        "lr_scheduler_type": [kind.value for kind in SchedulerType],
        **dict.fromkeys(("save_strategy", "eval_strategy", "logging_strategy"), ("no", "steps", "epoch")),
        "log_level": trainer_log_levels,
        "log_level_replica": trainer_log_levels,
        "dataloader_multiprocessing_context": multiprocessing.get_all_start_methods(),
        "ddp_backend": torch.distributed.Backend.backend_list if torch.distributed.is_available() else (),
    }
    for name, known in choices.items():
        value = checked.get(name)
        if value is not None and str(getattr(value, "value", value)) not in known:
            raise RecipeError(f"{place}.{name} is '{getattr(value, 'value', value)}'.{suggestion(str(value), known)}")
    for name in _NEED_WORKERS:
        if checked.get(name) and not checked.get("dataloader_num_workers"):
            raise RecipeError(f"{place}.{name} is for workers; give dataloader_num_workers too, or leave it out.")


def _check_compiler(checked: dict[str, Any], place: str) -> None:
    """Refuse options of a compiler that is not asked for, and those that it does not have."""
    modes = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    for name in ("torch_compile_backend", "torch_compile_mode"):
        value = checked.get(name)
        if value is None:
            continue
        if not checked.get("torch_compile"):
            raise RecipeError(f"{place}.{name} is for torch_compile; set torch_compile: true, or leave it out.")
        known = modes if name.endswith("mode") else _compilers()
        if value not in known:
            raise RecipeError(f"{place}.{name} is '{value}'.{suggestion(value, known)}")


def _compilers() -> list[str]:
    from accelerate.utils import DynamoBackend

    return [backend.value.lower() for backend in DynamoBackend]


def choose_optimizer(arguments: TrainingArguments, model: Any = None) -> tuple[Any, dict[str, Any]]:
    """Choose the optimizer: that of transformers, or with `moments=bfloat16` the one whose moments are so.

    Args:
        arguments: Of the training.
        model: What is trained; only optimizers that are refused ask for it.

    Returns:
        Its class, and its options.
    """
    from transformers import Trainer

    kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    if not keeps_bfloat16_moments(arguments.optim_args):
        return kind, options
    from limbeck.kernels.rounded_adamw import RoundedAdamW

    # All processes have one seed.
    return RoundedAdamW, {name: options[name] for name in ("lr", "betas", "eps")} | {"seed": arguments.seed}


def _check_optimizer(arguments: TrainingArguments, given: Mapping[str, Any]) -> None:
    """Refuse an optimizer or a schedule that cannot be made or used, by some steps of them for one number."""
    if not given.keys() & _OF_OPTIMIZER:
        return  # A test makes the default ones; `Trainer` takes seconds to import.
    from transformers import get_scheduler

    name = arguments.optim.value
    if name.startswith(_HOOKED) or "layerwise" in name:
        raise RecipeError(
            f"training.optim '{name}' hooks into the layers of one model; choose another, such as adamw_torch."
        )
    if given.get("lr_scheduler_kwargs") and arguments.lr_scheduler_type.value in ("constant", "constant_with_warmup"):
        raise RecipeError(
            f"training.lr_scheduler_kwargs is not for '{arguments.lr_scheduler_type.value}': leave it out."
        )
    pairs = given.get("optim_args")
    if not isinstance(pairs, str | None) or any(pair.count("=") != 1 for pair in (pairs or "=").split(",")):
        raise RecipeError(
            f"training.optim_args is {pairs!r}: give NAME=VALUE, several separated by commas, or leave it out."
        )
    try:
        kind, options = choose_optimizer(arguments)
        if given.get("optim_args"):
            plain = copy.copy(arguments)
            plain.optim_args = None
            if choose_optimizer(plain) == (kind, options):
                raise RecipeError(f"training.optim_args is not for '{name}', which takes none of them: leave it out.")
        optimizer = kind([torch.nn.Parameter(torch.zeros(1))], **options)
    except (ImportError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise RecipeError(f"training.optim '{name}' cannot be made: {shorten_error(error)}") from None
    try:
        schedule = get_scheduler(
            arguments.lr_scheduler_type, optimizer, num_warmup_steps=1, num_training_steps=_SOME_STEPS,
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
        )  # fmt: skip
        # To the end, since what it was given is read behind the warm-up, or at the last step alone.
        metrics = [1.0] if arguments.lr_scheduler_type.value in _BY_LOSS else []
        for _ in range(_SOME_STEPS):
            optimizer.step()
            schedule.step(*metrics)
        if not all(math.isfinite(group["lr"]) for group in optimizer.param_groups):
            raise ValueError("its learning rate is not a finite number")
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise RecipeError(
            f"training.lr_scheduler_type '{arguments.lr_scheduler_type.value}' cannot be made: {shorten_error(error)}; "
            "give lr_scheduler_kwargs that it takes."
        ) from None


def _check_loggers(report_to: Any, place: str) -> None:
    """Refuse a logger whose package is missing before any time is spent."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if len(names) > 1 and (alone := {"none", "all"} & set(names)):
        raise RecipeError(f"{place} has '{min(alone)}' beside others: give it alone, or give the names of loggers.")
    loggers = [name for name in names if name not in ("none", "all")]
    if not loggers:
        return
    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in loggers:
        if name not in available:
            extra = "'limbeck[tensorboard]'" if name == "tensorboard" else f"the package of '{name}'"
            raise RecipeError(f"{place}: '{name}' is not installed; pip install {extra}, or leave report_to out.")


def _convert(kind: Any, value: Any, place: str) -> Any:
    if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
        raise RecipeError(f"{place} is {str(value).lower()}, which has no meaning here: give a value.")
    try:
        adapter = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_python(value)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError):
        return value  # A type that pydantic cannot express is checked by TrainingArguments itself.
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise RecipeError(f"{place}: {problem} (got {str(value)[:80]!r}).") from None


_NUMBERS = frozenset({
    "adam_beta1", "adam_beta2", "adam_epsilon", "eval_steps", "gradient_accumulation_steps", "learning_rate",
    "logging_steps", "max_grad_norm", "max_steps", "num_train_epochs", "per_device_eval_batch_size",
    "per_device_train_batch_size", "save_steps", "save_total_limit", "warmup_steps", "weight_decay",
})  # fmt: skip
"""Arguments that nothing but their ranges can be wrong with; a test makes them."""


def check_arguments(training: Mapping[str, Any], *, seed: int, evaluates: bool) -> None:
    """Refuse what `build_arguments` would; numbers alone are not made into arguments, which takes a second.

    Args:
        training: As in `build_arguments`.
        seed: As in `build_arguments`.
        evaluates: As in `build_arguments`.

    Raises:
        RecipeError: as `build_arguments`.
    """
    if not training.keys() <= _NUMBERS:
        build_arguments(training, output="", seed=seed, evaluates=evaluates)


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
    asked = check_training(training, "training")
    accelerated = has_accelerator()
    # Pinned memory speeds up the way to an accelerator; without one torch only warns of it.
    merged = {**DEFAULTS, "dataloader_pin_memory": accelerated, "use_cpu": not accelerated, **asked}
    if asked.get("fp16") and merged["use_cpu"]:
        raise RecipeError("training.fp16 needs a GPU, and this run trains on a CPU: use bf16, or leave fp16 out.")
    if not {"bf16", "fp16"} & asked.keys():
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
        _check_optimizer(arguments, asked)
        return arguments
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise RecipeError(f"training: {str(error).splitlines()[0]}") from None
