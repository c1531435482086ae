"""The fields of `TrainingArguments`, as tables: defaults, those that are refused or managed, and ranges of numbers.

A field that is in none of the tables works as `transformers` documents it.
"""

from typing import Any, NamedTuple

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

OWN_TYPES: dict[str, Any] = {
    "max_minutes": float,
    "early_stopping_patience": int,
    "early_stopping_threshold": float,
}
"""Arguments of limbeck beside those of `TrainingArguments`, with their types.

`max_minutes` takes the place of `max_steps` and `num_train_epochs`: the number of steps follows from the measured rate.
The others are the arguments of `transformers.EarlyStoppingCallback`, by their own names.
"""

_HUB = "a student is pushed by `limbeck export --push`"
_NO_METRICS = "held-out losses are measured by limbeck's own loop, which keeps no predictions"
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
    "prediction_loss_only": _NO_METRICS,
    "eval_accumulation_steps": _NO_METRICS,
    "eval_do_concat_batches": _NO_METRICS,
    "eval_use_gather_object": _NO_METRICS,
    "include_for_metrics": _NO_METRICS,
    "batch_eval_metrics": _NO_METRICS,
    "hub_token": _HUB,
    "hub_private_repo": _HUB,
    "hub_model_id": _HUB,
    "hub_strategy": _HUB,
    "hub_always_push": _HUB,
    "hub_revision": _HUB,
}
"""Fields that have no meaning in a distillation, with the reason; a recipe may only give their default."""

MANAGED: dict[str, str | None] = {
    "output_dir": "output",
    "logging_dir": "output",
    "seed": "seed",
    "data_seed": "seed",
    "deepspeed": "fsdp",
    "parallelism_config": "fsdp",
    "resume_from_checkpoint": "--resume",
    "disable_tqdm": "--quiet",
    "local_rank": "torchrun",
    # The rows of a batch, and the one division of its loss.
    "remove_unused_columns": None,
    "label_names": None,
    "train_sampling_strategy": None,
    "length_column_name": None,
    "average_tokens_across_devices": None,
    "auto_find_batch_size": None,
    "logging_nan_inf_filter": None,
    "accelerator_config": None,
    # Stages train and evaluate, and one process saves the student.
    "do_train": None,
    "do_eval": None,
    "do_predict": None,
    "push_to_hub": None,
    "save_on_each_node": None,
    # A resumed run ends like one that was never stopped: whole checkpoints, and the rows it would have met.
    "save_only_model": None,
    "ignore_data_skip": None,
    "restore_callback_states_from_checkpoint": None,
    "enable_jit_checkpoint": None,
    # Students are small and the teacher keeps no activations: nothing that is worth recomputing them.
    "gradient_checkpointing": None,
    "gradient_checkpointing_kwargs": None,
    "activation_checkpointing": None,
    "activation_checkpointing_kwargs": None,
}
"""Fields that limbeck decides itself, with the key or option to use instead; None where there is none."""


class Range(NamedTuple):
    """Bounds of a number; `least_allowed` is False where the number has to be greater than `least`."""

    least: float
    most: float
    least_allowed: bool = True


_COUNT = Range(1, 1e12)
_INTERVAL = Range(0, 1e12, least_allowed=False)
_BETA = Range(0, 0.999999)
RANGES: dict[str, Range] = {
    "learning_rate": Range(0, 3.4028234663852886e38, least_allowed=False),  # The largest float32.
    "per_device_train_batch_size": Range(1, 2**20),
    "per_device_eval_batch_size": Range(1, 2**20),
    "gradient_accumulation_steps": Range(1, 1e6),
    "num_train_epochs": Range(0, 1e6, least_allowed=False),
    "max_steps": _COUNT,
    "early_stopping_patience": _COUNT,
    "early_stopping_threshold": Range(0, 1e12),
    "max_minutes": Range(0, 1e6, least_allowed=False),
    "max_grad_norm": Range(0, 1e9),
    "weight_decay": Range(0, 1000),
    "warmup_steps": Range(0, 1e12),
    "adam_beta1": _BETA,
    "adam_beta2": _BETA,
    "adam_epsilon": Range(0, 1),
    "logging_steps": _INTERVAL,
    "eval_steps": _INTERVAL,
    "save_steps": _INTERVAL,
    "save_total_limit": _COUNT,
    "dataloader_num_workers": Range(0, 1024),
    "dataloader_prefetch_factor": Range(1, 1024),
}
"""Bounds beyond which no run makes sense, so that a slip of the keyboard costs no day of training."""

USUAL_NAMES = {
    "lr": "learning_rate",
    "steps": "max_steps",
    "minutes": "max_minutes",
    "warmup": "warmup_steps",
    "batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "scheduler": "lr_scheduler_type",
}
"""Names that other trainers have for a field, for the suggestion in a message.

The search for similar spellings would find another field for them, or none.
"""
