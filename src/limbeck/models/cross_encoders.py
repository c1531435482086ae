"""The settings by which sentence-transformers uses the scores of a cross-encoder, read from the model's files.

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
        The settings as the field `sentence_transformers` of a configuration has them, which all versions from 4 on
        read. `activation_fn` names the function that is applied to scores. Without it sentence-transformers applies a
        sigmoid.

    Raises:
        ModelError: for a file that cannot be read.
    """
    settings: dict[str, Any] = {}
    settings_in_config = getattr(config, "sentence_transformers", None)
    if isinstance(settings_in_config, dict):
        settings = dict(settings_in_config)

    # The newest of the places that names an activation takes precedence.
    library_config = {}
    library_config_file = _library_config_file(name_or_path, revision)
    if library_config_file is not None:
        library_config = read_json(library_config_file, {})
    activation = library_config.get("activation_fn")
    if not activation:
        activation = settings.get("activation_fn")
    if not activation:
        activation = getattr(config, "sbert_ce_default_activation_function", None)
    if isinstance(activation, str):
        settings["activation_fn"] = activation
    return settings


def check_no_prompt(name_or_path: str | Path, revision: str | None = None) -> None:
    """Refuse a cross-encoder that puts a prompt before its texts by default, as it may since sentence-transformers 6.

    Limbeck puts no prompt before texts that are scored, so the scores would be those of other inputs.

    Raises:
        ModelError: for such a model, or a file that cannot be read.
    """
    file = _library_config_file(name_or_path, revision)
    if file is None or read_json(file, {}).get("model_type") != "CrossEncoder":
        return
    prompts = read_prompts(file)
    prompt = ""
    if prompts.default is not None:
        # `texts` holds only prompts that are not empty.
        prompt = prompts.texts.get(prompts.default, "")
    if prompt:
        raise ModelError(
            f"'{name_or_path}' has the prompt {prompt[:40]!r} before its texts by default, but limbeck reads "
            "scores without a prompt; if its scores mean the same without the prompt, set default_prompt_name in "
            f"its {LIBRARY_CONFIG} to null."
        )


def _library_config_file(name: str | Path, revision: str | None) -> Path | None:
    """Return the path of a model's `LIBRARY_CONFIG`; None for a model without `modules.json`, which does not use it."""
    folder = fetch(name, revision, [MODULES, LIBRARY_CONFIG])
    if not is_sentence_folder(folder):
        return None
    return folder / LIBRARY_CONFIG
