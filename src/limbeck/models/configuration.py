"""From a model's `config.json` to its configuration: which keys count, and between which bounds.

`transformers` lets a configuration name the weights that are read, code of the Hub, other configurations and ways of
quantising. Here the file is read once, as numbers and words; nothing that it says leads to another file.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

from limbeck.core.registry import load_plugins
from limbeck.errors import ModelError, nearest, shorten_error, suggestion
from limbeck.models.family_table import Family, families
from limbeck.models.locating import read_json
from limbeck.models.structure import SUCH_AS, unlisted_family

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
"""Floating-point types of weights, by name."""
# Outputs of a task head: `transformers` keeps a name of each in the configuration.
_MOST_LABELS = 100_000
_DEEPEST = 16
_AGAIN = "copy or download it again"

# What leads to other files, other code or another model; refused unless empty, with the reason and the way out.
_REFUSED = {
    "transformers_weights": (
        "which names a file of weights, but limbeck reads model.safetensors or its index: remove the key"
    ),
    "configuration_files": "which names other configurations, but limbeck reads config.json: remove the key",
    "quantization_config": "but quantised weights cannot be trained; give the model as it was before quantisation",
    "compression_config": "but compressed weights cannot be trained; give the model as it was before compression",
    "fusion_config": "which names code that replaces layers; remove the key",
    "distributed_config": "but limbeck decides how a model is spread over devices; remove the key",
    "per_layer_config": "but limbeck reads only models whose layers all have one shape; choose another model",
    "is_decoder": "so it is a decoder, but limbeck distils encoders; choose another model",
    "add_cross_attention": "so it is a decoder with attention to an encoder; choose another model",
    "is_encoder_decoder": f"so it is an encoder with a decoder, but limbeck distils encoders; choose one, {SUCH_AS}",
}
# Of no consequence for the numbers of a model, and limbeck's to decide. `auto_map` names code that is never run.
_IGNORED = {
    "auto_map", "attn_implementation", "experts_implementation", "chunk_size_feed_forward", "name_or_path",
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict",
}  # fmt: skip
# Properties and plain attributes of the class that a file may set.
_SETTABLE = {"num_labels", "rope_scaling", "torch_dtype", "model_type", "sliding_window", "tie_word_embeddings"}
# Far beyond any encoder; with more, making the empty model alone would take all time and memory.
_LAYERS, _WIDTH, _ROWS = 1_000, 1_000_000, 100_000_000
_MOST = {
    "num_labels": _MOST_LABELS,
    "vocab_size": _ROWS,
    "max_position_embeddings": _ROWS,
    "type_vocab_size": _WIDTH,
    "num_key_value_heads": 100_000,
    "head_dim": _WIDTH,
    "num_hidden_groups": _LAYERS,
    "inner_group_num": 12,
    "relative_attention_num_buckets": _WIDTH,
    "max_window_layers": _LAYERS,
}
_MOST_OF_ANY = 10**12
_USUAL_ACTIVATIONS = {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"}


def read_config(name: str | Path, folder: Path) -> PreTrainedConfig:
    """Read `config.json`, without what it says of other files, code, or the values that a call returns.

    Args:
        name: The model, as the user named it.
        folder: The folder of its files.

    Raises:
        ModelError: for a missing or unreadable file, an unknown family, a key that leads elsewhere, or a number that
            no model can have; no object of the size that it asks for is made before.
    """
    try:
        found = read_json(folder / "config.json", {})
    except ModelError as error:
        raise ModelError(f"The config.json of '{name}' cannot be read: {error}") from None
    model_type = found.get("model_type") if isinstance(found, dict) else None
    if isinstance(model_type, str) and model_type not in families:
        load_plugins()  # One may register it with transformers.
    if not isinstance(model_type, str) or (model_type not in families and model_type not in CONFIG_MAPPING):
        near = nearest(model_type, [*families, *CONFIG_MAPPING]) if isinstance(model_type, str) else ""
        known = f" Known: {', '.join(sorted(families))}, and other text encoders of transformers."
        of = f": Unknown model family '{model_type}'." if isinstance(model_type, str) else "."
        if isinstance(found, dict) and found.get("auto_map"):
            of += " It comes with code of its own, which limbeck never runs."
        raise ModelError(f"The config.json of '{name}' has no known model_type{of}{near}{known}")
    kind, owner = CONFIG_MAPPING[model_type], f"The config.json of '{name}'"
    try:
        family = families[model_type] if model_type in families else unlisted_family(model_type)
    except ModelError as error:
        raise ModelError(f"{owner} does not describe an encoder that limbeck supports. {error}") from error
    values = _meant(found, family, kind, owner)
    _check_values(values, owner)
    _check_sizes(values, family, kind if model_type in families else kind(), owner)
    try:
        config: PreTrainedConfig = kind(**values)
    except Exception as error:  # Each wrong value has its own kind.
        raise ModelError(f"{owner} cannot be read: {shorten_error(error)}") from error
    config.name_or_path = str(name)
    return config


def _meant(found: Mapping[str, Any], family: Family, kind: type[PreTrainedConfig], owner: str) -> dict[str, Any]:
    """Return what counts of a file's keys, under the names of the family.

    Raises:
        ModelError: for a key that leads elsewhere, or would replace a part of the class.
    """
    for key, reason in _REFUSED.items():
        if found.get(key) and not (key == "is_decoder" and family.causal):
            raise ModelError(f"{owner} has '{key}' = {str(found[key])[:80]!r}, {reason}.")
    attention = found.get("attn_implementation")
    if isinstance(attention, str) and not attention.replace("_", "").isalnum():
        raise ModelError(
            f"{owner} names '{attention[:80]}' as its attention, which would be code from the Hub; limbeck has its "
            "own: remove attn_implementation."
        )
    settings = {field.name for field in fields(kind)} | _SETTABLE
    values = {}
    for key, value in found.items():
        key = kind.attribute_map.get(key, key)
        if key.startswith("_") or key in _IGNORED or key in _REFUSED:
            continue
        if key not in settings and hasattr(kind, key):
            raise ModelError(f"{owner} has '{key}', which is not a setting but part of the program; remove it.")
        values[key] = value
    dtype = values.get("dtype", values.get("torch_dtype"))
    if dtype is not None and (not isinstance(dtype, str) or dtype not in DTYPES):
        raise ModelError(f"{owner} says dtype = {str(dtype)[:80]!r}; weights are {', '.join(DTYPES)}.")
    return values


def _check_values(values: Mapping[str, Any], owner: str) -> None:
    """Refuse numbers that no setting has: infinite ones, and shares and tolerances out of their range."""
    for key in ("hidden_act", "activation", "activation_function", "hidden_activation"):
        if isinstance(values.get(key), str) and values[key] not in _USUAL_ACTIVATIONS:
            from transformers.activations import ACT2FN  # Takes half a second.

            if values[key] not in ACT2FN:
                raise ModelError(f"{owner} says {key} = '{values[key][:80]}'.{suggestion(values[key], ACT2FN)}")
    # Releases of transformers before 5 had others, which would be left out of the model without a word.
    if values.get("position_embedding_type", "absolute") not in (None, "absolute", "rope", "rotary"):
        raise ModelError(
            f"{owner} says position_embedding_type = {_shorten(values['position_embedding_type'])!r}, which no family "
            "here computes; choose a model with absolute or rotary positions."
        )
    for key, value in _numbers(values, owner):
        shown = f"{owner} says {key} = {_shorten(value)}"
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > _MOST_OF_ANY:
            raise ModelError(f"{shown}, which no model has; {_AGAIN}.")
        if ("dropout" in key or key.endswith("pdrop")) and not 0 <= value < 1:
            raise ModelError(f"{shown}; a share of dropout is at least 0 and below 1.")
        if key.startswith("init") and not 0 < value <= _WIDTH:
            raise ModelError(f"{shown}; the spread of first weights is above 0.")
        if key.endswith(("_eps", "_epsilon")) and not 0 <= value <= 1:
            raise ModelError(f"{shown}; the epsilon of a norm is at least 0, up to 1.")


def _numbers(values: Mapping[str, Any], owner: str) -> Iterator[tuple[str, int | float]]:
    """Iterate over the numbers of a file, with the key that they stand under."""
    waiting = [(key, value, 0) for key, value in values.items()]
    while waiting:
        key, value, deep = waiting.pop()
        if deep > _DEEPEST:
            raise ModelError(f"{owner} is nested deeper than {_DEEPEST} levels at '{key}'; {_AGAIN}.")
        if isinstance(value, dict):
            waiting += [(str(inner), one, deep + 1) for inner, one in value.items()]
        elif isinstance(value, list):
            waiting += [(key, one, deep + 1) for one in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value


def _check_sizes(
    values: Mapping[str, Any], family: Family, kind: type[PreTrainedConfig] | PreTrainedConfig, owner: str
) -> None:
    """Refuse sizes that no model can have, before anything of their size is made; `kind` has the defaults."""
    names = family.fields
    bounds = {names.layers: _LAYERS, names.hidden: _WIDTH, names.heads: 100_000, names.ffn: 10_000_000}
    bounds |= {kind.attribute_map.get(name, name): most for name, most in _MOST.items()}
    if names.embedding is not None:
        bounds[names.embedding] = _WIDTH
    needed = {names.layers, names.hidden, names.heads, "vocab_size"}
    for field, most in bounds.items():
        value = values.get(field, getattr(kind, field, None) if field in needed else None)
        if value is None and field not in needed:  # GPT-2's width may be unset, and so on.
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            if field == "type_vocab_size" and value == 0 and not isinstance(value, bool):
                continue  # RoBERTa-like models without segments.
            raise ModelError(
                f"{owner} says {field} = {_shorten(value)}; a model has a whole number of 1 to {most:,} there: "
                f"{_AGAIN}."
            )
    padding, words = values.get("pad_token_id"), values.get("vocab_size", getattr(kind, "vocab_size", 0))
    rows = values.get("max_position_embeddings", getattr(kind, "max_position_embeddings", words))
    if isinstance(padding, int) and (padding >= words or (family.padded_positions and not 0 <= padding < rows - 1)):
        raise ModelError(
            f"{owner} says pad_token_id = {_shorten(padding)}, of {words} words and {rows} positions: {_AGAIN}."
        )
    for name in ("id2label", "label2id"):
        if isinstance(values.get(name), dict) and len(values[name]) > _MOST_LABELS:
            raise ModelError(
                f"{owner} names {len(values[name]):,} labels in {name}; at most {_MOST_LABELS:,} are read."
            )
    heads, hidden = (values.get(field, getattr(kind, field)) for field in (names.heads, names.hidden))
    if values.get("head_dim", getattr(kind, "head_dim", None)) is None and heads > hidden:
        raise ModelError(f"{owner} has {heads} heads in a width of {hidden}; {_AGAIN}.")


def _shorten(value: Any) -> str:
    """Write a value of a file within 80 characters; Python refuses to write out the longest numbers."""
    text = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "such a long number"
    return text[:80]
