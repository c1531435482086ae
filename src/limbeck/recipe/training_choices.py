"""Arguments of a training that contradict each other, or name something that does not exist here.

Each check takes the arguments of `transformers.TrainingArguments` and their place in the recipe, for messages.
"""

import multiprocessing
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames, trainer_log_levels

from limbeck.errors import RecipeError, suggestion

_NEED_WORKERS = (
    "dataloader_prefetch_factor",
    "dataloader_persistent_workers",
    "dataloader_multiprocessing_context",
)
"""Arguments that have no effect without worker processes, `dataloader_num_workers`."""
_NEED_BEST_STEP = (
    "metric_for_best_model",
    "greater_is_better",
    "early_stopping_patience",
    "early_stopping_threshold",
)
"""Arguments that are about the best step, which `load_best_model_at_end` asks for."""
_COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of `torch.compile`."""
_FSDP_SETTINGS = {"reshard_after_forward"}
"""Settings of FSDP that a recipe may give. The student is sharded as one unit and not layer by layer, since terms read
tensors inside its layers, which the wrapper of a layer would not gather."""

SHARDING_WORDS = {"": False, "full_shard": True, "true": True, "false": False}
"""Texts that older versions of `transformers` take for `fsdp`, which is true or false by now."""


def _check_loggers(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse a logger whose package is missing before any time is spent."""
    report_to = arguments.get("report_to") or []
    names = [report_to] if isinstance(report_to, str) else list(report_to)
    words = {"none", "all"} & set(names)
    if words and len(names) > 1:
        raise RecipeError(
            f"{place}.report_to has '{min(words)}' beside names of loggers: give either '{min(words)}' alone or "
            "only names of loggers."
        )
    if words or not names:
        return

    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in names:
        if name not in available:
            package = "'limbeck[tensorboard]'" if name == "tensorboard" else f"the package of '{name}'"
            raise RecipeError(
                f"{place}.report_to: '{name}' is not installed; install it with pip install {package}, or leave "
                "report_to out."
            )


def _check_choices(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse unknown names of optimizers, schedules and so on, which would otherwise fail only as the stage begins."""
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
        if value is None:
            continue
        word = _word_of(value)
        if word not in known:
            raise RecipeError(f"{place}.{name} is '{word}'.{suggestion(word, known)}")


def _check_workers(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse options of data loader workers where there are no workers."""
    for name in _NEED_WORKERS:
        if arguments.get(name) and not arguments.get("dataloader_num_workers"):
            raise RecipeError(
                f"{place}.{name} applies only to worker processes; give dataloader_num_workers too, or leave it out."
            )


def _check_compiler(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse options of the compiler without `torch_compile`, and values that it does not know."""
    for name in ("torch_compile_backend", "torch_compile_mode"):
        value = arguments.get(name)
        if value is None:
            continue
        if not arguments.get("torch_compile"):
            raise RecipeError(
                f"{place}.{name} applies only to torch_compile; set torch_compile: true, or leave it out."
            )
        known: Iterable[str] = _COMPILE_MODES
        if name == "torch_compile_backend":
            from accelerate.utils import DynamoBackend

            known = [backend.value.lower() for backend in DynamoBackend]
        if value not in known:
            raise RecipeError(f"{place}.{name} is '{value}'.{suggestion(value, known)}")


def _check_sharding(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse a text for `fsdp` that means neither true nor false, and settings that the student cannot have."""
    fsdp = arguments.get("fsdp")
    if isinstance(fsdp, str) and fsdp.lower() not in SHARDING_WORDS:
        raise RecipeError(f"{place}.fsdp is '{fsdp}'; give true or false.")
    settings = arguments.get("fsdp_config") or {}
    # `transformers` takes the path of a file in place of the settings too.
    unknown = ["a file"]
    if isinstance(settings, dict):
        unknown = sorted(set(settings) - _FSDP_SETTINGS)
    if unknown:
        raise RecipeError(
            f"{place}.fsdp_config has '{unknown[0]}', but takes only {', '.join(sorted(_FSDP_SETTINGS))}, because "
            f"the student is sharded as one piece, by FSDP2; leave '{unknown[0]}' out."
        )


def _check_minutes(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse minutes beside another amount of training."""
    if "max_minutes" not in arguments:
        return
    for name in ("max_steps", "num_train_epochs"):
        # As in transformers, -1 steps mean that nothing is said.
        if arguments.get(name, -1) != -1:
            raise RecipeError(
                f"{place}.max_minutes and {place}.{name} both say how long to train; leave one of the two out. On "
                "the command line, --minutes replaces steps and epochs."
            )


def _check_best_step(arguments: Mapping[str, Any], place: str) -> None:
    """Refuse `load_best_model_at_end` where it cannot work, and the options that belong to it where it is off.

    With it the student gets the weights of the step with the best measurement, which needs measurements and a student
    that is not sharded.
    """
    if arguments.get("load_best_model_at_end"):
        if arguments.get("fsdp"):
            raise RecipeError(f"{place}.load_best_model_at_end does not work with fsdp; leave one of the two out.")
        if _word_of(arguments.get("eval_strategy")) == "no":
            raise RecipeError(f"{place}.load_best_model_at_end needs measurements; leave eval_strategy: no out.")
        return
    allowed: set[str] = set()
    if _word_of(arguments.get("lr_scheduler_type")) == "reduce_lr_on_plateau":
        # This schedule lowers the learning rate by the metric, whether or not the best step is kept.
        allowed = {"metric_for_best_model", "greater_is_better"}
    for name in sorted(_NEED_BEST_STEP):
        if name not in allowed and arguments.get(name) is not None:
            raise RecipeError(
                f"{place}.{name} has an effect only with load_best_model_at_end, which keeps the best student; set "
                "load_best_model_at_end: true, or leave it out."
            )


def _word_of(value: Any) -> str:
    """Return the name of a choice, which may be given as a member of an enumeration."""
    return str(getattr(value, "value", value))


CHECKS = (
    _check_minutes,
    _check_best_step,
    _check_loggers,
    _check_choices,
    _check_workers,
    _check_compiler,
    _check_sharding,
)
"""Each takes the arguments and their place in the recipe, and raises a `RecipeError`."""
