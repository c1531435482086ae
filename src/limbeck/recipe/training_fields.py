"""The fields of `TrainingArguments`: their defaults and ranges, which limbeck has, and why it has not the others."""

import math
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.mistakes import show_value
from limbeck.errors import RecipeError, nearest, together

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
    "learning_rate": _Range(0, 3.4028234663852886e38, least_allowed=False),
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
    "optim_args": "the optimizer takes them; of AdamW moments=bfloat16",
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

ROUNDED = ("adamw_torch_fused", "adamw_torch")
"""Optimizers that have their moments in bfloat16 if they are asked to."""

_HUB = "a student is pushed by `limbeck export --push`"
_NO_METRICS = "held-out losses are measured by limbeck's own loop, which keeps no predictions"
# Those that a distillation cannot mean, with the reason; the value that they have anyhow does no harm.
REFUSED: dict[str, str] = {
    "label_smoothing_factor": "the losses are the method's, which has no labels to smooth",
    "neftune_noise_alpha": "noise would reach only the student, while its teacher reads the text as it is",
    "use_liger_kernel": "its layers keep no streams for the method to read",
    "liger_kernel_config": "its layers keep no streams for the method to read",
    "use_cache": "nothing is generated",
    "optim_target_modules": "it is for optimizers that hook into the layers of one model",
    "include_num_input_tokens_seen": "limbeck counts the tokens itself, in the record and the log",
    "debug": "limbeck guards losses itself; see guard",
    "skip_memory_metrics": "limbeck measures memory itself, in the record",
    "dataloader_in_order": "batches come in the order that a resumed run will see",
    "bf16_full_eval": "held-out losses are measured as the stage trains",
    "fp16_full_eval": "held-out losses are measured as the stage trains",
    **dict.fromkeys(("prediction_loss_only", "eval_accumulation_steps", "eval_do_concat_batches"), _NO_METRICS),
    **dict.fromkeys(("eval_use_gather_object", "include_for_metrics", "batch_eval_metrics"), _NO_METRICS),
    **dict.fromkeys(("metric_for_best_model", "greater_is_better"), "the student is always that of the last step"),
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

_MEANT = {
    "lr": "learning_rate",
    "steps": "max_steps",
    "warmup": "warmup_steps",
    "batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "scheduler": "lr_scheduler_type",
}
"""Usual names of other trainers, whose spelling leads to another field or to none."""

_WANTED = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text"}
"""What to give for an argument of a plain type."""
_SWITCHES = frozenset({"fsdp"})
"""Arguments that are switches by now, annotated as the text that they were."""


def check_fields(training: Mapping[str, Any], place: str) -> None:
    """Refuse what of a stage's training arguments is a mistake whatever the machine, without importing transformers.

    Args:
        training: What the recipe says.
        place: Where it says so, for the message.

    Raises:
        RecipeError: for an argument that limbeck manages, a name that no argument has, and a value of another type or
            out of its range; one with the `mistakes`, where they are several.
    """
    found = []
    checks = [partial(_check_field, name, value, place) for name, value in training.items()]
    for check in (*checks, partial(_check_moments, training, place)):
        try:
            check()
        except RecipeError as error:
            found.append(error)
    if found:
        raise together(found)


def _check_field(name: str, value: Any, place: str) -> None:
    known = {*WORKS, *CHECKED, *REFUSED}
    if name in MANAGED:
        instead = MANAGED[name]
        said = "not supported" if instead == "fsdp" else "managed by limbeck"
        raise RecipeError(f"{place}.{name} is {said}; {f'use {instead}' if instead else 'leave it out'}.")
    if name not in known:
        if name not in _annotations():
            near = f" Did you mean '{_MEANT[name]}'?" if name in _MEANT else nearest(name, sorted(known))
            raise RecipeError(f"{place}: transformers.TrainingArguments has no '{name}'.{near}")
        raise RecipeError(
            f"{place}.{name} is new in this version of transformers, and limbeck does not know it: leave it out."
        )
    _check_type(name, value, f"{place}.{name}")
    check_range(name, value, f"{place}.{name}")


def keeps_bfloat16_moments(optim_args: object) -> bool:
    """Whether arguments of an optimizer ask for moments in bfloat16; the names of its arguments are `NAME=VALUE`."""
    return _moments(optim_args) == "bfloat16"


def _moments(optim_args: object) -> str | None:
    pairs = optim_args.replace(" ", "").split(",") if isinstance(optim_args, str) else []
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair).get("moments")


def _check_moments(training: Mapping[str, Any], place: str) -> None:
    """Refuse another format of moments, and what bfloat16 does not go with."""
    given = training.get("optim_args")
    moments = _moments(given)
    if moments is None:
        return
    if moments != "bfloat16":
        raise RecipeError(
            f"{place}.optim_args: moments is '{moments}'; give moments=bfloat16, or leave it out for float32."
        )
    optimizer = training.get("optim", DEFAULTS["optim"])
    optimizer = getattr(optimizer, "value", optimizer)
    if optimizer not in ROUNDED:
        raise RecipeError(
            f"{place}.optim_args: moments=bfloat16 is for {' and '.join(ROUNDED)}, not for '{optimizer}': leave it out."
        )
    if "," in str(given):
        raise RecipeError(f"{place}.optim_args is '{given}', but '{optimizer}' takes moments=bfloat16 alone.")
    if str(training.get("fsdp") or "false").lower() != "false":
        raise RecipeError(f"{place}.optim_args: moments=bfloat16 cannot be sharded by fsdp: leave one out.")


_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0"})
"""Words that pydantic takes for truth values, in any case."""


def _check_type(name: str, value: Any, place: str) -> None:
    """Refuse what cannot be turned into the one plain type of an argument; those of several types are left alone."""
    kind, *others = re.split(r" \| ", _annotations().get(name, ""))
    if kind not in _WANTED or set(others) - {"None"} or name in _SWITCHES or (value is None and others):
        return
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    fits = {
        "float": number is not None,
        "int": number is not None and (math.isinf(number) or number.is_integer()),
        "bool": isinstance(value, bool) or str(value).lower() in _TRUTHS,
        "str": isinstance(value, str),
    }
    if not fits[kind]:
        raise RecipeError(f"{place} is {show_value(value)}; give {_WANTED[kind]}, or leave it out.")


@cache
def _annotations() -> dict[str, str]:
    """Read the types of the arguments from the source of transformers: importing it takes a second."""
    found = find_spec("transformers")
    if found is None or found.origin is None:
        return {}
    source = Path(found.origin).with_name("training_args.py").read_text(encoding="utf-8")
    return dict(re.findall(r"^    (\w+): (.+?) = field\(", source, re.MULTILINE))
