"""A model with the head of a task: the checkpoint's where it fits, else a fresh one."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, set_seed

from limbeck.errors import ModelError
from limbeck.evaluation.tasks.task import Task
from limbeck.models.heads import Head, head_class
from limbeck.models.loading import load_config, one_line, quiet, unreachable
from limbeck.models.locating import check_weights, hub_answers, is_local, resolve_model

_HEADS: dict[str, Head] = {
    "classification": "classification",
    "regression": "regression",
    "question_answering": "question_answering",
}


def load_task_model(name: str, task: Task, *, seed: int) -> PreTrainedModel:
    """Load a model for fine-tuning on a task, in float32, on the CPU.

    All random states are seeded first, as a script does that calls `set_seed` and then `from_pretrained`: what the
    checkpoint lacks of the head (and a pooler below it) is drawn from them.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        task: Decides the class of the model and the number of its outputs.
        seed: Of the head.

    Raises:
        ModelError: for a model that cannot be loaded, or whose family has no such head.
    """
    config = task_config(name, task)
    loader = head_class(config, _HEADS[task.kind])
    resolved = resolve_model(name)
    if is_local(resolved):
        check_weights(resolved)
    set_seed(seed)
    with quiet():
        try:
            model, info = loader.from_pretrained(
                resolved,
                config=config,
                dtype="float32",
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # A head of another task; the encoder is checked below.
                local_files_only=not is_local(resolved) and not hub_answers(),
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            if not is_local(resolved):
                raise unreachable(name) from error
            raise ModelError(f"The model in '{name}' cannot be built or read: {one_line(error)}") from error
    _check_encoder(name, model, info)
    return model


def task_config(name: str, task: Task) -> PreTrainedConfig:
    """Return the configuration of a model with a task's outputs.

    Raises:
        ModelError: see `load_config`.
    """
    config = load_config(name)
    if task.kind == "question_answering":
        return config
    config.num_labels = 1 if task.kind == "regression" else len(task.labels)
    config.problem_type = "regression" if task.kind == "regression" else "single_label_classification"
    if task.kind == "classification":
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {label: number for number, label in enumerate(task.labels)}
    return config


def check_padding(name: str, tokenizer: Any) -> None:
    """Refuse a tokenizer without a padding token: rows of several lengths could not share a batch.

    Args:
        name: The model, as the user named it.
        tokenizer: Its tokenizer.

    Raises:
        ModelError: if it has none.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(f"The tokenizer of '{name}' has no padding token; set its pad_token and save it again.")


def take_padding(model: PreTrainedModel, tokenizer: Any) -> None:
    """Let a model know the tokenizer's padding token where its configuration names none.

    Heads of decoders need it to find the last token of each text.

    Args:
        model: Its configuration is changed.
        tokenizer: Has a padding token.
    """
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _check_encoder(name: str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks a part of the encoder, or holds it in another shape."""
    prefix = f"{model.base_model_prefix}."
    lacking = [key for key in sorted(info["missing_keys"]) if key.startswith(prefix) and ".pooler." not in key]
    if lacking:
        raise ModelError(
            f"The weights of '{name}' lack {len(lacking)} tensors of its encoder (first {lacking[0]}); save it whole."
        )
    misfits = [key for key, *_ in sorted(info["mismatched_keys"]) if key.startswith(prefix)]
    if misfits:
        raise ModelError(
            f"The weights of '{name}' do not fit its config.json (first {misfits[0]}); copy the model again."
        )
