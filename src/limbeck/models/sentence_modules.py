"""Reading the configurations of the modules of sentence-transformers: Transformer, pooling and those behind it.

A setting that limbeck cannot apply is refused, since the vectors would be different without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.errors import ModelError, suggestion
from limbeck.models.folder_files import MODULES, read_json
from limbeck.models.sentence_files import TRANSFORMER_CONFIG
from limbeck.models.sentences import POOLINGS, SentenceModule

_MOST_TOKENS = 100_000_000
"""Largest length in tokens; tokenizers without a limit have 1e30 as theirs."""
_MOST_WIDTH = 1_000_000
_SHOWN = 80
"""Most characters of a file's value in a message."""

_VECTOR = "sentence_embedding"
"""The name under which modules of sentence-transformers hand on the vector of a text."""
_HIDDEN = "last_hidden_state"
"""The name of the output of a model's `forward` that limbeck reads."""

_MODE_OF_FLAG = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Flags of older folders, in the order in which sentence-transformers joins their vectors."""


def check_transformer(folder: Path, tokenizer_folder: Path) -> None:
    """Refuse a Transformer module that reads texts in another way than limbeck, or has another output.

    Limbeck reads texts as the tokenizer alone gives them, and takes the last hidden states.

    Args:
        folder: The folder of the module.
        tokenizer_folder: The folder of its tokenizer.
    """
    file = folder / TRANSFORMER_CONFIG
    config = read_json(file, {})
    task = config.get("transformer_task", "feature-extraction")
    output = config.get("module_output_name")
    if task != "feature-extraction" or output not in (None, "token_embeddings"):
        raise ModelError(
            f"'{file}' says transformer_task {_quoted(task)} and module_output_name {_quoted(output)}, but limbeck "
            "can read only the last hidden states of a feature-extraction model; choose another model."
        )
    unread_setting = _find_unread_setting(config)
    if unread_setting is not None:
        raise ModelError(
            f"'{file}' says {unread_setting.key} {str(unread_setting.value)[:_SHOWN]}, a setting that limbeck does "
            "not apply; remove the key in a copy of the folder, if other vectors will do."
        )
    # Older releases lower the case of a text before the tokenizer reads it, which limbeck does not.
    if config.get("do_lower_case"):
        tokenizer = read_json(tokenizer_folder / "tokenizer.json", {})
        if not _lowers_case(tokenizer):
            raise ModelError(
                f"'{file}' says do_lower_case, but the tokenizer in its folder keeps capitals; load the model once "
                "with sentence-transformers 5 or later and save it again, which moves the setting into the "
                "tokenizer."
            )


class _Setting(NamedTuple):
    """A setting of a module's file, or the part of it that matters."""

    key: str
    value: Any


def _find_unread_setting(config: Mapping[str, Any]) -> _Setting | None:
    """Find a setting of a Transformer module that changes tokens or output, and that limbeck does not apply.

    These settings came with version 6 of sentence-transformers. None stands for a file without any.
    """
    for key in ("query_length", "document_length", "query_expansion"):
        if config.get(key):
            return _Setting(key, config[key])

    # Arguments of the tokenizer: those for text, and those for all kinds of input.
    arguments_by_modality = _mapping(config.get("processing_kwargs"))
    for modality in ("text", "common"):
        arguments = _mapping(arguments_by_modality.get(modality))
        changing_arguments = {key: value for key, value in arguments.items() if not _keeps_tokens(key, value)}
        if changing_arguments:
            return _Setting("processing_kwargs", changing_arguments)

    # The method of the model that is called for text, and the name of its output.
    modalities = _mapping(config.get("modality_config"))
    text = _mapping(modalities.get("text"))
    method = text.get("method", "forward")
    output = text.get("method_output_name") or _HIDDEN
    if method != "forward" or output != _HIDDEN:
        return _Setting("modality_config", text)
    return None


def _keeps_tokens(key: str, value: Any) -> bool:
    """Whether a text has the same tokens with this argument of a tokenizer as it has in limbeck."""
    if key == "truncation":
        # Limbeck cuts every text to the longest input.
        return value is True
    return key in ("padding", "pad_to_multiple_of", "return_tensors")


def _mapping(value: Any) -> Mapping[str, Any]:
    """A value of a file where it is a mapping, else an empty one, since a file may hold anything."""
    return value if isinstance(value, dict) else {}


