"""From a stage's `training:` to `transformers.TrainingArguments`: defaults, names and types checked."""

import copy
import dataclasses
import math
import multiprocessing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
from accelerate.utils import DynamoBackend
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames, trainer_log_levels

from limbeck.core.machine import bf16_is_fast
from limbeck.errors import RecipeError, shorten_error, suggestion

# What the numbers of a stage's training arguments must lie in.


class _Range(NamedTuple):
    """What an argument must lie in; the least value may itself be excluded."""

    least: float
    most: float
    least_allowed: bool = True


_ANY = _Range(-1e15, 1e15)
_COUNT = _Range(1, 1e12)
_INTERVAL = _Range(0, 1e12, least_allowed=False)
_BETA = _Range(0, 0.999999)
# Beyond these no run makes sense, so that a slip of the keyboard costs no day of training.
_RANGES: dict[str, _Range] = {
    "learning_rate": _Range(0, torch.finfo(torch.float32).max, least_allowed=False),
    "per_device_train_batch_size": _Range(1, 2**20),
    "per_device_eval_batch_size": _Range(1, 2**20),
    "gradient_accumulation_steps": _Range(1, 1e6),
    "num_train_epochs": _Range(0, 1e6, least_allowed=False),
    "max_grad_norm": _Range(0, 1e9),
    "weight_decay": _Range(0, 1000),
    "warmup_steps": _Range(0, 1e12),
    "warmup_ratio": _Range(0, 1),
    "adam_beta1": _BETA,
    "adam_beta2": _BETA,
    "adam_epsilon": _Range(0, 1),
    "logging_steps": _INTERVAL,
    "eval_steps": _INTERVAL,
    "save_steps": _INTERVAL,
    "save_total_limit": _COUNT,
    "dataloader_num_workers": _Range(0, 1024),
    "dataloader_prefetch_factor": _Range(1, 1024),
}


