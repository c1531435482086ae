"""Licence and language of a model, read from its card, and its name on the Hub.

The *card* of a model is its README.md, whose head has metadata.
"""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # In its reference, not in __all__.

from limbeck.core.paths import MODEL_CARD
from limbeck.errors import LimbeckError
from limbeck.models.locating import PACKAGE_PREFIX, is_local, resolve_model

LICENSE_KEYS = ("license", "license_name", "license_link")


def teacher_facts(model: str, name: str | None = None) -> dict[str, Any]:
    """Return a teacher's origin, its name on the Hub, and the facts of its card that are true of its students too.

    Args:
        model: A folder, `package:NAME` or a Hub name, as the recipe has it.
        name: The name that the recipe gives it; if it has the form `owner/model`, it is taken for its name on the Hub.

    Returns:
        `kind`, the origin: `"folder"`, `"package"` or `"hub"`; `hub_id`, the name on the Hub or None; and `card`, see
        `card_fields`.

    Raises:
        ModelError: if there is no such folder or package.
    """
    hub_id = None
    if name is not None and "/" in name and is_hub_name(name):
        hub_id = name
    # This comes first because `resolve_model` also refuses a package that is not installed.
    is_folder = is_local(resolve_model(model))
    if model.startswith(PACKAGE_PREFIX):
        origin = "package"
    elif is_folder:
        origin = "folder"
    else:
        origin = "hub"
        if hub_id is None:
            hub_id = model
    return {"kind": origin, "hub_id": hub_id, "card": card_fields(model)}


def is_hub_name(text: str) -> bool:
    """Return whether the Hub could have a model of this name."""
    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def card_fields(model: str) -> dict[str, str]:
    """Return the licence in a model's own card, and its language where it has only one.

    The card is read in its folder, its package or the Hub's cache, without the network. Several languages are left out,
    since a student may have seen text in only one of them.

    Args:
        model: A folder, `package:NAME` or a Hub name.

    Returns:
        Some of `license`, `license_name`, `license_link` and `language`; none without a card that can be read.
    """
    path = _card_path(model)
    if path is None:
        return {}
    try:
        metadata = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except Exception:  # A card is anybody's text: an unreadable one has no facts.
        return {}
    fields = {key: metadata[key] for key in LICENSE_KEYS if isinstance(metadata.get(key), str)}
    language = single_language(metadata.get("language"))
    if language is not None:
        fields["language"] = language
    return fields


def single_language(value: Any) -> str | None:
    """Return the language of a card's metadata, a name or a list of names; None if there are none or several."""
    language = value
    if isinstance(value, list) and len(value) == 1:
        language = value[0]
    return language if isinstance(language, str) else None


def _card_path(model: str) -> Path | None:
    """Return the place of a model's card on this machine, if there is one."""
    try:
        resolved = resolve_model(model)
    except LimbeckError:
        return None
    if is_local(resolved):
        # In the old layout of sentence-transformers the card lies in the model's folder, above the Transformer's.
        for folder in (Path(resolved), Path(model).expanduser()):
            if (folder / MODEL_CARD).is_file():
                return folder / MODEL_CARD
        return None
    cached = try_to_load_from_cache(resolved, MODEL_CARD)
    # The answer is None for a file that is not cached, or an object that says that the Hub does not have it.
    return Path(cached) if isinstance(cached, str) else None
