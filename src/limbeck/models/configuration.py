"""From a model's `config.json` to its configuration: which keys count, and between which bounds.

`transformers` lets a configuration name the weights that are read, code on the Hub, other configurations and ways of
quantising. Here the file is read once, as numbers and words, and no value of it leads to another file. The *family* of
a model is its architecture, such as BERT; see `family_table.py`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

from limbeck.core.plugins import load_plugins
from limbeck.errors import ModelError, nearest, shorten_error, suggestion
from limbeck.models.family_table import Family, families
from limbeck.models.folder_files import read_json
from limbeck.models.structure import SUCH_AS, unlisted_family

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
"""Floating-point types of weights, by name."""
# Most outputs of a task head: `transformers` keeps a name of each in the configuration.
_MOST_LABELS = 100_000
# Most levels of nested objects and lists.
_DEEPEST = 16
_AGAIN = "copy or download the model again"
# Characters of a value of the file that a message shows.
_SHOWN = 80

# Keys that lead to other files, other code or a model that is no encoder, with the end of the error: the reason and the
# way out. A file may have them if their value is empty.
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
# Keys that do not change the numbers of a model, or that limbeck decides. `auto_map` names code that is never run.
_IGNORED = {
    "auto_map", "attn_implementation", "experts_implementation", "chunk_size_feed_forward", "name_or_path",
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict",
}  # fmt: skip
# Keys that a file may set though they are properties or plain attributes of the configuration's class, not its fields.
_SETTABLE = {"num_labels", "rope_scaling", "torch_dtype", "model_type", "sliding_window", "tie_word_embeddings"}
# Largest sizes, far beyond any encoder; with larger ones even an empty model would take all time and memory.
_LAYERS = 1_000
_WIDTH = 1_000_000
_FFN_WIDTH = 10_000_000
_HEADS = 100_000
_ROWS = 100_000_000
# The largest value of each setting, by the name that most families have for it.
_MOST = {
    "num_labels": _MOST_LABELS,
    "vocab_size": _ROWS,
    "max_position_embeddings": _ROWS,
    "type_vocab_size": _WIDTH,
    "num_key_value_heads": _HEADS,
    "head_dim": _WIDTH,
    "num_hidden_groups": _LAYERS,
    "inner_group_num": 12,
    "relative_attention_num_buckets": _WIDTH,
    "max_window_layers": _LAYERS,
}
# The largest whole number anywhere in a file.
_MOST_OF_ANY = 10**12
_ACTIVATION_KEYS = ("hidden_act", "activation", "activation_function", "hidden_activation")
# Activations that are known without transformers' table, whose import takes half a second.
_USUAL_ACTIVATIONS = {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"}


def read_config(name: str | Path, folder: Path) -> PreTrainedConfig:
    """Read a model's configuration from its `config.json`.

    Keys that name other files or code, or that decide what a call returns, are refused or left out. Sizes are checked
    before any object of that size is made.

    Args:
        name: The model, as the user named it.
        folder: The folder of its files.

    Raises:
        ModelError: for a missing or unreadable file, an unknown family, a refused key, or a number that no model can
            have.
    """
    try:
        content = read_json(folder / "config.json", {})
    except ModelError as error:
        raise ModelError(f"The config.json of '{name}' cannot be read: {error}") from None
    owner = f"The config.json of '{name}'"
    model_type = _read_model_type(content, owner)
    config_class = CONFIG_MAPPING[model_type]
    try:
        family = families[model_type] if model_type in families else unlisted_family(model_type)
    except ModelError as error:
        raise ModelError(f"{owner} does not describe an encoder that limbeck supports. {error}") from error

    values = _select_settings(content, family, config_class, owner)
    _check_values(values, owner)
    # Sizes that the file leaves out have the class's defaults. A family outside of the table may set these only in the
    # constructor of its class, so an object of it is made.
    defaults = config_class if model_type in families else config_class()
    _check_sizes(values, family, defaults, owner)
    try:
        config: PreTrainedConfig = config_class(**values)
    except Exception as error:  # The class of the error depends on the value that is wrong.
        raise ModelError(f"{owner} cannot be read: {shorten_error(error)}") from error
    config.name_or_path = str(name)
    return config


def _read_model_type(content: Mapping[str, Any], owner: str) -> str:
    """Return a file's `model_type`.

    Raises:
        ModelError: for a missing one, or one that neither the table of families nor transformers has.
    """
    model_type = content.get("model_type")
    if isinstance(model_type, str):
        if model_type not in families:
            load_plugins()  # A plugin may register it with transformers.
        if model_type in families or model_type in CONFIG_MAPPING:
            return model_type

    problem = "."
    near = ""
    if isinstance(model_type, str):
        problem = f": Unknown model family '{model_type}'."
        near = nearest(model_type, [*families, *CONFIG_MAPPING])
    if content.get("auto_map"):
        problem += " It comes with code of its own, which limbeck never runs."
    known = f" Known: {', '.join(sorted(families))}, and other text encoders of transformers."
    raise ModelError(f"{owner} has no known model_type{problem}{near}{known}")


def _select_settings(
    content: Mapping[str, Any], family: Family, config_class: type[PreTrainedConfig], owner: str
) -> dict[str, Any]:
    """Return the settings of the model in a file, each by the family's own name of it.

    Args:
        content: The content of the file.
        family: The family.
        config_class: The family's configuration.
        owner: The file, for messages.

    Raises:
        ModelError: for a key that names other files or code, one that would replace a part of the class, or a dtype
            that weights do not have.
    """
    # After this, keys of `_REFUSED` have empty values.
    _refuse_other_files(content, family, owner)
    settings = {field.name for field in fields(config_class)} | _SETTABLE
    values = {}
    for written_key, value in content.items():
        # A file may use the standard name of a setting for which the family has a name of its own.
        key = config_class.attribute_map.get(written_key, written_key)
        if key.startswith("_") or key in _IGNORED or key in _REFUSED:
            continue
        # Any other attribute of the class is a method or a fact of the class. A key that the class does not have is
        # harmless.
        if key not in settings and hasattr(config_class, key):
            raise ModelError(
                f"{owner} has the key '{key}', which is not a setting but part of the program; remove this key."
            )
        values[key] = value

    dtype = values.get("dtype", values.get("torch_dtype"))
    if dtype is not None and (not isinstance(dtype, str) or dtype not in DTYPES):
        raise ModelError(
            f"{owner} says dtype = {str(dtype)[:_SHOWN]!r}, but limbeck loads weights only as {', '.join(DTYPES)}; "
            "change dtype there."
        )
    return values


def _refuse_other_files(content: Mapping[str, Any], family: Family, owner: str) -> None:
    """Refuse keys that lead to other files, to code, or to a model that is no encoder."""
    for key, reason in _REFUSED.items():
        if key == "is_decoder" and family.causal:
            continue
        if content.get(key):
            raise ModelError(f"{owner} has '{key}' = {str(content[key])[:_SHOWN]!r}, {reason}.")
    attention = content.get("attn_implementation")
    if isinstance(attention, str) and not attention.replace("_", "").isalnum():
        raise ModelError(
            f"{owner} names '{attention[:_SHOWN]}' as its attention, which would run code from the Hub; limbeck "
            "never does: remove attn_implementation."
        )


def _check_values(values: Mapping[str, Any], owner: str) -> None:
    """Refuse unknown activations and kinds of positions, and numbers that are infinite or out of a setting's range."""
    for key in _ACTIVATION_KEYS:
        activation = values.get(key)
        if isinstance(activation, str) and activation not in _USUAL_ACTIVATIONS:
            from transformers.activations import ACT2FN  # Takes half a second.

            if activation not in ACT2FN:
                raise ModelError(f"{owner} says {key} = '{activation[:_SHOWN]}'.{suggestion(activation, ACT2FN)}")
    # Releases of transformers before 5 computed further kinds of positions. Today's would ignore them without a word.
    if values.get("position_embedding_type", "absolute") not in (None, "absolute", "rope", "rotary"):
        raise ModelError(
            f"{owner} says position_embedding_type = {_shorten(values['position_embedding_type'])!r}, which "
            "limbeck does not support; choose a model with absolute or rotary positions."
        )
    for key, value in _numbers(values, owner):
        _check_number(key, value, owner)


