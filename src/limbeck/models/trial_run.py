"""A check whether the model of a configuration can be built and run, by a run that takes no memory."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

from limbeck.errors import ModelError, shorten_error
from limbeck.models.families import shape_of
from limbeck.models.heads import Head, model_class
from limbeck.models.quiet import quiet

_SHORT_ROW = 8
"""Tokens of the row of a run."""


def check_runs(name: str | Path, config: PreTrainedConfig, head: Head | None = None) -> None:
    """Refuse a configuration whose model cannot be built or run, by a run of one row that takes no memory.

    It takes about 0.1 s for BERT-base, once for a configuration and head, after an import of seconds. A configuration
    that differs from its family's usual one only in sizes is known to run, and is not tried.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: Its head, or None.

    Raises:
        ModelError: with the error of the run, such as an unknown activation, ids out of range, or widths that do not
            divide.
    """
    if _is_usual(config):
        return
    problem = _problem_of_run(config.to_json_string(use_diff=False), head)
    if problem is not None:
        raise ModelError(f"The model of '{name}' cannot be run with its configuration: {problem}")


# Families whose usual model runs at any sizes, if its heads divide the width. A test tries them.
_RUN_AT_ANY_SIZE = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")

_SIZES = frozenset({
    "attention_dropout", "attention_probs_dropout_prob", "dim", "dropout", "embedding_size", "hidden_dim",
    "hidden_dropout_prob", "hidden_size", "initializer_range", "intermediate_size", "layer_norm_eps",
    "max_position_embeddings", "n_heads", "n_layers", "num_attention_heads", "num_hidden_layers", "pad_token_id",
    "qa_dropout", "seq_classif_dropout", "type_vocab_size", "vocab_size",
})  # fmt: skip
"""Fields that change sizes alone, in any of these families."""

_HARMLESS = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "classifier_dropout", "dtype", "eos_token_id",
    "gradient_checkpointing", "id2label", "label2id", "name_or_path", "output_past", "problem_type",
    "sentence_transformers", "summary_use_proj", "tie_weights_", "transformers_version", "use_cache",
})  # fmt: skip
"""Fields that do not change whether a model runs."""


def _is_usual(config: PreTrainedConfig) -> bool:
    """Whether a model of a configuration is known to run, so that no trial is needed.

    It is known if only sizes, and fields that do not matter, differ from the family's default configuration, and if
    the sizes fit together.
    """
    shape = shape_of(config)
    do_heads_fit = shape.hidden % shape.heads == 0
    if config.model_type not in _RUN_AT_ANY_SIZE or not do_heads_fit:
        return False
    padding_id = config.pad_token_id
    if padding_id is not None and not 0 <= padding_id < shape.vocabulary:
        return False
    values = config.to_dict()
    # Older files name the usual kind of positions, which newer configurations do not have as a field.
    if values.pop("position_embedding_type", "absolute") != "absolute":
        return False
    usual_values = type(config)().to_dict()
    changed_fields = {key for key in values if key not in usual_values or values[key] != usual_values[key]}
    return changed_fields <= (_SIZES | _HARMLESS)


@lru_cache(maxsize=256)
def _problem_of_run(config_json: str, head: Head | None) -> str | None:
    """Run the model of a configuration, and return its error in a line; None for a model that runs.

    Args:
        config_json: The configuration, as text, which the cache can compare.
        head: Its head, or None.
    """
    values = json.loads(config_json)
    config = CONFIG_MAPPING[values["model_type"]](**values)
    length = min(_SHORT_ROW, shape_of(config).positions or _SHORT_ROW)
    # On the device "meta" tensors have no memory.
    row = torch.zeros((1, length), dtype=torch.long, device="meta")
    with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings(action="ignore"):
        try:
            model = model_class(config, head)(config)
            model(input_ids=row)
        except Exception as error:  # Each wrong value raises another class.
            # The error of a tensor on "meta" whose numbers are read, as by GPT-2's causal mask. By then the model is
            # built, which is enough.
            if "on meta tensors" in str(error):
                return None
            return shorten_error(error)
    return None
