"""What sentence-transformers does around the scores of a cross-encoder, read from its files.

A *cross-encoder* reads two texts together and scores the pair. Version 6 of sentence-transformers keeps its settings in
the file `LIBRARY_CONFIG` of a folder with `modules.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.errors import ModelError
from limbeck.models.folder_files import MODULES, read_json
from limbeck.models.hub_files import fetch
from limbeck.models.sentence_reader import is_sentence_folder, read_prompts
from limbeck.models.sentences import LIBRARY_CONFIG

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def cross_encoder_settings(name_or_path: str | Path, config: PreTrainedConfig, revision: str | None) -> dict[str, Any]:
    """Read the settings by which sentence-transformers uses the scores of a cross-encoder.

    Version 6 keeps them in `LIBRARY_CONFIG`, versions 4 and 5 as `sentence_transformers` in `config.json`, and older
    versions as `sbert_ce_default_activation_function` in that.

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
    settings: dict[str, Any] = {}
    declared = getattr(config, "sentence_transformers", None)
    if isinstance(declared, dict):
        settings = dict(declared)

    # The newest place that names the activation decides.
    library_config_file = _library_config_file(name_or_path, revision)
    library_config = {}
    if library_config_file is not None:
        library_config = read_json(library_config_file, {})
    oldest = getattr(config, "sbert_ce_default_activation_function", None)
    activation = library_config.get("activation_fn") or settings.get("activation_fn") or oldest
    if isinstance(activation, str):
        settings["activation_fn"] = activation
    return settings


def check_no_prompt(name_or_path: str | Path, revision: str | None = None) -> None:
    """Refuse a cross-encoder that has a prompt before its texts by default, as version 6 of sentence-transformers may.

    Limbeck puts none before texts whose scores it reads, so these would be of other inputs.

    Raises:
        ModelError: for such a model, or a file that cannot be read.
    """
    file = _library_config_file(name_or_path, revision)
    if file is None or read_json(file, {}).get("model_type") != "CrossEncoder":
        return
    prompts = read_prompts(file)
    prompt = ""
    if prompts.default is not None:
        # An empty prompt is not among the texts.
        prompt = prompts.texts.get(prompts.default, "")
    if prompt:
        raise ModelError(
            f"'{name_or_path}' has the prompt {prompt[:40]!r} before its texts by default, but limbeck reads "
            f"scores without one; set default_prompt_name in its {LIBRARY_CONFIG} to null if its scores mean the "
            "same without one."
        )


def _library_config_file(name: str | Path, revision: str | None) -> Path | None:
    """Return the place of `LIBRARY_CONFIG` of a model; None for a folder without modules, of which it says nothing."""
    folder = fetch(name, revision, [MODULES, LIBRARY_CONFIG])
    if not is_sentence_folder(folder):
        return None
    return folder / LIBRARY_CONFIG