def _check_number(key: str, value: int | float, owner: str) -> None:
    """Refuse a number out of the range that its key's name implies."""
    shown = f"{owner} says {key} = {_shorten(value)}"
    is_endless = isinstance(value, float) and not math.isfinite(value)
    is_too_large = isinstance(value, int) and abs(value) > _MOST_OF_ANY
    if is_endless or is_too_large:
        raise ModelError(f"{shown}, a number that no model has; {_AGAIN}.")
    is_dropout = "dropout" in key or key.endswith("pdrop")
    if is_dropout and not 0 <= value < 1:
        raise ModelError(f"{shown}, but dropout is a share: at least 0 and below 1. Correct the number there.")
    if key.startswith("init") and not 0 < value <= _WIDTH:
        raise ModelError(
            f"{shown}, but the spread of the initial weights must be above 0, up to {_WIDTH}; correct the number there."
        )
    if key.endswith(("_eps", "_epsilon")) and not 0 <= value <= 1:
        raise ModelError(f"{shown}, but the epsilon of a norm must be from 0 to 1; correct the number there.")


def _numbers(values: Mapping[str, Any], owner: str) -> Iterator[tuple[str, int | float]]:
    """Iterate over the numbers of a file, each behind the key that it stands under.

    A stack replaces recursion, so that a deeply nested file ends in our own error.
    """
    waiting = [(key, value, 0) for key, value in values.items()]
    while waiting:
        key, value, level = waiting.pop()
        if level > _DEEPEST:
            raise ModelError(f"{owner} is nested deeper than {_DEEPEST} levels at '{key}'; {_AGAIN}.")
        if isinstance(value, dict):
            for inner_key, inner_value in value.items():
                waiting.append((str(inner_key), inner_value, level + 1))
        elif isinstance(value, list):
            waiting += [(key, item, level + 1) for item in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value


def _check_sizes(
    values: Mapping[str, Any], family: Family, defaults: type[PreTrainedConfig] | PreTrainedConfig, owner: str
) -> None:
    """Refuse sizes that no model can have, before anything of their size is made.

    Args:
        values: The settings of the file.
        family: The family, which names its sizes.
        defaults: The class of the configuration or an object of it, with the sizes that the file leaves out.
        owner: The file, for messages.
    """
    names = family.fields
    # The largest value of each field.
    bounds = {names.layers: _LAYERS, names.hidden: _WIDTH, names.heads: _HEADS, names.ffn: _FFN_WIDTH}
    for name, most in _MOST.items():
        # The family may have a name of its own for this setting.
        bounds[defaults.attribute_map.get(name, name)] = most
    if names.embedding is not None:
        bounds[names.embedding] = _WIDTH

    # Every model has these sizes, so that one which the file leaves out is checked by its default.
    needed = {names.layers, names.hidden, names.heads, "vocab_size"}
    for field, most in bounds.items():
        if field in needed:
            _check_size(field, values.get(field, getattr(defaults, field, None)), most, owner)
        elif values.get(field) is not None:
            # Other sizes may be unset, as GPT-2's feed-forward width.
            _check_size(field, values[field], most, owner)

    _check_padding(values, family, defaults, owner)
    _check_label_names(values, owner)
    heads = values.get(names.heads, getattr(defaults, names.heads))
    hidden = values.get(names.hidden, getattr(defaults, names.hidden))
    head_size = values.get("head_dim", getattr(defaults, "head_dim", None))
    # Without a size of its own, a head has an equal part of the hidden width.
    if head_size is None and heads > hidden:
        raise ModelError(f"{owner} has {heads} heads, more than its hidden width of {hidden} can hold; {_AGAIN}.")


def _check_label_names(values: Mapping[str, Any], owner: str) -> None:
    """Refuse more names of labels than a task head may have outputs."""
    for name in ("id2label", "label2id"):
        labels = values.get(name)
        if isinstance(labels, dict) and len(labels) > _MOST_LABELS:
            raise ModelError(
                f"{owner} names {len(labels):,} labels in {name}, but limbeck reads at most {_MOST_LABELS:,}; "
                "choose another model."
            )


def _check_size(field: str, value: Any, most: int, owner: str) -> None:
    """Refuse the value of a field that is not a whole number from 1 to `most`."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and 1 <= value <= most:
        return
    if is_whole and value == 0 and field == "type_vocab_size":
        return  # RoBERTa-like models have no segments.
    raise ModelError(
        f"{owner} says {field} = {_shorten(value)}, but it must be a whole number from 1 to {most:,}; {_AGAIN}."
    )


def _check_padding(
    values: Mapping[str, Any], family: Family, defaults: type[PreTrainedConfig] | PreTrainedConfig, owner: str
) -> None:
    """Refuse a padding token without a row in the table of words or, in some families, in that of positions."""
    padding = values.get("pad_token_id")
    if not isinstance(padding, int):
        return
    words = values.get("vocab_size", getattr(defaults, "vocab_size", 0))
    positions = values.get("max_position_embeddings", getattr(defaults, "max_position_embeddings", words))
    fits = padding < words
    if fits and family.padded_positions:
        # In these families positions are counted from the number after the padding token's, and there is at least one.
        fits = 0 <= padding < positions - 1
    if not fits:
        raise ModelError(
            f"{owner} says pad_token_id = {_shorten(padding)}, which does not fit its {words} tokens and "
            f"{positions} positions; {_AGAIN}."
        )


def _shorten(value: Any) -> str:
    """Write a value of a file within 80 characters; Python refuses to write out the longest numbers."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "such a long number"
    return str(value)[:_SHOWN]