def check_range(name: str, value: Any, place: str) -> None:
    """Refuse numbers that no run can use.

    Args:
        name: Of the argument.
        value: Of its type; what is no number is left alone.
        place: Where it stands, for the message.

    Raises:
        RecipeError: for a number out of its range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "max_steps" and value != -1 and not _COUNT.least <= value <= _COUNT.most:
        raise RecipeError(f"{place} is {value}; give 1 or more, up to {_COUNT.most:,.0f}, or -1 to count in epochs.")
    least, most, allowed = _RANGES.get(name, _ANY)
    if not least <= value <= most or (value == least and not allowed):  # No comparison holds for NaN.
        raise RecipeError(
            f"{place} is {value}; give {'at least' if allowed else 'more than'} {least:g}, up to {most:g}."
        )


# Rate, warm-up, decay and betas are MiniLMv2's (section 4.1); batch and steps are for the user to choose.
DEFAULTS: dict[str, Any] = {
    "learning_rate": 6e-4,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0.01,
    "weight_decay": 0.01,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch_fused",
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 32,
    "num_train_epochs": 1,
    "logging_steps": 10,
    "eval_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_total_limit": 2,
    "report_to": "none",
    # Parameters without a gradient are found and frozen beforehand; no module has buffers that training changes alone.
    "ddp_find_unused_parameters": False,
    "ddp_broadcast_buffers": False,
}

# Every field of TrainingArguments is in one of four lists. Those that work whatever they are:
WORKS = frozenset({
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "num_train_epochs",
    "max_steps", "learning_rate", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon",
    "max_grad_norm", "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "run_name",
    "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "eval_strategy", "eval_steps",
    "eval_delay", "eval_on_start", "save_steps", "save_total_limit", "full_determinism", "use_cpu",
    "torch_empty_cache_steps", "dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory",
    "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_timeout",
})  # fmt: skip

# Those that work under a condition, which `check_training` and `build_arguments` see to.
CHECKED: dict[str, str] = {
    "optim": "its package is installed, and it needs no hooks in the model",
    "optim_args": "the optimizer takes them",
    "lr_scheduler_type": "the schedule can be made",
    "lr_scheduler_kwargs": "the schedule takes them",
    "save_strategy": "no, steps or epoch",
    "report_to": "its package is installed",
    "log_level": "a level of transformers",
    "log_level_replica": "a level of transformers",
    "bf16": "the machine has it",
    "fp16": "a GPU or another accelerator trains",
    "tf32": "the machine has it",
    "torch_compile": "it is asked for by name",
    "torch_compile_backend": "torch_compile is true and PyTorch has the backend",
    "torch_compile_mode": "torch_compile is true and PyTorch has the mode",
    "dataloader_prefetch_factor": "there are workers",
    "dataloader_persistent_workers": "there are workers",
    "dataloader_multiprocessing_context": "there are workers, and the machine starts processes so",
    "ddp_backend": "PyTorch has it",
    "fsdp": "a switch",
    "fsdp_config": "reshard_after_forward",
}

_HUB = "a student is pushed by `limbeck export --push`"
_NO_METRICS = "held-out losses are measured by limbeck's own loop, which keeps no predictions"
# Those that a distillation cannot mean, with the reason; the value that they have anyhow does no harm.
REFUSED: dict[str, str] = {
    "label_smoothing_factor": "losses are those of the method, which has no labels to smooth",
    "neftune_noise_alpha": "noise would reach the student alone, and its teacher reads the text as it is",
    "use_liger_kernel": "its layers keep no streams for the method to read",
    "liger_kernel_config": "its layers keep no streams for the method to read",
    "use_cache": "nothing is generated",
    "optim_target_modules": "it is for optimizers that hook into the layers of one model",
    "include_num_input_tokens_seen": "limbeck counts the tokens itself, in the record and the log",
    "debug": "limbeck guards losses itself; see guard",
    "skip_memory_metrics": "limbeck measures memory itself, in the record",
    "dataloader_in_order": "batches come in the order that a resumed run will meet",
    "bf16_full_eval": "held-out losses are measured as the stage trains",
    "fp16_full_eval": "held-out losses are measured as the stage trains",
    **dict.fromkeys(("prediction_loss_only", "eval_accumulation_steps", "eval_do_concat_batches"), _NO_METRICS),
    **dict.fromkeys(("eval_use_gather_object", "include_for_metrics", "batch_eval_metrics"), _NO_METRICS),
    **dict.fromkeys(("metric_for_best_model", "greater_is_better"), "a student is that of the last step"),
    **dict.fromkeys(("hub_token", "hub_private_repo", "hub_model_id", "hub_strategy"), _HUB),
    **dict.fromkeys(("hub_always_push", "hub_revision"), _HUB),
}

# Those that limbeck decides itself, with the key of the recipe that asks for it.
MANAGED: dict[str, str | None] = {
    **dict.fromkeys(("output_dir", "logging_dir"), "output"),
    **dict.fromkeys(("seed", "data_seed"), "seed"),
    **dict.fromkeys(("deepspeed", "parallelism_config"), "fsdp"),
    "resume_from_checkpoint": "--resume",
    "disable_tqdm": "--quiet",
    "local_rank": "torchrun",
    # The rows of a batch, and the one division of its loss.
    **dict.fromkeys(("remove_unused_columns", "label_names", "train_sampling_strategy", "length_column_name")),
    **dict.fromkeys(("average_tokens_across_devices", "auto_find_batch_size", "logging_nan_inf_filter")),
    "accelerator_config": None,
    # Stages train and evaluate, and one process saves the student of the last step.
    **dict.fromkeys(("do_train", "do_eval", "do_predict")),
    **dict.fromkeys(("push_to_hub", "load_best_model_at_end", "save_on_each_node")),
    # A resumed run ends like one that was never stopped: whole checkpoints, and the rows it would have met.
    **dict.fromkeys(("save_only_model", "ignore_data_skip")),
    **dict.fromkeys(("restore_callback_states_from_checkpoint", "enable_jit_checkpoint")),
    # Students are small and the teacher keeps no activations: nothing that is worth recomputing them.
    **dict.fromkeys(("gradient_checkpointing", "gradient_checkpointing_kwargs")),
    **dict.fromkeys(("activation_checkpointing", "activation_checkpointing_kwargs")),
}

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
    checked: dict[str, Any] = {}
    for name, value in training.items():
        if name in MANAGED:
            instead = f"; use {MANAGED[name]} instead" if MANAGED[name] else ""
            raise RecipeError(f"{place}.{name} is managed by limbeck{instead}: leave it out.")
        if name not in types:
            near = suggestion(name, types).split(" Known:")[0]
            raise RecipeError(f"{place}: transformers.TrainingArguments has no '{name}'.{near}")
        if name not in WORKS and name not in CHECKED and name not in REFUSED:
            raise RecipeError(
                f"{place}.{name} is new in this transformers, and limbeck does not know it: leave it out."
            )
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
            f"{place}.fsdp_config has '{unknown[0]}', and takes {', '.join(sorted(_FSDP_SETTINGS))} only: the student "
            "is sharded as one piece, by FSDP2."
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
        known = modes if name.endswith("mode") else [backend.value.lower() for backend in DynamoBackend]
        if value not in known:
            raise RecipeError(f"{place}.{name} is '{value}'.{suggestion(value, known)}")


def _check_optimizer(arguments: TrainingArguments, given: Mapping[str, Any]) -> None:
    """Refuse an optimizer or a schedule that cannot be made or used, by some steps of them for one number."""
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
        raise RecipeError(f"training.optim_args is {pairs!r}: give NAME=VALUE, several by commas, or leave it out.")
    try:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
        if given.get("optim_args"):
            plain = copy.copy(arguments)
            plain.optim_args = None
            if Trainer.get_optimizer_cls_and_kwargs(plain)[1] == options:
                raise RecipeError(f"training.optim_args is not for '{name}', which takes none of it: leave it out.")
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
            raise ValueError("its learning rate is no finite number")
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise RecipeError(
            f"training.lr_scheduler_type '{arguments.lr_scheduler_type.value}' cannot be made: {shorten_error(error)}; "
            "give lr_scheduler_kwargs that it takes."
        ) from None


def _check_loggers(report_to: Any, place: str) -> None:
    """Refuse a logger whose package is missing before any time is spent."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    available = get_available_reporting_integrations()
    if len(names) > 1 and (alone := {"none", "all"} & set(names)):
        raise RecipeError(f"{place} has '{min(alone)}' beside others: give it alone, or the names of loggers.")
    for name in names:
        if name not in ("none", "all") and name not in available:
            extra = "'limbeck[tensorboard]'" if name == "tensorboard" else f"the package of '{name}'"
            raise RecipeError(f"{place}: '{name}' is not installed; pip install {extra}, or leave report_to out.")


def _convert(kind: Any, value: Any, place: str) -> Any:
    if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
        raise RecipeError(f"{place} is {str(value).lower()}, which means nothing here: give a value.")
    try:
        adapter = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_python(value)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError):
        return value  # A type that pydantic cannot express is checked by TrainingArguments itself.
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise RecipeError(f"{place}: {problem} (got {str(value)[:80]!r}).") from None


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
    accelerated = torch.accelerator.is_available()
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
