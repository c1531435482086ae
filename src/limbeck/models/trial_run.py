"""Whether the model of a configuration can be built and run, found by a run that takes no memory."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

from limbeck.errors import ModelError, shorten_error
from limbeck.models.families import shape_of
from limbeck.models.heads import Head, model_class
from limbeck.models.quiet import quiet

if TYPE_CHECKING:
    pass

_SHORT_ROW = 8


def check_runs(name: str | Path, config: PreTrainedConfig, head: Head | None = None) -> None:
    """Refuse a configuration whose model cannot be built or run, by a run of one row that takes no memory.

    Costs some 0.1 s for BERT-base, once a configuration and head, behind an import of seconds. A configuration that
    has nothing but other sizes than its family's usual one is known to run, and is not tried.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: Its head, or None.

    Raises:
        ModelError: with what the model stumbles over: an activation that is not there, ids out of range, widths that
            do not divide.
    """
    if not _is_usual(config) and (problem := _problem_of_run(config.to_json_string(use_diff=False), head)):
        raise ModelError(f"The model of '{name}' cannot be run with its configuration: {problem}")


# Families whose usual model runs whatever its sizes are, where heads divide the width; a test tries them.
_RUN_AT_ANY_SIZE = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")

_SIZES = frozenset({
    "attention_dropout", "attention_probs_dropout_prob", "dim", "dropout", "embedding_size", "hidden_dim",
    "hidden_dropout_prob", "hidden_size", "initializer_range", "intermediate_size", "layer_norm_eps",
    "max_position_embeddings", "n_heads", "n_layers", "num_attention_heads", "num_hidden_layers", "pad_token_id",
    "qa_dropout", "seq_classif_dropout", "type_vocab_size", "vocab_size",
})  # fmt: skip

_OF_NO_CONSEQUENCE = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "classifier_dropout", "dtype", "eos_token_id",
    "gradient_checkpointing", "id2label", "label2id", "name_or_path", "output_past", "problem_type",
    "sentence_transformers", "summary_use_proj", "tie_weights_", "transformers_version", "use_cache",
})  # fmt: skip


def _is_usual(config: PreTrainedConfig) -> bool:
    """Whether a configuration differs from its family's usual one in sizes alone, all of which fit together."""
    shape, padding = shape_of(config), config.pad_token_id
    if config.model_type not in _RUN_AT_ANY_SIZE or shape.hidden % shape.heads:
        return False
    if padding is not None and not 0 <= padding < shape.vocabulary:
        return False
    usual, values = type(config)().to_dict(), config.to_dict()
    if values.pop("position_embedding_type", "absolute") != "absolute":
        return False
    other = {key for key in values if key not in usual or values[key] != usual[key]}
    return other <= _SIZES | _OF_NO_CONSEQUENCE


@lru_cache(maxsize=256)
def _problem_of_run(text: str, head: Head | None) -> str | None:
    values = json.loads(text)
    config = CONFIG_MAPPING[values["model_type"]](**values)
    row = torch.zeros((1, min(_SHORT_ROW, shape_of(config).positions or _SHORT_ROW)), dtype=torch.long, device="meta")
    with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings(action="ignore"):
        try:
            model_class(config, head)(config)(input_ids=row)
        except Exception as error:  # Each wrong value has its own kind.
            # A causal mask of GPT-2 asks for numbers, by which time the model is built.
            return None if "on meta tensors" in str(error) else shorten_error(error)
    return None