def _lowers_case(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a tokenizer, as its `tokenizer.json` describes it, makes capitals small."""
    normalizer = tokenizer.get("normalizer") or {}
    # The file has a sequence of normalizers, or a single one.
    for part in normalizer.get("normalizers") or [normalizer]:
        if isinstance(part, dict) and (part.get("type") == "Lowercase" or part.get("lowercase")):
            return True
    return False


def longest_input(folder: Path) -> int | None:
    """Return the longest input of a Transformer module in tokens; None where no file tells it.

    It stands in the module's configuration. Version 6 of sentence-transformers, whose configurations have the key
    `modality_config`, keeps it in the tokenizer's configuration instead.

    Args:
        folder: The folder of the module.
    """
    file = folder / TRANSFORMER_CONFIG
    key = "max_seq_length"
    config = read_json(file, {})
    value = config.get(key)
    if value is None and "modality_config" in config:
        file = folder / "tokenizer_config.json"
        key = "model_max_length"
        value = read_json(file, {}).get(key)
        # A tokenizer without a limit has a number such as 1e30.
        if isinstance(value, int | float) and value > _MOST_TOKENS:
            return None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_TOKENS:
        raise ModelError(
            f"{key} in '{file}' is {str(value)[:_SHOWN]}; give a whole number from 1 to {_MOST_TOKENS:,}, or null."
        )
    return value


def pooling_mode(file: Path, config: Mapping[str, Any]) -> str:
    """Return the pooling of a configuration: one of `POOLINGS`, or several joined by `+`.

    New folders name the modes; older ones have one flag a mode.

    Args:
        file: The file of the configuration, for messages.
        config: The configuration.

    Raises:
        ModelError: for none, or one that limbeck does not know.
    """
    modes = config.get("pooling_mode")
    if isinstance(modes, str):
        modes = [modes]
    if modes is None:
        flags = [key for key, is_on in config.items() if key.startswith("pooling_mode_") and is_on]
        unknown_flags = [key for key in flags if key not in _MODE_OF_FLAG]
        known_modes = [mode for flag, mode in _MODE_OF_FLAG.items() if flag in flags]
        modes = known_modes
        if unknown_flags:
            # They take the place of the modes, and are refused below by their names.
            modes = unknown_flags
    if not isinstance(modes, list) or not modes:
        raise ModelError(
            f"The pooling in '{file}' is none of those that limbeck knows: {', '.join(POOLINGS)}. Choose a model "
            "with one of them."
        )
    if not all(mode in POOLINGS for mode in modes):
        shown = " + ".join(map(str, modes))[:200]
        raise ModelError(
            f"The pooling in '{file}' is {shown}, but limbeck knows only {', '.join(POOLINGS)}; choose a model "
            "with one of them."
        )
    return "+".join(modes)


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a module that must have one.

    Raises:
        ModelError: for a folder or file that is missing, or a file that cannot be read.
    """
    file = folder / "config.json"
    if not file.is_file():
        lost = file if folder.is_dir() else folder
        raise ModelError(f"'{lost}' is missing, but {MODULES} lists its module; copy or download the model again.")
    config: dict[str, Any] = read_json(file, {})
    return config


def read_module(class_name: str, folder: Path) -> SentenceModule:
    """Read the configuration of a module behind the pooling.

    Args:
        class_name: `Dense`, `LayerNorm` or `Normalize`.
        folder: The module's folder.

    Raises:
        ModelError: for a configuration that is missing or that limbeck cannot apply.
    """
    file = folder / "config.json"
    # A Normalize has no settings of its own, so it may lack the file.
    config = read_json(file, {}) if class_name == "Normalize" else read_config(folder)
    # In version 6 modules may be applied to other tensors than the sentence vector.
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise ModelError(
                f"'{file}' says {key} {_quoted(config[key])}, but limbeck can apply modules only to {_VECTOR}; "
                "choose another model."
            )
    if class_name == "Normalize":
        return SentenceModule("Normalize")
    if class_name == "LayerNorm":
        width = _read_width(file, config, "dimension")
        return SentenceModule("LayerNorm", folder, in_width=width, out_width=width)
    return SentenceModule(
        "Dense",
        folder,
        in_width=_read_width(file, config, "in_features"),
        out_width=_read_width(file, config, "out_features"),
        bias=_read_flag(file, config, "bias", default=True),
        activation=_read_activation(file, config),
        residual=_read_flag(file, config, "use_residual", default=False),
    )


def _read_activation(file: Path, config: Mapping[str, Any]) -> str:
    """Return the activation of a linear map, the name of a class in `torch.nn`."""
    path = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    package, _, activation = path.rpartition(".")
    is_of_torch = package == "torch.nn" or package.startswith("torch.nn.modules.")
    if not is_of_torch or activation not in _activations():
        raise ModelError(
            f"'{file}' names the activation '{package[:_SHOWN]}.{activation[:_SHOWN]}', which is not one of torch.nn "
            f"without arguments and weights.{suggestion(activation, _activations())}"
        )
    return activation


def _activations() -> list[str]:
    """Return the activations of `torch.nn` that need no arguments and have no weights; `Identity` is none at all."""
    from torch.nn.modules import activation

    with_arguments = {"MultiheadAttention", "PReLU", "Threshold"}
    names = [name for name in activation.__all__ if name not in with_arguments]
    return ["Identity", *names]


def _read_flag(file: Path, config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a setting that is true or false."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ModelError(f"'{file}' says {key} {_quoted(value)}; give true or false.")
    return value


def _read_width(file: Path, config: Mapping[str, Any], key: str) -> int:
    """Return a setting that is a width, which the file must have."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_WIDTH:
        raise ModelError(f"'{file}' says {key} {str(value)[:_SHOWN]}; give a whole number from 1 to {_MOST_WIDTH:,}.")
    return value


def _quoted(value: Any) -> str:
    """A value of a file for a message, cut and in quotes."""
    return repr(str(value)[:_SHOWN])
