"""What sentence-transformers does around the scores of a cross-encoder, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.errors import ModelError
from limbeck.models.folder_files import MODULES, read_json
from limbeck.models.hub_files import fetch
from limbeck.models.sentence_reader import read_prompts
from limbeck.models.sentences import LIBRARY_CONFIG

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def cross_encoder_settings(name_or_path: str | Path, config: PreTrainedConfig, revision: str | None) -> dict[str, Any]:
    """Read what sentence-transformers does with the scores of a cross-encoder.

    Its version 6 keeps it in a file beside `modules.json`, versions 4 and 5 as `sentence_transformers` in that, older
    ones as `sbert_ce_default_activation_function`.

    Args:
        name_or_path: The model.
        config: Its configuration.
        revision: A branch, tag or commit on the Hub.

    Returns:
        The `sentence_transformers` of a configuration, which all versions from 4 on read: `activation_fn`, the function
        after the scores. Empty where the model does not say, and sentence-transformers takes a sigmoid.

    Raises:
        ModelError: for a file that cannot be read.
    """
    declared = getattr(config, "sentence_transformers", None)
    settings = dict(declared) if isinstance(declared, dict) else {}
    folder = fetch(name_or_path, revision, [MODULES, LIBRARY_CONFIG])
    library_config = read_json(folder / LIBRARY_CONFIG, {}) if (folder / MODULES).is_file() else {}
    older = getattr(config, "sbert_ce_default_activation_function", None)
    activation = library_config.get("activation_fn") or settings.get("activation_fn") or older
    return {**settings, "activation_fn": activation} if isinstance(activation, str) else settings


def check_no_prompt(name_or_path: str | Path, revision: str | None = None) -> None:
    """Refuse a cross-encoder that has a prompt before its texts by default, as version 6 of sentence-transformers may.

    Limbeck puts none before texts whose scores it reads, so these would be of other inputs.

    Raises:
        ModelError: for one, or a file that cannot be read.
    """
    folder = fetch(name_or_path, revision, [MODULES, LIBRARY_CONFIG])
    file = folder / LIBRARY_CONFIG
    if not (folder / MODULES).is_file() or read_json(file, {}).get("model_type") != "CrossEncoder":
        return
    prompts, default = read_prompts(file)
    if prompt := prompts.get(default or ""):
        raise ModelError(
            f"'{name_or_path}' has the prompt {prompt[:40]!r} before its texts by default, but limbeck reads "
            f"scores without one; set default_prompt_name in its {LIBRARY_CONFIG} to null if its scores mean the "
            "same without one."
        )
